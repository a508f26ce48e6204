// R objects with methods, made from a template without calling R functions.
//
// R6's `$new()` allocates ten times the memory of the object, and R keeps the pages. Methods that
// are made here keep their byte code, which `environment<-` would drop.
#include "shim.h"

#if R_VERSION < R_Version(4, 5, 0)
static SEXP R_mkClosure(SEXP formals, SEXP body, SEXP enclosing) {
    SEXP closure = Rf_allocSExp(CLOSXP);
    SET_FORMALS(closure, formals);
    SET_BODY(closure, body);
    SET_CLOENV(closure, enclosing);
    return closure;
}
#endif

static SEXP preserved(SEXP object) {
    R_PreserveObject(object);
    MARK_NOT_MUTABLE(object);
    return object;
}

// The objects of a previously loaded namespace stay preserved, because an app may use them.
void template_init(struct object_template* template, SEXP parts) {
    SEXP methods = VECTOR_ELT(parts, 0);
    SEXP names = PROTECT(Rf_allocVector(VECSXP, XLENGTH(methods)));
    SEXP given = Rf_getAttrib(methods, R_NamesSymbol);
    for (R_xlen_t i = 0; i < XLENGTH(methods); i++) {
        SET_VECTOR_ELT(names, i, Rf_installTrChar(STRING_ELT(given, i)));
    }
    template->methods = preserved(methods);
    template->names = preserved(names);
    UNPROTECT(1);
    template->classes = preserved(VECTOR_ELT(parts, 1));
}

SEXP template_new(const struct object_template* template, SEXP* enclosing) {
    SEXP self = PROTECT(R_NewEnv(R_EmptyEnv, FALSE, 0));
    *enclosing = PROTECT(R_NewEnv(objs.ns, FALSE, 0));
    Rf_defineVar(syms.self, self, *enclosing);
    template_bind(template, *enclosing, self);
    UNPROTECT(2);
    return self;
}

void template_bind(const struct object_template* template, SEXP enclosing, SEXP self) {
    for (R_xlen_t i = 0; i < XLENGTH(template->methods); i++) {
        SEXP method = VECTOR_ELT(template->methods, i);
        method = R_mkClosure(R_ClosureFormals(method), R_ClosureBody(method), enclosing);
        PROTECT(method);
        Rf_defineVar(VECTOR_ELT(template->names, i), method, self);
        UNPROTECT(1);
    }
    Rf_setAttrib(self, R_ClassSymbol, template->classes);
}
