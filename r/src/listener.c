// Starting and stopping listeners.
#include "shim.h"

// Returns the strings of a character vector, or none for NULL.
static const char** strings_of(SEXP strings) {
    size_t count = (size_t)Rf_xlength(strings);
    const char** all = (const char**)R_alloc(count + 1, sizeof(char*));
    for (size_t i = 0; i < count; i++) {
        all[i] = CHAR(STRING_ELT(strings, (R_xlen_t)i));
    }
    return all;
}

// Converts a configuration from R: list(site, app, settings, spool, tls, proxies, has_proxy_header,
// websocket_rules, origins, sends_id, inherits, is_sticky, sends_timing, keeps_identity,
// proxy_senders), with the `settings` of app_set(). The result is valid until .Call() returns.
static struct rk_setup setup_of(SEXP setup) {
    SEXP proxies = VECTOR_ELT(setup, 5);
    SEXP proxy_senders = VECTOR_ELT(setup, 14);
    SEXP origins = VECTOR_ELT(setup, 8);
    SEXP tls = VECTOR_ELT(setup, 4);
    return (struct rk_setup){
        .site = R_ExternalPtrAddr(VECTOR_ELT(setup, 0)),
        .spool = Rf_translateChar(STRING_ELT(VECTOR_ELT(setup, 3), 0)),
        .tls = tls == R_NilValue ? NULL : R_ExternalPtrAddr(tls),
        .proxies = strings_of(proxies),
        .proxy_count = (size_t)XLENGTH(proxies),
        .calls_on_headers = Rf_asLogical(VECTOR_ELT(VECTOR_ELT(setup, 2), 0)) == TRUE,
        .has_proxy_header = Rf_asLogical(VECTOR_ELT(setup, 6)) == TRUE,
        .checks_origins = origins != R_NilValue,
        .origins = strings_of(origins),
        .origin_count = (size_t)Rf_xlength(origins),
        .sends_request_id = Rf_asLogical(VECTOR_ELT(setup, 9)) == TRUE,
        .inherits = Rf_asInteger(VECTOR_ELT(setup, 10)),
        .is_sticky = Rf_asLogical(VECTOR_ELT(setup, 11)) == TRUE,
        .sends_timing = Rf_asLogical(VECTOR_ELT(setup, 12)) == TRUE,
        .keeps_identity_headers = Rf_asLogical(VECTOR_ELT(setup, 13)) == TRUE,
        .proxy_senders = strings_of(proxy_senders),
        .proxy_sender_count = (size_t)XLENGTH(proxy_senders),
    };
}

// Returns after the socket was bound, because Shiny searches for a free port by trying.
SEXP ffi_listen_tcp(SEXP host, SEXP port, SEXP setup) {
    later_enable_wakeup();
    uint32_t listener;
    int bound_port;
    struct rk_setup how = setup_of(setup);
    if (rk_listen_tcp(CHAR(STRING_ELT(host, 0)), Rf_asInteger(port), &how, &listener,
            &bound_port) != RK_OK) {
        return last_error();
    }
    signals_count_listener(1);
    app_set(listener, VECTOR_ELT(setup, 1), VECTOR_ELT(setup, 2), VECTOR_ELT(setup, 7));
    SEXP result = PROTECT(Rf_allocVector(INTSXP, 2));
    INTEGER(result)[0] = (int)listener;
    INTEGER(result)[1] = bound_port;
    UNPROTECT(1);
    return result;
}

SEXP ffi_listen_unix(SEXP path, SEXP mask, SEXP setup) {
    later_enable_wakeup();
    uint32_t listener;
    struct rk_setup how = setup_of(setup);
    if (rk_listen_unix(Rf_translateChar(STRING_ELT(path, 0)), Rf_asInteger(mask), &how,
            &listener) != RK_OK) {
        return last_error();
    }
    signals_count_listener(1);
    app_set(listener, VECTOR_ELT(setup, 1), VECTOR_ELT(setup, 2), VECTOR_ELT(setup, 7));
    return Rf_ScalarInteger((int)listener);
}

// Stops a listener. Closing callbacks of its WebSockets run later and keep what they need
// themselves.
SEXP ffi_stop(SEXP listener) {
    rk_stop((uint32_t)Rf_asInteger(listener));
    signals_count_listener(-1);
    app_remove((uint32_t)Rf_asInteger(listener));
    return R_NilValue;
}

// Stops accepting connections. Open ones end after their responses; ffi_connections() returns how
// many remain.
SEXP ffi_drain(SEXP listener) {
    rk_drain((uint32_t)Rf_asInteger(listener));
    return R_NilValue;
}

SEXP ffi_connections(SEXP listener) {
    return Rf_ScalarInteger(rk_connections((uint32_t)Rf_asInteger(listener)));
}

// Makes R's requests of a listener get status 503 from now on; with `held`, also those that wait
// for a promise.
SEXP ffi_refuse(SEXP listener, SEXP held) {
    app_remove((uint32_t)Rf_asInteger(listener));
    if (Rf_asLogical(held) == TRUE) {
        rk_refuse_held((uint32_t)Rf_asInteger(listener));
        input_refused();
    }
    return R_NilValue;
}

// Sets all limits, in the order of the table of settings; NaN stands for the default. Returns FALSE
// while a server runs with other limits.
SEXP ffi_limits_set(SEXP values) {
    return Rf_ScalarLogical(rk_limits_set(REAL(values), (size_t)XLENGTH(values)) == RK_OK);
}
