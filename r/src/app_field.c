// What an app has under a name.
#include <string.h>

#include "shim.h"

// app$name, as R means it (R6, reference classes and lists alike), without matching a part of a name.
SEXP app_field(SEXP app, SEXP name) {
    if (TYPEOF(app) == VECSXP && !Rf_isObject(app)) {
        SEXP names = Rf_getAttrib(app, R_NamesSymbol);
        for (R_xlen_t i = 0; i < XLENGTH(app) && names != R_NilValue; i++) {
            if (strcmp(CHAR(STRING_ELT(names, i)), CHAR(PRINTNAME(name))) == 0) {
                return VECTOR_ELT(app, i);
            }
        }
        return R_NilValue;
    }
    SEXP call = PROTECT(Rf_lang3(syms.dollar, app, name));
    SEXP value = Rf_eval(call, R_BaseEnv);
    UNPROTECT(1);
    return value;
}
