// Settings and `_server.yml`: R passes text, and Rust (settings.rs) reads and checks it.
#include "shim.h"

SEXP ffi_setting_table(void) {
    return Rf_ScalarString(copy_lent_text(rk_setting_table(), CE_UTF8));
}

SEXP ffi_resolve_settings(SEXP names, SEXP sources) {
    return Rf_ScalarString(
        copy_lent_text(rk_resolve_settings(bytes_of_char(STRING_ELT(names, 0)),
            bytes_of_char(STRING_ELT(sources, 0))), CE_UTF8));
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

// Sets all limits, in the order of the table of settings; NaN stands for the default. Returns FALSE
// while a server runs with other limits.
SEXP ffi_limits_set(SEXP values) {
    return Rf_ScalarLogical(rk_limits_set(REAL(values), (size_t)XLENGTH(values)) == RK_OK);
}
