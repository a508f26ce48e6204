// Promises as answers, and as pieces of them: how a server hears of one without making another.
//
// `then()` makes a second promise, whose fulfilment is a callback of package later's again: for an answer or a piece, of which
// nobody is told, that is most of the work. What is looked at instead is what package promises (1.2 to 1.3) keeps of a promise.
// Where it keeps something else, or something else stands for its `then()`, `then()` is called.
#include <string.h>

#include "shim.h"

static SEXP field(SEXP env, SEXP name) {
    SEXP value = TYPEOF(env) == ENVSXP ? variable(env, name) : NULL;
    return value == NULL ? R_NilValue : value;
}

// The environment with a promise's state; R_NilValue when it is not known.
static SEXP state_of(SEXP promise) {
    SEXP impl = PROTECT(Rf_getAttrib(promise, syms.promise_impl));
    SEXP then = PROTECT(field(impl, syms.then));
    SEXP enclosing = PROTECT(field(impl, syms.enclosing));
    SEXP private = field(enclosing, syms.private_fields);
    bool is_its_own = TYPEOF(promise) == VECSXP && Rf_isFunction(then) && list_element(promise, syms.then) == then;
    UNPROTECT(3);
    return is_its_own ? private : R_NilValue;
}

static bool is_in_state(SEXP private, const char* name) {
    SEXP state = field(private, syms.state);
    return TYPEOF(state) == STRSXP && XLENGTH(state) == 1 && strcmp(CHAR(STRING_ELT(state, 0)), name) == 0;
}

// The value of a promise that is fulfilled already; NULL for any other. An app cannot tell when its answer is written, so
// nothing that it sees changes its order.
SEXP promise_value(SEXP promise) {
    SEXP private = PROTECT(state_of(promise));
    SEXP value = is_in_state(private, "fulfilled") ? field(private, syms.value) : NULL;
    UNPROTECT(1);
    return value;
}

// Whether a promise domain is in force, which wraps what is given to `then()`; also when that cannot be told.
static bool has_domain(SEXP promise) {
    int failed = 0;
    SEXP then = list_element(promise, syms.then);
    SEXP call = PROTECT(Rf_lang1(syms.promise_domain));
    bool has = TYPEOF(then) != CLOSXP || R_tryEvalSilent(call, R_ClosureEnv(then), &failed) != R_NilValue || failed;
    UNPROTECT(1);
    return has;
}

// Has a promise that is pending call one of two functions when it is settled, behind those that `then()` has given it: FALSE
// when that is `then()`'s to do. They must not raise.
SEXP ffi_promise_attach(SEXP promise, SEXP on_fulfilled, SEXP on_rejected) {
    SEXP private = PROTECT(state_of(promise));
    SEXP fulfilled = PROTECT(field(private, syms.on_fulfilled));
    SEXP rejected = PROTECT(field(private, syms.on_rejected));
    bool can = is_in_state(private, "pending") && TYPEOF(fulfilled) == VECSXP && TYPEOF(rejected) == VECSXP &&
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
