// Promises as answers: those that are fulfilled already.
#include <string.h>

#include "shim.h"

static SEXP field(SEXP env, SEXP name) {
    SEXP value = TYPEOF(env) == ENVSXP ? variable(env, name) : NULL;
    return value == NULL ? R_NilValue : value;
}

// The value of a promise that is fulfilled already; NULL for any other, and where promises are not made as package promises
// (1.2 to 1.3) makes them. To ask `then()` takes a second promise and a callback of package later, which is most of what such an
// answer costs. An app cannot tell when its answer is written, so nothing that it sees changes its order.
SEXP promise_value(SEXP promise) {
    SEXP impl = PROTECT(Rf_getAttrib(promise, syms.promise_impl));
    SEXP enclosing = PROTECT(field(impl, syms.enclosing));
    SEXP private = PROTECT(field(enclosing, syms.private_fields));
    SEXP state = field(private, syms.state);
    bool is_fulfilled = TYPEOF(state) == STRSXP && XLENGTH(state) == 1 &&
                        strcmp(CHAR(STRING_ELT(state, 0)), "fulfilled") == 0;
    SEXP value = is_fulfilled ? field(private, syms.value) : NULL;
    UNPROTECT(3);
    return value;
}
