// TLS configurations in external pointers, see R/tls.R.
#include <string.h>

#include "shim.h"

static void tls_free(SEXP tls) {
    rk_tls_free(R_ExternalPtrAddr(tls));
    R_ClearExternalPtr(tls);
}

// Returns UTF-8 text, or the path of a file in the encoding of the system. The memory is R's
// transient memory, which is valid until .Call() returns.
static struct rk_bytes pem_at(SEXP strings, R_xlen_t at) {
    SEXP string = STRING_ELT(strings, at);
    const char* text = Rf_translateChar(string);
    return (struct rk_bytes){text, strlen(text)};
}

static struct rk_bytes* texts_of(SEXP strings) {
    R_xlen_t count = XLENGTH(strings);
    struct rk_bytes* all = (struct rk_bytes*)R_alloc((size_t)count + 1, sizeof(struct rk_bytes));
    for (R_xlen_t i = 0; i < count; i++) {
        all[i] = pem_at(strings, i);
    }
    return all;
}

// Checks the options of a certificate order, given as alternating names and values. Returns NULL,
// or an error message.
SEXP ffi_acme_check(SEXP settings) {
    size_t count = (size_t)XLENGTH(settings) / 2;
    return rk_acme_check(texts_of(settings), count) == RK_OK ? R_NilValue : last_error();
}

// Makes a TLS configuration. `pairs` are alternating certificates and keys; `hsts` is empty, or
// seconds and two flags; `acme` are alternating names and values, or empty. Returns an external
// pointer, or an error message.
SEXP ffi_tls_new(SEXP pairs, SEXP client_ca, SEXP is_optional, SEXP is_new_only, SEXP only_http1,
                 SEXP hsts, SEXP redirect_from, SEXP acme) {
    size_t count = (size_t)XLENGTH(pairs);
    struct rk_bytes* all = texts_of(pairs);
    struct rk_bytes* settings = texts_of(acme);
    struct rk_bytes ca = {"", 0};
    if (XLENGTH(client_ca) > 0) {
        ca = pem_at(client_ca, 0);
    }
    SEXP tls = PROTECT(R_MakeExternalPtr(NULL, R_NilValue, R_NilValue));
    R_RegisterCFinalizerEx(tls, tls_free, TRUE);
    void* made =
        rk_tls_new(all, count / 2, ca, Rf_asLogical(is_optional) == TRUE,
            Rf_asLogical(is_new_only) == TRUE,
                   Rf_asLogical(only_http1) == TRUE,
                       XLENGTH(hsts) == 3 ? INTEGER_RO(hsts) : NULL, Rf_asInteger(redirect_from),
                   settings, (size_t)XLENGTH(acme) / 2);
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
