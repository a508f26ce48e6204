// R objects with methods, made from a template without calling R functions.
//
// R6's `$new()` allocates ten times the memory of the object, and R keeps the pages. Methods that
// are made here keep their byte code, which `environment<-` would drop.
#include "shim.h"

static SEXP preserved(SEXP object) {
    R_PreserveObject(object);
    MARK_NOT_MUTABLE(object);
    return object;
}

// The objects of a previously loaded namespace stay preserved, because an app may use them.
void template_init(struct object_template* template, SEXP parts) {
    SEXP closures = VECTOR_ELT(parts, 0);
    SEXP makers = PROTECT(Rf_allocVector(VECSXP, XLENGTH(closures)));
    SEXP names = PROTECT(Rf_allocVector(VECSXP, XLENGTH(closures)));
    SEXP given = Rf_getAttrib(closures, R_NamesSymbol);
    SEXP function = Rf_install("function");
    for (R_xlen_t i = 0; i < XLENGTH(closures); i++) {
        SEXP closure = VECTOR_ELT(closures, i);
        SEXP formals = PROTECT(R_ClosureFormals(closure));
        SEXP body = PROTECT(R_ClosureBody(closure));
        SET_VECTOR_ELT(makers, i, Rf_lang3(function, formals, body));
        SET_VECTOR_ELT(names, i, Rf_installTrChar(STRING_ELT(given, i)));
        UNPROTECT(2);
    }
    template->methods = preserved(makers);
    template->names = preserved(names);
    UNPROTECT(2);
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
        SEXP method = PROTECT(Rf_eval(VECTOR_ELT(template->methods, i), enclosing));
        Rf_defineVar(VECTOR_ELT(template->names, i), method, self);
        UNPROTECT(1);
    }
    Rf_setAttrib(self, R_ClassSymbol, template->classes);
}
