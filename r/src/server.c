// Starting and stopping listeners.
#include "shim.h"

// Binding has happened when this returns: Shiny looks for a free port by trying.
SEXP ffi_listen_tcp(SEXP host, SEXP port, SEXP site, SEXP app, SEXP has_on_headers) {
    uint32_t listener;
    int bound_port;
    const char* address = CHAR(STRING_ELT(host, 0));
    if (rk_listen_tcp(address, Rf_asInteger(port), R_ExternalPtrAddr(site), &listener, &bound_port) != RK_OK) {
        return Rf_mkString(rk_error());
    }
    app_set(listener, app, Rf_asLogical(has_on_headers) == TRUE);
    SEXP result = PROTECT(Rf_allocVector(INTSXP, 2));
    INTEGER(result)[0] = (int)listener;
    INTEGER(result)[1] = bound_port;
    UNPROTECT(1);
    return result;
}

SEXP ffi_listen_unix(SEXP path, SEXP mask, SEXP site, SEXP app, SEXP has_on_headers) {
    uint32_t listener;
    const char* name = Rf_translateChar(STRING_ELT(path, 0));
    if (rk_listen_unix(name, Rf_asInteger(mask), R_ExternalPtrAddr(site), &listener) != RK_OK) {
        return Rf_mkString(rk_error());
    }
    app_set(listener, app, Rf_asLogical(has_on_headers) == TRUE);
    return Rf_ScalarInteger((int)listener);
}

// The app stays reachable until the WebSockets' closing callbacks have run: they hold what they need themselves.
SEXP ffi_stop(SEXP listener) {
    rk_stop((uint32_t)Rf_asInteger(listener));
    app_remove((uint32_t)Rf_asInteger(listener));
    return R_NilValue;
}

SEXP ffi_drain(SEXP listener, SEXP seconds) {
    rk_drain((uint32_t)Rf_asInteger(listener), Rf_asReal(seconds));
    return R_NilValue;
}
