// The admin listener of a single R process. See crates/status and R/admin.R.
#include "shim.h"

// Returns NULL, or an error message if the listener cannot be started.
SEXP ffi_admin_start(SEXP at, SEXP target) {
    if (rk_admin_start(Rf_translateCharUTF8(STRING_ELT(at, 0)),
            Rf_translateCharUTF8(STRING_ELT(target, 0))) != RK_OK) {
        return last_error();
    }
    stack_sampling_watch(rk_profile_word());
    return R_NilValue;
}

SEXP ffi_admin_set_state(SEXP state, SEXP address) {
    const char* text =
        Rf_isNull(address) ? NULL : Rf_translateCharUTF8(STRING_ELT(address, 0));
    rk_admin_set_state(Rf_asInteger(state), text);
    return R_NilValue;
}

SEXP ffi_admin_stop(void) {
    stack_sampling_watch(NULL);
    rk_admin_stop();
    return R_NilValue;
}

SEXP ffi_shares_errors(void) {
    return Rf_ScalarLogical(rk_shares_errors());
}

// Marks the spans in which an error has occurred as failed. `texts` are the label and the class.
SEXP ffi_span_error(SEXP texts) {
    rk_span_error(bytes_of_char(STRING_ELT(texts, 0)), bytes_of_char(STRING_ELT(texts, 1)));
    return R_NilValue;
}

// Passes an error on to the live page. `texts` are the request id, the route, the label, the
// class of the error, the message and the traceback, in UTF-8.
SEXP ffi_share_error(SEXP texts) {
    rk_share_error(bytes_of_char(STRING_ELT(texts, 0)), bytes_of_char(STRING_ELT(texts, 1)),
        bytes_of_char(STRING_ELT(texts, 2)), bytes_of_char(STRING_ELT(texts, 3)),
        bytes_of_char(STRING_ELT(texts, 4)), bytes_of_char(STRING_ELT(texts, 5)));
    return R_NilValue;
}
