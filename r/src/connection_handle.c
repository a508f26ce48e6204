// What names a WebSocket or a stream to R code: an external pointer, so that one that was saved, or inherited by a fork, is
// known for what it is.
#include "shim.h"

// What the handles of this process point to, which nobody reads: its number among the forks, and never NULL.
static void* mark(void) {
    return (void*)((uintptr_t)forks + 1);
}

SEXP handle_new(uint64_t id) {
    SEXP tag = PROTECT(Rf_ScalarReal((double)id));
    SEXP handle = R_MakeExternalPtr(mark(), tag, R_NilValue);
    UNPROTECT(1);
    return handle;
}

// The id that a handle has; below 0: none, or one of another session or process.
double handle_id_here(SEXP handle) {
    bool is_here = TYPEOF(handle) == EXTPTRSXP && R_ExternalPtrAddr(handle) == mark();
    return is_here ? REAL(R_ExternalPtrTag(handle))[0] : -1;
}

// The same, but raises for one of another session or process.
double handle_id(SEXP handle, const char* what, const char* given) {
    if (TYPEOF(handle) != EXTPTRSXP) {
        return -1;
    }
    // The tag is saved with the object, and would name another connection by now; the address is not.
    if (R_ExternalPtrAddr(handle) == NULL) {
        abort_with("rookery_restored", "this %s was saved and restored: its connection was another R session's", what);
    }
    if (R_ExternalPtrAddr(handle) != mark()) {
        abort_with(
            "rookery_in_fork",
            "this %s belongs to the process that this one was forked from: give the %s back as the fork's value "
            "(`parallel::mccollect()`), and send it, or close the %s, there",
            what, given, what);
    }
    return REAL(R_ExternalPtrTag(handle))[0];
}

// For printing, which raises nothing: NA for no handle, and for one of another session or process.
SEXP ffi_handle_number(SEXP handle) {
    double id = handle_id_here(handle);
    return Rf_ScalarReal(id < 0 ? NA_REAL : id);
}
