// A library for LD_PRELOAD that calls an R function at one of the next allocations, as R calls the
// finalizers of an app when it collects garbage there. Only this makes the place of the call exact.
#define _GNU_SOURCE
#define R_NO_REMAP
#include <dlfcn.h>
#include <stdlib.h>

#include <Rinternals.h>

static int left;  // the number of allocations until the call; 0: no call
static SEXP function;

#define NEXT(name)                                                          \
    static __typeof__(&name) next;                                          \
    if (next == NULL) {                                                     \
        next = (__typeof__(&name))dlsym(RTLD_NEXT, #name);                  \
    }

static void allocate(SEXP first, SEXP second) {
    if (left > 0 && --left == 0) {
        SEXP (*lang)(SEXP) = (SEXP(*)(SEXP))dlsym(RTLD_NEXT, "Rf_lang1");
        SEXP (*eval)(SEXP, SEXP, int*) =
            (SEXP(*)(SEXP, SEXP, int*))dlsym(RTLD_NEXT, "R_tryEval");
        SEXP* base = dlsym(RTLD_DEFAULT, "R_BaseEnv");
        int error;
        Rf_protect(first == NULL ? *base : first);
        Rf_protect(second == NULL ? *base : second);
        eval(Rf_protect(lang(function)), *base, &error);
        Rf_unprotect(3);
    }
}

// Calls `called` at the `count`th allocation from now.
SEXP call_at(SEXP called, SEXP count) {
    if (function == NULL) {
        R_PreserveObject(function = called);
    }
    left = Rf_asInteger(count);
    return called;
}

SEXP Rf_allocVector(SEXPTYPE type, R_xlen_t length) {
    NEXT(Rf_allocVector)
    allocate(NULL, NULL);
    return next(type, length);
}

SEXP Rf_cons(SEXP car, SEXP cdr) {
    NEXT(Rf_cons)
    allocate(car, cdr);
    return next(car, cdr);
}

SEXP Rf_lang2(SEXP car, SEXP argument) {
    NEXT(Rf_lang2)
    allocate(car, argument);
    return next(car, argument);
}

SEXP R_NewEnv(SEXP enclosing, int is_hashed, int size) {
    NEXT(R_NewEnv)
    allocate(enclosing, NULL);
    return next(enclosing, is_hashed, size);
}

void R_PreserveObject(SEXP object) {
    NEXT(R_PreserveObject)
    allocate(object, NULL);
    next(object);
}

// The call and its arguments are allocated within the evaluation.
SEXP R_tryEvalSilent(SEXP call, SEXP env, int* error) {
    NEXT(R_tryEvalSilent)
    allocate(call, env);
    return next(call, env, error);
}

SEXP Rf_eval(SEXP call, SEXP env) {
    NEXT(Rf_eval)
    allocate(call, env);
    return next(call, env);
}
