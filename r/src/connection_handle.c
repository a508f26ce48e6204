// Handles, which name a WebSocket or a streamed response to R code. A handle is an external
// pointer, so that a handle that was saved and restored, or inherited by a fork, can be detected.
#include "shim.h"

// Returns the address in all handles of this process: the number of forks plus one, and therefore
// never NULL. Nothing reads from it.
static void* mark(void) {
    return (void*)((uintptr_t)forks + 1);
}

SEXP handle_new(uint64_t id) {
    SEXP tag = PROTECT(Rf_ScalarReal((double)id));
    SEXP handle = R_MakeExternalPtr(mark(), tag, R_NilValue);
    UNPROTECT(1);
    return handle;
}

// Returns the id in a handle, or -1 if the value is not a handle of this session and process.
double handle_id_here(SEXP handle) {
    bool is_here = TYPEOF(handle) == EXTPTRSXP && R_ExternalPtrAddr(handle) == mark();
    return is_here ? REAL(R_ExternalPtrTag(handle))[0] : -1;
}

// Returns the id in a handle; raises an error if the handle is from another session or process.
double handle_id(SEXP handle, const char* what, const char* given) {
    if (TYPEOF(handle) != EXTPTRSXP) {
        return -1;
    }
    // A restored handle has its tag, but not its address. The tag may name another connection by
    // now.
    if (R_ExternalPtrAddr(handle) == NULL) {
        abort_with("rookery_restored",
            "this %s was saved and restored, but its connection belongs to another R session",
            what);
    }
    if (R_ExternalPtrAddr(handle) != mark()) {
        abort_with(
            "rookery_in_fork",
            "this %s belongs to the process from which this one was forked: return the %s as the "
            "value of the fork "
            "(`parallel::mccollect()`), and send it or close the %s in that process",
            what, given, what);
    }
    return REAL(R_ExternalPtrTag(handle))[0];
}

// Returns the id in a handle for printing, or NA if the handle has no id or is from another session
// or process. Raises no error.
SEXP ffi_handle_number(SEXP handle) {
    double id = handle_id_here(handle);
    return Rf_ScalarReal(id < 0 ? NA_REAL : id);
}
