// The R object of a WebSocket: what WebSocket$new(handle, req) gives, without the calls.
//
// R6's `$new()` makes some 250 cells of garbage beside the 21 that stay, and the pages that R takes for them stay as well:
// `bench/run.py --group r-websocket --scenario idle` shows what an open connection keeps. Its methods are copied with their
// byte code, which `environment<-` drops.
#include "shim.h"

static SEXP methods;  // named VECSXP of calls of `function`, each of which gives a method where it is evaluated
static SEXP fields;   // named VECSXP
static SEXP classes;  // STRSXP
static SEXP self_symbol;
static SEXP enclosing_symbol;

static SEXP formals_of(SEXP closure) {
#if R_VERSION >= R_Version(4, 5, 0)
    return R_ClosureFormals(closure);
#else
    return FORMALS(closure);
#endif
}

static SEXP body_of(SEXP closure) {
#if R_VERSION >= R_Version(4, 5, 0)
    return R_ClosureBody(closure);
#else
    return BODY(closure);
#endif
}

static SEXP preserved(SEXP object) {
    R_PreserveObject(object);
    MARK_NOT_MUTABLE(object);
    return object;
}

// `parts`: methods, fields and classes, see globals.R. What was there of a namespace before is kept: an app may hold it.
void socket_object_init(SEXP parts) {
    SEXP closures = VECTOR_ELT(parts, 0);
    SEXP makers = PROTECT(Rf_allocVector(VECSXP, XLENGTH(closures)));
    SEXP function = Rf_install("function");
    for (R_xlen_t i = 0; i < XLENGTH(closures); i++) {
        SEXP closure = VECTOR_ELT(closures, i);
        SEXP formals = PROTECT(formals_of(closure));
        SEXP body = PROTECT(body_of(closure));
        SET_VECTOR_ELT(makers, i, Rf_lang3(function, formals, body));
        UNPROTECT(2);
    }
    Rf_setAttrib(makers, R_NamesSymbol, PROTECT(Rf_getAttrib(closures, R_NamesSymbol)));
    methods = preserved(makers);
    UNPROTECT(2);
    fields = preserved(VECTOR_ELT(parts, 1));
    classes = preserved(VECTOR_ELT(parts, 2));
    self_symbol = Rf_install("self");
    enclosing_symbol = Rf_install(".__enclos_env__");
}

SEXP socket_object(SEXP handle, SEXP req) {
    SEXP self = PROTECT(R_NewEnv(R_EmptyEnv, FALSE, 0));
    SEXP enclosing = PROTECT(R_NewEnv(objs.ns, FALSE, 0));
    Rf_defineVar(self_symbol, self, enclosing);

    SEXP names = PROTECT(Rf_getAttrib(methods, R_NamesSymbol));
    for (R_xlen_t i = 0; i < XLENGTH(methods); i++) {
        SEXP name = Rf_installTrChar(STRING_ELT(names, i));
        Rf_defineVar(name, PROTECT(Rf_eval(VECTOR_ELT(methods, i), enclosing)), self);
        R_LockBinding(name, self);
        UNPROTECT(1);
    }
    names = PROTECT(Rf_getAttrib(fields, R_NamesSymbol));
    for (R_xlen_t i = 0; i < XLENGTH(fields); i++) {
        Rf_defineVar(Rf_installTrChar(STRING_ELT(names, i)), VECTOR_ELT(fields, i), self);
    }
    Rf_defineVar(syms.request, req, self);
    Rf_defineVar(syms.handle, handle, self);
    Rf_defineVar(enclosing_symbol, enclosing, self);
    R_LockEnvironment(self, FALSE);
    Rf_setAttrib(self, R_ClassSymbol, classes);
    UNPROTECT(4);
    return self;
}
