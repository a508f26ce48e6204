// The R object of a WebSocket, equal to WebSocket$new(handle, req, protocol).
// `bench/run.py --group r-websocket --scenario idle` measures the memory of an open connection.
#include "shim.h"

static struct object_template template;
static SEXP fields;  // named VECSXP

void websocket_object_init(void) {
    template_init(&template, objs.websocket_parts);
    fields = VECTOR_ELT(objs.websocket_parts, 2);
    MARK_NOT_MUTABLE(fields);
}

SEXP websocket_object(SEXP handle, SEXP req, SEXP protocol) {
    SEXP enclosing;
    SEXP self = PROTECT(template_new(&template, &enclosing));
    for (R_xlen_t i = 0; i < XLENGTH(template.names); i++) {
        R_LockBinding(VECTOR_ELT(template.names, i), self);
    }
    SEXP names = PROTECT(Rf_getAttrib(fields, R_NamesSymbol));
    for (R_xlen_t i = 0; i < XLENGTH(fields); i++) {
        Rf_defineVar(Rf_installTrChar(STRING_ELT(names, i)), VECTOR_ELT(fields, i), self);
    }
    Rf_defineVar(syms.request, req, self);
    Rf_defineVar(syms.protocol, protocol, self);
    Rf_defineVar(syms.handle, handle, self);
    Rf_defineVar(syms.enclosing, enclosing, self);
    R_LockEnvironment(self, FALSE);
    UNPROTECT(2);
    return self;
}
