// What a listener serves without R: the site behind an external pointer. R keeps what was asked for in `state`, C and
// Rust are told the outcome.
#include "shim.h"

static void site_free(SEXP site) {
    rk_site_free(R_ExternalPtrAddr(site));
    R_ClearExternalPtr(site);
}

SEXP ffi_site_new(SEXP state) {
    SEXP site = PROTECT(R_MakeExternalPtr(NULL, R_NilValue, state));
    R_RegisterCFinalizerEx(site, site_free, TRUE);
    R_SetExternalPtrAddr(site, rk_site_new());
    UNPROTECT(1);
    return site;
}

SEXP ffi_site_state(SEXP site) {
    return R_ExternalPtrProtected(site);
}

SEXP ffi_site_set(SEXP site, SEXP keys, SEXP paths) {
    (void)site;
    (void)keys;
    (void)paths;
    return R_NilValue;
}
