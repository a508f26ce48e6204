// A request's body as raw vectors.
//
// A large body lies in one block of the server's, with room in front. The vector for the whole of it is made around it,
// through R's interface for vectors with an allocator of their own (R_ext/Rallocators.h): nothing is copied, and no
// page is touched for the first time. R gives the block back when it collects the vector, however late.

#include <R_ext/Rallocators.h>

#include "shim.h"

// From the start of an allocation to its vector's data: what R keeps of the allocator, and the vector's header.
static size_t prefix;

// How many blocks R has. While it has one, this code must stay loaded: R will call give_back().
static int lent_blocks;

struct lending {
    uint32_t slot;
    uint64_t id;
    size_t len;
};

static void* take(R_allocator_t* allocator, size_t size) {
    struct lending* lending = allocator->data;
    // R rounds the data up to 8 bytes; more than that and this is not the layout that was measured.
    if (size > prefix + lending->len + 8) {
        return NULL;
    }
    char* start = rk_body_lend(lending->slot, lending->id, lending->len);
    if (start == NULL) {
        return NULL;
    }
    lent_blocks++;
    return start - prefix;
}

// Called by R's garbage collector.
static void give_back(R_allocator_t* allocator, void* allocation) {
    (void)allocator;
    lent_blocks--;
    rk_body_return((char*)allocation + prefix);
}

SEXP ffi_lent_blocks(void) {
    return Rf_ScalarInteger(lent_blocks);
}

// The whole body around its own memory, or NULL.
static SEXP whole_body(uint32_t slot, uint64_t id, size_t len) {
    if (prefix == 0) {
        SEXP probe = Rf_allocVector(RAWSXP, 64);
        prefix = sizeof(R_allocator_t) + (size_t)((char*)RAW(probe) - (char*)probe);
    }
    if (prefix > RK_ROOM_BEFORE || !rk_body_is_lendable(slot, id, len)) {
        return NULL;
    }
    struct lending lending = {.slot = slot, .id = id, .len = len};
    R_allocator_t allocator = {.mem_alloc = take, .mem_free = give_back, .res = NULL, .data = &lending};
    SEXP bytes = Rf_allocVector3(RAWSXP, (R_xlen_t)len, &allocator);
    // The body can be read again: whoever changes this vector gets a copy.
    MARK_NOT_MUTABLE(bytes);
    // R does not count what it did not allocate itself, and would let hundreds of bodies pile up before it collects
    // (peak memory of bench/r-http's post-1mb: 828 MiB, with this 145). A vector as long, which nobody ever touches,
    // makes it count.
    PROTECT(bytes);
    Rf_allocVector(RAWSXP, (R_xlen_t)len);
    UNPROTECT(1);
    return bytes;
}

SEXP ffi_body_read(SEXP ticket, SEXP offset, SEXP n) {
    uint32_t slot = (uint32_t)REAL(ticket)[0];
    uint64_t id = (uint64_t)REAL(ticket)[1];
    R_xlen_t len = (R_xlen_t)Rf_asReal(n);
    double from = Rf_asReal(offset);
    SEXP whole = from == 0 ? whole_body(slot, id, (size_t)len) : NULL;
    if (whole != NULL) {
        return whole;
    }
    SEXP bytes = PROTECT(Rf_allocVector(RAWSXP, len));
    int64_t read = rk_body_read(slot, id, (uint64_t)from, RAW(bytes), (size_t)len);
    if (read < 0) {
        UNPROTECT(1);
        Rf_error("the body of this request cannot be read: %s", rk_error());
    }
    if (read < len) {
        bytes = Rf_xlengthgets(bytes, (R_xlen_t)read);
    }
    UNPROTECT(1);
    return bytes;
}
