// A request's body as raw vectors.
//
// A large body lies in one block of the server's. The vector for the whole of it is an ALTREP object (R_ext/Altrep.h)
// over that block: nothing is copied, and no page is touched for the first time. R gives the block back when it
// collects the vector, however late.

#include "shim.h"

#include <R_ext/Altrep.h>

static R_altrep_class_t lent_class;

// How many blocks R has. While it has one, this code must stay loaded: R will call it.
static int lent_blocks;

SEXP ffi_lent_blocks(void) {
    return Rf_ScalarInteger(lent_blocks);
}

// data1 is a pointer to the block, tagged with its length.

static R_xlen_t lent_length(SEXP bytes) {
    return (R_xlen_t)REAL(R_ExternalPtrTag(R_altrep_data1(bytes)))[0];
}

// R finalizes all that it found unreachable, in no order: a finalizer of the app's may have the vector when the block
// has been given back already, and may keep it.
static void* lent_start(SEXP bytes) {
    void* start = R_ExternalPtrAddr(R_altrep_data1(bytes));
    if (start == NULL) {
        abort_with(
            "rookery_body_gone",
            "the body of this request was collected together with the object that held it: where a finalizer is to "
            "have it, keep a copy (`body <- c(req$rook.input$read())`)");
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

// The whole body around its own memory, or NULL.
static SEXP whole_body(uint32_t slot, uint64_t id, R_xlen_t len) {
    if (!rk_body_is_lendable(slot, id, (size_t)len)) {
        return NULL;
    }
    // Everything that can raise comes before the loan.
    SEXP tag = PROTECT(Rf_ScalarReal((double)len));
    SEXP pointer = PROTECT(R_MakeExternalPtr(NULL, tag, R_NilValue));
    R_RegisterCFinalizerEx(pointer, give_back, FALSE);
    SEXP bytes = PROTECT(R_new_altrep(lent_class, pointer, R_NilValue));
    // The body can be read again: whoever changes this vector gets a copy.
    MARK_NOT_MUTABLE(bytes);
    // R does not count what it did not allocate itself, and would let hundreds of bodies pile up before it collects
    // (peak memory of bench/r-http's post-1mb: 828 MiB, with this 145). A vector as long, which nobody ever touches,
    // makes it count.
    Rf_allocVector(RAWSXP, len);
    void* start = rk_body_lend(slot, id, (size_t)len);
    if (start != NULL) {
        lent_blocks++;
        R_SetExternalPtrAddr(pointer, start);
    }
    UNPROTECT(3);
    return start == NULL ? NULL : bytes;
}

// Up to `len` bytes from `from` on: fewer at the body's end.
SEXP body_bytes(uint32_t slot, uint64_t id, uint64_t from, R_xlen_t len) {
    SEXP whole = from == 0 ? whole_body(slot, id, len) : NULL;
    if (whole != NULL) {
        return whole;
    }
    SEXP bytes = PROTECT(Rf_allocVector(RAWSXP, len));
    int64_t read = rk_body_read(slot, id, from, RAW(bytes), (size_t)len);
    if (read < 0) {
        UNPROTECT(1);
        abort_with("rookery_body_unreadable", "the body of this request cannot be read: %s", rk_error());
    }
    if (read < len) {
        bytes = Rf_xlengthgets(bytes, (R_xlen_t)read);
    }
    UNPROTECT(1);
    return bytes;
}
