// Settings and `_server.yml`: R passes text, and Rust (settings.rs) reads and checks it.
#include "shim.h"

SEXP ffi_read_setting(SEXP name, SEXP values) {
    return Rf_ScalarString(
        copy_lent_text(rk_read_setting(bytes_of_char(STRING_ELT(name, 0)),
            bytes_of_char(STRING_ELT(values, 0))), CE_UTF8));
}

// Returns a warning for each of these environment variables that begins with ROOKERY_ and does not
// belong to a setting.
SEXP ffi_unknown_variables(SEXP names) {
    return Rf_ScalarString(
        copy_lent_text(rk_unknown_variables(bytes_of_char(STRING_ELT(names, 0))), CE_UTF8));
}

// The path and the result may be in any encoding.
SEXP ffi_read_server_yml(SEXP path, SEXP is_alone) {
    return Rf_ScalarString(copy_lent_text(rk_read_server_yml(bytes_of_char(STRING_ELT(path, 0)),
        Rf_asLogical(is_alone)), CE_NATIVE));
}
