// The R object that an app pushes a reply's pieces to. Made without calls: an event stream is one of thousands that are open and silent, and
// the frames of the functions that would make it stay with its methods (`bench/run.py --group r-stream --scenario idle`).
#include "shim.h"

static struct prototype pushed;
static struct prototype events;
static SEXP source_symbol;
static SEXP self_symbol;

void stream_object_init(void) {
    prototype_init(&pushed, objs.pushed_parts);
    prototype_init(&events, objs.events_parts);
    source_symbol = Rf_install("source");
    self_symbol = Rf_install("self");
}

SEXP ffi_stream_object(SEXP source, SEXP status, SEXP headers, SEXP is_events) {
    SEXP self = PROTECT(R_NewEnv(R_EmptyEnv, FALSE, 0));
    SEXP enclosing = PROTECT(R_NewEnv(objs.ns, FALSE, 0));
    Rf_defineVar(source_symbol, source, enclosing);
    // An app may keep a method and not the object.
    Rf_defineVar(self_symbol, self, enclosing);
    prototype_bind(Rf_asLogical(is_events) == TRUE ? &events : &pushed, enclosing, self);
    Rf_defineVar(syms.status, status, self);
    Rf_defineVar(syms.response_headers, headers, self);
    Rf_defineVar(syms.body, source, self);
    UNPROTECT(2);
    return self;
}
