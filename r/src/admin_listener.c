// The admin listener of a single R process. See crates/status and R/admin.R.
#include "shim.h"

// Returns NULL, or an error message if the listener cannot be started.
SEXP ffi_admin_start(SEXP at, SEXP target) {
    if (rk_admin_start(Rf_translateCharUTF8(STRING_ELT(at, 0)),
            Rf_translateCharUTF8(STRING_ELT(target, 0))) != RK_OK) {
        return Rf_mkString(rk_error());
    }
    return R_NilValue;
}

SEXP ffi_admin_set_state(SEXP state, SEXP address) {
    const char* text =
        Rf_isNull(address) ? NULL : Rf_translateCharUTF8(STRING_ELT(address, 0));
    rk_admin_set_state(Rf_asInteger(state), text);
    return R_NilValue;
}

SEXP ffi_admin_stop(void) {
    rk_admin_stop();
    return R_NilValue;
}
