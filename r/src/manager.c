// This process as a service that a manager such as systemd has started: see crates/service, and R/manager.R.
#include <stdlib.h>

#include "shim.h"

// NULL, or a string that says what is wrong with the sockets that the manager has opened for us.
SEXP ffi_manager_join(void) {
    // Asked before: what the environment says is taken out of it.
    bool is_managed = getenv("NOTIFY_SOCKET") != NULL;
    if (rk_manager_join() != RK_OK) {
        return Rf_mkString(rk_error());
    }
    if (is_managed || rk_manager_sockets() != RK_NO_SOCKETS) {
        signals_are_managed();
    }
    return R_NilValue;
}

// NULL where there are no sockets; TRUE when a server may listen on them, FALSE while one does.
SEXP ffi_manager_sockets(void) {
    int state = rk_manager_sockets();
    return state == RK_NO_SOCKETS ? R_NilValue : Rf_ScalarLogical(state == RK_SOCKETS_ARE_FREE);
}

SEXP ffi_manager_places(void) {
    return Rf_mkString(rk_manager_places());
}

SEXP ffi_manager_tell(SEXP what, SEXP status) {
    rk_manager_tell(Rf_asInteger(what), Rf_translateCharUTF8(STRING_ELT(status, 0)));
    return R_NilValue;
}

SEXP ffi_manager_failed(SEXP status, SEXP code) {
    rk_manager_failed(Rf_translateCharUTF8(STRING_ELT(status, 0)), Rf_asInteger(code));
    return R_NilValue;
}
