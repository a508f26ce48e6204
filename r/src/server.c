// Starting and stopping listeners.
#include "shim.h"

// Binding has happened when this returns: Shiny looks for a free port by trying. `spool` is the folder of large bodies.
SEXP ffi_listen_tcp(SEXP host, SEXP port, SEXP site, SEXP app, SEXP has_on_headers, SEXP spool) {
    service_need_later();
    uint32_t listener;
    int bound_port;
    int heads = Rf_asLogical(has_on_headers) == TRUE;
    const char* address = CHAR(STRING_ELT(host, 0));
    const char* folder = Rf_translateChar(STRING_ELT(spool, 0));
    int asked = Rf_asInteger(port);
    if (rk_listen_tcp(address, asked, R_ExternalPtrAddr(site), heads, folder, &listener, &bound_port) != RK_OK) {
        return Rf_mkString(rk_error());
    }
    app_set(listener, app, heads);
    SEXP result = PROTECT(Rf_allocVector(INTSXP, 2));
    INTEGER(result)[0] = (int)listener;
    INTEGER(result)[1] = bound_port;
    UNPROTECT(1);
    return result;
}

SEXP ffi_listen_unix(SEXP path, SEXP mask, SEXP site, SEXP app, SEXP has_on_headers, SEXP spool) {
    service_need_later();
    uint32_t listener;
    int heads = Rf_asLogical(has_on_headers) == TRUE;
    const char* name = Rf_translateChar(STRING_ELT(path, 0));
    const char* folder = Rf_translateChar(STRING_ELT(spool, 0));
    if (rk_listen_unix(name, Rf_asInteger(mask), R_ExternalPtrAddr(site), heads, folder, &listener) != RK_OK) {
        return Rf_mkString(rk_error());
    }
    app_set(listener, app, heads);
    return Rf_ScalarInteger((int)listener);
}

// The app stays reachable until the WebSockets' closing callbacks have run: they hold what they need themselves.
SEXP ffi_stop(SEXP listener) {
    rk_stop((uint32_t)Rf_asInteger(listener));
    app_remove((uint32_t)Rf_asInteger(listener));
    return R_NilValue;
}

// Stops accepting; connections end as their replies are done. ffi_connections() tells how many are left.
SEXP ffi_drain(SEXP listener) {
    rk_drain((uint32_t)Rf_asInteger(listener));
    return R_NilValue;
}

SEXP ffi_connections(SEXP listener) {
    return Rf_ScalarInteger(rk_connections((uint32_t)Rf_asInteger(listener)));
}

// From now on the requests of a listener that R comes to are answered with 503; with `held`, so are those that wait
// for a promise.
SEXP ffi_refuse(SEXP listener, SEXP held) {
    app_remove((uint32_t)Rf_asInteger(listener));
    if (Rf_asLogical(held) == TRUE) {
        rk_refuse_held((uint32_t)Rf_asInteger(listener));
        input_refused();
    }
    return R_NilValue;
}
