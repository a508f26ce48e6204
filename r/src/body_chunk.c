// The chunks of an upload, as raw vectors whose memory is reused.
//
// R frees memory only when it collects garbage: the chunks of an upload of 10 GB would take some 50
// MiB between two collections (bench, upload-10g). A chunk that `on_data` has not stored is
// therefore reused as soon as `on_data` returns. R counts the references to each object, so
// unreferenced chunks are known (Writing R Extensions, 5.9.10).
//
// A chunk is an ALTREP object (R_ext/Altrep.h) over a vector that may be longer, because chunks
// have any length.
#include <string.h>

#include "shim.h"

#include <R_ext/Altrep.h>

// The sizes of chunk memory are powers of two in this range. At most one unused chunk of each size
// is kept, half a MiB in all. Shorter chunks are plain vectors.
enum { LEAST_BITS = 12, MOST_BITS = 18, SIZES = MOST_BITS - LEAST_BITS + 1 };

static R_altrep_class_t chunk_class;
static SEXP spare;  // VECSXP of unused chunks; NULL where there is none

// data1 is the memory, and data2 the length of the chunk.

static R_xlen_t chunk_length(SEXP bytes) {
    return (R_xlen_t)REAL(R_altrep_data2(bytes))[0];
}

static void* chunk_pointer(SEXP bytes, Rboolean is_writable) {
    (void)is_writable;
    return RAW(R_altrep_data1(bytes));
}

static const void* chunk_pointer_or_null(SEXP bytes) {
    return RAW(R_altrep_data1(bytes));
}

static Rbyte chunk_element(SEXP bytes, R_xlen_t at) {
    return RAW(R_altrep_data1(bytes))[at];
}

void chunk_init(DllInfo* dll) {
    chunk_class = R_make_altraw_class("chunk", "rookery", dll);
    R_set_altrep_Length_method(chunk_class, chunk_length);
    R_set_altvec_Dataptr_method(chunk_class, chunk_pointer);
    R_set_altvec_Dataptr_or_null_method(chunk_class, chunk_pointer_or_null);
    R_set_altraw_Elt_method(chunk_class, chunk_element);
    if (spare == NULL) {
        R_PreserveObject(spare = Rf_allocVector(VECSXP, SIZES));
    }
}

// Returns the index of the smallest size for `len` bytes, or -1 for a length that is not reused.
static int size_of(size_t len) {
    if (len < (size_t)1 << LEAST_BITS) {
        return -1;
    }
    int size = 0;
    while (size < SIZES && len > (size_t)1 << (LEAST_BITS + size)) {
        size++;
    }
    return size < SIZES ? size : -1;
}

// Returns a chunk with a copy of `len` bytes. Raises an error if there is no memory.
SEXP chunk_new(const void* start, size_t len) {
    int size = size_of(len);
    if (size < 0) {
        SEXP bytes = Rf_allocVector(RAWSXP, (R_xlen_t)len);
        if (len > 0) {
            memcpy(RAW(bytes), start, len);
        }
        return bytes;
    }
    SEXP chunk = PROTECT(VECTOR_ELT(spare, size));
    if (chunk == R_NilValue) {
        SEXP memory = PROTECT(Rf_allocVector(RAWSXP, (R_xlen_t)1 << (LEAST_BITS + size)));
        SEXP length = PROTECT(Rf_ScalarReal(0));
        chunk = R_new_altrep(chunk_class, memory, length);
        UNPROTECT(3);
        PROTECT(chunk);
    } else {
        SET_VECTOR_ELT(spare, size, R_NilValue);
    }
    REAL(R_altrep_data2(chunk))[0] = (double)len;
    memcpy(RAW(R_altrep_data1(chunk)), start, len);
    UNPROTECT(1);
    return chunk;
}

// Keeps a chunk for reuse, unless something refers to it or has set an attribute.
void chunk_recycle(SEXP chunk) {
    if (ALTREP(chunk) && NO_REFERENCES(chunk) && !ANY_ATTRIB(chunk)) {
        SET_VECTOR_ELT(spare, size_of((size_t)XLENGTH(R_altrep_data1(chunk))), chunk);
    }
}
