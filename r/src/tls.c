// TLS configurations in external pointers, see R/tls.R.
#include "shim.h"

static void tls_free(SEXP tls) {
    rk_tls_free(R_ExternalPtrAddr(tls));
    R_ClearExternalPtr(tls);
}

// Makes a TLS configuration from lines `setting=value`. Returns an external pointer, or an error
// message.
SEXP ffi_tls_new(SEXP lines) {
    SEXP tls = PROTECT(R_MakeExternalPtr(NULL, R_NilValue, R_NilValue));
    R_RegisterCFinalizerEx(tls, tls_free, TRUE);
    void* made = rk_tls_new(bytes_of_char(STRING_ELT(lines, 0)));
    R_SetExternalPtrAddr(tls, made);
    SEXP result = made == NULL ? last_error() : tls;
    UNPROTECT(1);
    return result;
}

// Returns NULL, or an error message, which is "" for a server without TLS.
SEXP ffi_tls_reload(SEXP listener) {
    int done = rk_tls_reload((uint32_t)Rf_asInteger(listener));
    if (done == RK_OK) {
        return R_NilValue;
    }
    return Rf_mkString(done == RK_STALE ? "" : rk_error());
}

// Returns list(file, fingerprint, is_new), or an error message.
SEXP ffi_tls_development_certificate(SEXP folder) {
    struct rk_bytes file, fingerprint;
    int is_new;
    if (rk_tls_development_certificate(Rf_translateChar(STRING_ELT(folder, 0)), &file,
            &fingerprint, &is_new) != RK_OK) {
        return last_error();
    }
    SEXP result = PROTECT(Rf_allocVector(VECSXP, 3));
    // The text that was lent last is freed first.
    SET_VECTOR_ELT(result, 1, Rf_ScalarString(copy_lent_text(fingerprint, CE_NATIVE)));
    SET_VECTOR_ELT(result, 0, Rf_ScalarString(copy_lent_text(file, CE_NATIVE)));
    SET_VECTOR_ELT(result, 2, Rf_ScalarLogical(is_new));
    UNPROTECT(1);
    return result;
}

// Sets the bindings about the certificate of the client.
void tls_bind_client(SEXP req, const struct rk_event* event) {
    struct rk_bytes subject, fingerprint;
    if (rk_client_certificate(event->slot, event->id, &subject, &fingerprint)) {
        Rf_defineVar(syms.client_subject, PROTECT(make_string(subject)), req);
        Rf_defineVar(syms.client_fingerprint, PROTECT(make_string(fingerprint)), req);
        UNPROTECT(2);
    }
}
