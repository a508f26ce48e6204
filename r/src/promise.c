// Promises of responses and chunks, handled without creating further promises.
//
// `then()` creates a second promise, whose fulfilment is another callback of package later. For
// responses and chunks nothing uses that promise, but creating it is most of the work. Instead, the
// state of a promise is read from the fields that package promises (1.2 to 1.3) stores. If a
// promise has other fields, or a `then()` of its own, `then()` is called.
#include <string.h>

#include "shim.h"

static SEXP field(SEXP env, SEXP name) {
    SEXP value = TYPEOF(env) == ENVSXP ? variable(env, name) : NULL;
    return value == NULL ? R_NilValue : value;
}

// Returns the environment with a promise's state, or R_NilValue if it is unknown.
static SEXP state_of(SEXP promise) {
    SEXP impl = PROTECT(Rf_getAttrib(promise, syms.promise_impl));
    SEXP then = PROTECT(field(impl, syms.then));
    SEXP enclosing = PROTECT(field(impl, syms.enclosing));
    SEXP private = field(enclosing, syms.private_fields);
    bool is_its_own = TYPEOF(promise) == VECSXP && Rf_isFunction(then) &&
        list_element(promise, syms.then) == then;
    UNPROTECT(3);
    return is_its_own ? private : R_NilValue;
}

static bool is_in_state(SEXP private, const char* name) {
    SEXP state = field(private, syms.state);
    return TYPEOF(state) == STRSXP && XLENGTH(state) == 1 &&
        strcmp(CHAR(STRING_ELT(state, 0)), name) == 0;
}

// Returns a value that package promises accepts as a promise, such as a future, as a promise.
// Returns NULL for other values. May jump.
SEXP as_promise(SEXP value) {
    if (!Rf_isObject(value)) {
        return NULL;
    }
    if (Rf_inherits(value, "promise")) {
        return value;
    }
    SEXP quoted = PROTECT(Rf_lang2(R_QuoteSymbol, value));
    SEXP call = PROTECT(Rf_lang2(objs.as_promise, quoted));
    SEXP promise = Rf_eval(call, R_BaseEnv);
    UNPROTECT(2);
    return promise == R_NilValue ? NULL : promise;
}

// Returns the value of a fulfilled promise, and NULL for others. The value can be used at once,
// because an app cannot observe when its response is written.
SEXP promise_value(SEXP promise) {
    SEXP private = PROTECT(state_of(promise));
    SEXP value = is_in_state(private, "fulfilled") ? field(private, syms.value) : NULL;
    UNPROTECT(1);
    return value;
}

// Returns whether a promise domain is active, which wraps callbacks of `then()`; also true if that
// is unknown.
static bool has_domain(SEXP promise) {
    int failed = 0;
    SEXP then = list_element(promise, syms.then);
    SEXP call = PROTECT(Rf_lang1(syms.promise_domain));
    bool has = TYPEOF(then) != CLOSXP || R_tryEvalSilent(call, R_ClosureEnv(then),
        &failed) != R_NilValue || failed;
    UNPROTECT(1);
    return has;
}

// Adds callbacks to a pending promise, after those of `then()`. Returns FALSE if `then()` must be
// used instead. The callbacks must not raise errors.
SEXP ffi_promise_attach(SEXP promise, SEXP on_fulfilled, SEXP on_rejected) {
    SEXP private = PROTECT(state_of(promise));
    SEXP fulfilled = PROTECT(field(private, syms.on_fulfilled));
    SEXP rejected = PROTECT(field(private, syms.on_rejected));
    bool can = is_in_state(private, "pending") && TYPEOF(fulfilled) == VECSXP &&
        TYPEOF(rejected) == VECSXP &&
               !has_domain(promise);
    if (can) {
        fulfilled = PROTECT(list_with(fulfilled, on_fulfilled));
        rejected = PROTECT(list_with(rejected, on_rejected));
        Rf_defineVar(syms.on_fulfilled, fulfilled, private);
        Rf_defineVar(syms.on_rejected, rejected, private);
        UNPROTECT(2);
    }
    UNPROTECT(3);
    return Rf_ScalarLogical(can);
}
