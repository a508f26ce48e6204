// Request bodies as raw vectors.
//
// A large body is one block of the server's memory. The vector for a whole body is an ALTREP object
// (R_ext/Altrep.h) over that block, so nothing is copied and no new page is touched. R returns the
// block when it collects the vector.

#include "shim.h"

#include <R_ext/Altrep.h>

static R_altrep_class_t lent_class;

// The number of blocks that R has. While it is not 0, this code must stay loaded, because R will
// call it.
static int lent_blocks;

SEXP ffi_lent_blocks(void) {
    return Rf_ScalarInteger(lent_blocks);
}

// data1 is an external pointer to the block, whose tag is the length.

static R_xlen_t lent_length(SEXP bytes) {
    return (R_xlen_t)REAL(R_ExternalPtrTag(R_altrep_data1(bytes)))[0];
}

// Raises an error if the block was returned. R finalizes unreachable objects in any order, so a
// finalizer of the app may still have the vector.
static void* lent_start(SEXP bytes) {
    void* start = R_ExternalPtrAddr(R_altrep_data1(bytes));
    if (start == NULL) {
        abort_with(
            "rookery_body_gone",
            "the body of this request was collected together with the object that referred to it: "
            "for use in a "
            "finalizer, keep a copy (`body <- c(req$rook.input$read())`)");
    }
    return start;
}

static void* lent_pointer(SEXP bytes, Rboolean is_writable) {
    (void)is_writable;
    return lent_start(bytes);
}

static const void* lent_pointer_or_null(SEXP bytes) {
    return R_ExternalPtrAddr(R_altrep_data1(bytes));
}

static Rbyte lent_element(SEXP bytes, R_xlen_t at) {
    return ((const Rbyte*)lent_start(bytes))[at];
}

// Called by R's garbage collector.
static void give_back(SEXP pointer) {
    void* start = R_ExternalPtrAddr(pointer);
    if (start != NULL) {
        R_ClearExternalPtr(pointer);
        lent_blocks--;
        rk_body_return(start);
    }
}

void body_init(DllInfo* dll) {
    lent_class = R_make_altraw_class("request_body", "rookery", dll);
    R_set_altrep_Length_method(lent_class, lent_length);
    R_set_altvec_Dataptr_method(lent_class, lent_pointer);
    R_set_altvec_Dataptr_or_null_method(lent_class, lent_pointer_or_null);
    R_set_altraw_Elt_method(lent_class, lent_element);
}

// Returns the whole body as a vector over its block, or NULL.
static SEXP whole_body(uint32_t slot, uint64_t id, R_xlen_t len) {
    if (!rk_body_is_lendable(slot, id, (size_t)len)) {
        return NULL;
    }
    // Calls that can raise an error come before the block is lent.
    SEXP tag = PROTECT(Rf_ScalarReal((double)len));
    SEXP pointer = PROTECT(R_MakeExternalPtr(NULL, tag, R_NilValue));
    R_RegisterCFinalizerEx(pointer, give_back, FALSE);
    SEXP bytes = PROTECT(R_new_altrep(lent_class, pointer, R_NilValue));
    // The body can be read again, so code that changes this vector must get a copy.
    MARK_NOT_MUTABLE(bytes);
    // R does not count memory that it did not allocate, and would collect only after hundreds of
    // bodies (peak memory of bench/r-http's post-1mb: 828 MiB without this, 145 MiB with it). An
    // unused vector of the same length makes R count it; its pages are never touched.
    Rf_allocVector(RAWSXP, len);
    void* start = rk_body_lend(slot, id, (size_t)len);
    if (start != NULL) {
        lent_blocks++;
        R_SetExternalPtrAddr(pointer, start);
    }
    UNPROTECT(3);
    return start == NULL ? NULL : bytes;
}

// Returns up to `len` bytes from the offset `from`, fewer at the end of the body.
SEXP body_bytes(uint32_t slot, uint64_t id, uint64_t from, R_xlen_t len) {
    SEXP whole = from == 0 ? whole_body(slot, id, len) : NULL;
    if (whole != NULL) {
        return whole;
    }
    SEXP bytes = PROTECT(Rf_allocVector(RAWSXP, len));
    int64_t read = rk_body_read(slot, id, from, RAW(bytes), (size_t)len);
    if (read < 0) {
        UNPROTECT(1);
        abort_with("rookery_body_unreadable", "the body of this request cannot be read: %s",
            rk_error());
    }
    if (read < len) {
        bytes = Rf_xlengthgets(bytes, (R_xlen_t)read);
    }
    UNPROTECT(1);
    return bytes;
}
