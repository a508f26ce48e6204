// Streamed responses until the response was sent: the R object to which an app writes, and the use
// of a stream as a `body`. The rest of a stream's life is in response_stream.c.
//
// The object is made without calling R functions, because thousands of event streams may be open,
// and the call frames would be kept with the methods (`bench/run.py --group r-stream --scenario
// idle`).
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

SEXP stream_field(SEXP source, SEXP name) {
    SEXP value = TYPEOF(source) == ENVSXP ? variable(source, name) : NULL;
    return value == NULL ? R_NilValue : value;
}

// Sets a stream as the body of a response, and `*token` for stream_start(). Runs guarded.
const char* stream_set_body(uint32_t slot, uint64_t id, SEXP body, uint64_t* token) {
    char where[256];
    SEXP source = body;
    if (Rf_isFunction(body)) {
        SEXP call = PROTECT(Rf_lang2(objs.new_source, body));
        source = Rf_eval(call, R_BaseEnv);
        UNPROTECT(1);
    } else if (Rf_inherits(body, "rookery_stream")) {
        source = stream_field(body, syms.body);
    }
    PROTECT(source);
    if (TYPEOF(source) != ENVSXP) {
        UNPROTECT(1);
        return "`body` is a stream object without its source";
    }
    if (stream_field(source, syms.handle) != R_NilValue) {
        UNPROTECT(1);
        return "`body` is a stream that was used for another request: create one for each request";
    }
    int rules = stream_field(source, syms.pull) == R_NilValue ? 0 : RK_PULLED;
    if (Rf_asLogical(stream_field(source, syms.is_events)) == TRUE) {
        rules |= RK_EVENTS | RK_PROMPT;
        int heartbeat = Rf_asInteger(stream_field(source, syms.heartbeat));
        rules |= heartbeat > 0 && heartbeat < 65536 ? heartbeat << 8 : 0;
    }
    if (Rf_asLogical(stream_field(source, syms.compress)) == TRUE) {
        rules |= RK_COMPRESSIBLE;
    }
    // For error reports after R no longer holds the exchange.
    rk_route(slot, id, where, sizeof where);
    Rf_defineVar(syms.route, PROTECT(Rf_mkString(where)), source);
    rk_request_id(slot, id, where, sizeof where);
    Rf_defineVar(syms.request_id, PROTECT(Rf_mkString(where)), source);
    SEXP origin = PROTECT(Rf_allocVector(REALSXP, 2));
    REAL(origin)[0] = rk_listener_of(slot, id);
    REAL(origin)[1] = event_start();
    Rf_defineVar(syms.origin, origin, source);
    Rf_defineVar(syms.handle, PROTECT(handle_new(id)), source);
    uint64_t kept_source = keep(source);
    if (rk_response_stream(slot, id, rules, kept_source) == RK_OK) {
        *token = kept_source;
    } else {
        release(kept_source);
    }
    UNPROTECT(5);
    return NULL;
}

// Called after the response was sent: sends what the app has written to the stream before.
void stream_start(uint64_t token) {
    if (token == 0) {
        return;
    }
    SEXP source = PROTECT(kept(token));
    if (stream_field(source, syms.pull) == R_NilValue) {
        bool failed;
        SEXP call = PROTECT(Rf_lang2(objs.start_stream, source));
        call_quietly(call, &failed);
        UNPROTECT(1);
    }
    UNPROTECT(1);
}
