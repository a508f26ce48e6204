// IP addresses, base64, percent-encoding, secrets, and other texts of Rust, which does the work; R
// has checked types and encodings.
#include <limits.h>
#include <stdio.h>

#include "shim.h"

// Copies a text of Rust. R may run a finalizer meanwhile that uses another one.
SEXP copy_lent_text(struct rk_bytes text, cetype_t encoding) {
    if (text.len > INT_MAX) {
        rk_text_free();
        abort_with("rookery_bad_argument",
            "the result is longer than the maximum length of a string in R, 2147483647 bytes");
    }
    SEXP made = Rf_mkCharLenCE(text.start, (int)text.len, encoding);
    rk_text_free();
    return made;
}

// Returns the message of the last error of Rust, which a finalizer may replace while R copies it.
SEXP last_error(void) {
    char text[ERROR_MAX];
    snprintf(text, sizeof text, "%s", rk_error());
    return Rf_mkString(text);
}

SEXP ffi_ip_family(SEXP ip) {
    return Rf_ScalarInteger(rk_ip_family(bytes_of_char(STRING_ELT(ip, 0))));
}

SEXP ffi_base64(SEXP bytes) {
    return Rf_ScalarString(copy_lent_text(rk_base64(
        (struct rk_bytes){(const char*)RAW(bytes), (size_t)XLENGTH(bytes)}), CE_NATIVE));
}

// Returns the text with the name `what`, which Rust makes from strings (text/for_r.rs). R has
// checked types and encodings. With `is_native`, the text may be in any encoding, like a path.
SEXP ffi_text(SEXP what, SEXP inputs, SEXP is_native) {
    size_t count = (size_t)XLENGTH(inputs);
    struct rk_bytes* texts = (struct rk_bytes*)R_alloc(count, sizeof(struct rk_bytes));
    for (size_t i = 0; i < count; i++) {
        texts[i] = bytes_of_char(STRING_ELT(inputs, (R_xlen_t)i));
    }
    struct rk_bytes made = rk_text(bytes_of_char(STRING_ELT(what, 0)), texts, count);
    return Rf_ScalarString(
        copy_lent_text(made, Rf_asLogical(is_native) == TRUE ? CE_NATIVE : CE_UTF8));
}

// Returns for each name of a parameter or header whether it says that the value is a secret.
SEXP ffi_is_secret_name(SEXP names) {
    SEXP is_secret = PROTECT(Rf_allocVector(LGLSXP, XLENGTH(names)));
    for (R_xlen_t i = 0; i < XLENGTH(names); i++) {
        LOGICAL(is_secret)[i] = rk_is_secret_name(bytes_of_char(STRING_ELT(names, i)));
    }
    UNPROTECT(1);
    return is_secret;
}

SEXP ffi_uri_encode(SEXP strings, SEXP is_whole) {
    SEXP encoded = PROTECT(Rf_allocVector(STRSXP, XLENGTH(strings)));
    for (R_xlen_t i = 0; i < XLENGTH(strings); i++) {
        SEXP text = STRING_ELT(strings, i);
        bool is_na = text == NA_STRING;
        SET_STRING_ELT(
            encoded, i, is_na ? text : copy_lent_text(
                rk_uri_encode(bytes_of_char(text), Rf_asLogical(is_whole)), CE_NATIVE));
    }
    UNPROTECT(1);
    return encoded;
}

SEXP ffi_uri_decode(SEXP strings, SEXP is_whole) {
    SEXP decoded = PROTECT(Rf_allocVector(STRSXP, XLENGTH(strings)));
    for (R_xlen_t i = 0; i < XLENGTH(strings); i++) {
        SEXP text = STRING_ELT(strings, i);
        struct rk_bytes bytes;
        if (text != NA_STRING) {
            if (!rk_uri_decode(bytes_of_char(text), Rf_asLogical(is_whole), &bytes)) {
                abort_with("rookery_bad_argument", "embedded nul in string");
            }
            text = copy_lent_text(bytes, CE_UTF8);
        }
        SET_STRING_ELT(decoded, i, text);
    }
    UNPROTECT(1);
    return decoded;
}
