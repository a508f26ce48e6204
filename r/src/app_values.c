// Reading the values that an app consists of and returns: fields, list elements and classes.
#include "shim.h"

SEXP list_element(SEXP list, SEXP name) {
    SEXP names = Rf_getAttrib(list, R_NamesSymbol);
    for (R_xlen_t i = 0; i < XLENGTH(list) && TYPEOF(names) == STRSXP; i++) {
        // R has one object for each string of ASCII characters, so pointers can be compared.
        if (STRING_ELT(names, i) == PRINTNAME(name)) {
            return VECTOR_ELT(list, i);
        }
    }
    return R_NilValue;
}

SEXP list_with(SEXP list, SEXP element) {
    R_xlen_t count = XLENGTH(list);
    SEXP longer = Rf_allocVector(VECSXP, count + 1);
    for (R_xlen_t i = 0; i < count; i++) {
        SET_VECTOR_ELT(longer, i, VECTOR_ELT(list, i));
    }
    SET_VECTOR_ELT(longer, count, element);
    return longer;
}

// Returns app$name as R evaluates it, for R6 objects, reference classes and lists, but without
// partial matching.
SEXP app_field(SEXP app, SEXP name) {
    if (TYPEOF(app) == VECSXP && !Rf_isObject(app)) {
        return list_element(app, name);
    }
    SEXP call = PROTECT(Rf_lang3(syms.dollar, app, name));
    SEXP value = Rf_eval(call, R_BaseEnv);
    UNPROTECT(1);
    return value;
}

// Returns whether a value is what accept_ws() returns.
bool is_accepted_ws(SEXP value) {
    return TYPEOF(value) == VECSXP && Rf_inherits(value, "rookery_accept_ws");
}

// Returns whether a value is what receive_body() returns.
bool is_receiver(SEXP value) {
    return TYPEOF(value) == ENVSXP && Rf_inherits(value, "rookery_receiver");
}

bool is_stream(SEXP body) {
    return Rf_isFunction(body) ||
           (TYPEOF(body) == ENVSXP && (Rf_inherits(body, "rookery_source") ||
               Rf_inherits(body, "rookery_stream")));
}
