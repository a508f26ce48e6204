// What R shows to people: similar names, addresses, and the start-up screen. Rust makes the texts
// (text/terminal.rs); R has checked types and encodings.
#include "shim.h"

static uint16_t port_of(SEXP port) {
    return (uint16_t)Rf_asInteger(port);
}

// Returns the indices of at most three candidates that are similar to a name, from 1.
SEXP ffi_similar_names(SEXP name, SEXP candidates, SEXP most) {
    size_t count = (size_t)XLENGTH(candidates);
    struct rk_bytes* texts = (struct rk_bytes*)R_alloc(count, sizeof(struct rk_bytes));
    for (size_t i = 0; i < count; i++) {
        texts[i] = bytes_of_char(STRING_ELT(candidates, (R_xlen_t)i));
    }
    size_t found[3];
    size_t len = rk_similar_names(bytes_of_char(STRING_ELT(name, 0)), texts, count,
        Rf_asInteger(most), found);
    SEXP indices = Rf_allocVector(INTSXP, (R_xlen_t)len);
    for (size_t i = 0; i < len; i++) {
        INTEGER(indices)[i] = (int)found[i] + 1;
    }
    return indices;
}

SEXP ffi_check_address(SEXP host, SEXP port) {
    return Rf_ScalarString(copy_lent_text(
        rk_check_address(bytes_of_char(STRING_ELT(host, 0)), port_of(port)), CE_UTF8));
}

// The path and the message may be in any encoding.
SEXP ffi_missing_path(SEXP path) {
    return Rf_ScalarString(copy_lent_text(
        rk_missing_path(bytes_of_char(STRING_ELT(path, 0))), CE_NATIVE));
}

// `texts` are the host, the scheme, and the public name of the host or "".
SEXP ffi_server_url(SEXP texts, SEXP port) {
    return Rf_ScalarString(copy_lent_text(
        rk_server_url(bytes_of_char(STRING_ELT(texts, 0)), port_of(port),
            bytes_of_char(STRING_ELT(texts, 1)), bytes_of_char(STRING_ELT(texts, 2))), CE_UTF8));
}

// `texts` are the kind of app, its folder, the URL, the host, and the admin address; `flags` say
// whether stderr is a terminal, and whether a person reads the screen.
SEXP ffi_start_screen(SEXP texts, SEXP port, SEXP flags) {
    return Rf_ScalarString(copy_lent_text(
        rk_start_screen(bytes_of_char(STRING_ELT(texts, 0)), bytes_of_char(STRING_ELT(texts, 1)),
            bytes_of_char(STRING_ELT(texts, 2)), bytes_of_char(STRING_ELT(texts, 3)),
            port_of(port), bytes_of_char(STRING_ELT(texts, 4)), LOGICAL(flags)[0],
            LOGICAL(flags)[1]), CE_UTF8));
}
