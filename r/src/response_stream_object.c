// The R object to which an app writes a streamed response. It is made without calling R functions,
// because thousands of event streams may be open, and the call frames would be kept with the
// methods (`bench/run.py --group r-stream --scenario idle`).
#include "shim.h"

static struct object_template pushed;
static struct object_template events;
static SEXP source_symbol;

void stream_object_init(void) {
    template_init(&pushed, objs.pushed_parts);
    template_init(&events, objs.events_parts);
    source_symbol = Rf_install("source");
}

SEXP ffi_stream_object(SEXP source, SEXP status, SEXP headers, SEXP is_events) {
    SEXP enclosing;
    const struct object_template* template = Rf_asLogical(is_events) == TRUE ? &events : &pushed;
    SEXP self = PROTECT(template_new(template, &enclosing));
    Rf_defineVar(source_symbol, source, enclosing);
    Rf_defineVar(syms.status, status, self);
    Rf_defineVar(syms.response_headers, headers, self);
    Rf_defineVar(syms.body, source, self);
    UNPROTECT(1);
    return self;
}
