// A chunk of an upload, as a raw vector whose memory is used again when R has let go of it.
//
// R frees nothing by itself: the pieces of an upload of 10 GB would pile up to some 50 MiB before each collection (bench,
// upload-10g). So what `on_data` has kept nowhere is taken back as soon as it returns. R counts the references to an object; what
// nobody refers to is free (Writing R Extensions, 5.9.10).
//
// The vector is an ALTREP object (R_ext/Altrep.h) over one that may be longer, since pieces are of any length.
#include <string.h>

#include "shim.h"

#include <R_ext/Altrep.h>

// Memory comes in powers of two between these, one of each waits to be used again: half a MiB. A shorter chunk is R's own.
enum { LEAST_BITS = 12, MOST_BITS = 18, SIZES = MOST_BITS - LEAST_BITS + 1 };

static R_altrep_class_t chunk_class;
static SEXP spare;  // VECSXP of pieces that nobody has; NULL where there is none

// data1 is the memory, data2 how much of it is the chunk's.

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

// Which of the sizes holds `len` bytes; -1 where that is no chunk of ours.
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

// A copy of `len` bytes. Raises when there is no memory.
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

// Takes a chunk back, if nobody refers to it, nor has given it an attribute.
void chunk_recycle(SEXP chunk) {
    if (ALTREP(chunk) && NO_REFERENCES(chunk) && ATTRIB(chunk) == R_NilValue) {
        SET_VECTOR_ELT(spare, size_of((size_t)XLENGTH(R_altrep_data1(chunk))), chunk);
    }
}
