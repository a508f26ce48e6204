// The limits of the server: their names and defaults, and setting them.
#include "shim.h"

// Returns list(names, kinds, minimums, defaults) of all limits.
SEXP ffi_limits(void) {
    struct rk_limit limit;
    R_xlen_t count = 0;
    while (rk_limit((size_t)count, &limit)) {
        count++;
    }
    SEXP names = PROTECT(Rf_allocVector(STRSXP, count));
    SEXP kinds = PROTECT(Rf_allocVector(INTSXP, count));
    SEXP least = PROTECT(Rf_allocVector(REALSXP, count));
    SEXP values = PROTECT(Rf_allocVector(REALSXP, count));
    for (R_xlen_t i = 0; i < count; i++) {
        rk_limit((size_t)i, &limit);
        SET_STRING_ELT(names, i, Rf_mkChar(limit.name));
        INTEGER(kinds)[i] = limit.kind;
        REAL(least)[i] = limit.least;
        REAL(values)[i] = limit.value;
    }
    SEXP all = PROTECT(Rf_allocVector(VECSXP, 4));
    SET_VECTOR_ELT(all, 0, names);
    SET_VECTOR_ELT(all, 1, kinds);
    SET_VECTOR_ELT(all, 2, least);
    SET_VECTOR_ELT(all, 3, values);
    UNPROTECT(5);
    return all;
}

// Sets all limits, in their order; NaN stands for the default. Returns FALSE while a server runs
// with other limits.
SEXP ffi_limits_set(SEXP values) {
    return Rf_ScalarLogical(rk_limits_set(REAL(values), (size_t)XLENGTH(values)) == RK_OK);
}
