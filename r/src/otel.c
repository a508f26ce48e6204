// Spans of invocations that R makes itself, if the R package otel exports spans. A span is active
// while the app's code runs, so that the spans of other R packages nest below it. Without package
// otel, the Rust code makes these spans.
#include "shim.h"

static bool is_on;

// Records whether R makes spans of invocations. Returns whether this process makes the spans of
// requests, of which the spans of invocations are then children.
SEXP ffi_spans_in_r(SEXP is_in_r) {
    is_on = Rf_asLogical(is_in_r) == TRUE;
    return Rf_ScalarLogical(rk_spans_in_r(is_on));
}

// Begins and activates a span below that of the request `req`. Returns a token for otel_end(), or 0
// if R makes no spans. Runs guarded, and does not jump because of package otel.
uint64_t otel_begin_call(const char* name, SEXP req) {
    if (!is_on) {
        return 0;
    }
    SEXP text = PROTECT(Rf_mkString(name));
    SEXP call = PROTECT(Rf_lang3(objs.begin_call_span, text, req));
    SEXP state = PROTECT(Rf_eval(call, R_BaseEnv));
    uint64_t token = state == R_NilValue ? 0 : keep(state);
    UNPROTECT(3);
    return token;
}

// Begins and activates a span for a WebSocket message, below the span `parent` of the Rust code.
uint64_t otel_begin_message(uint64_t parent) {
    char header[56];
    if (!is_on) {
        return 0;
    }
    SEXP context = PROTECT(Rf_mkString(rk_span_traceparent(parent, header) ? header : ""));
    SEXP call = PROTECT(Rf_lang2(objs.begin_message_span, context));
    SEXP state = PROTECT(Rf_eval(call, R_BaseEnv));
    uint64_t token = state == R_NilValue ? 0 : keep(state);
    UNPROTECT(3);
    return token;
}

// Makes a span end when a promise is settled, and not with the invocation. Runs guarded.
void otel_follow(uint64_t token, SEXP promise) {
    if (token != 0) {
        SEXP call = PROTECT(Rf_lang3(objs.follow_promise, kept(token), promise));
        Rf_eval(call, R_BaseEnv);
        UNPROTECT(1);
    }
}

// Deactivates a span after an invocation, and ends it unless a promise does. Does not jump.
void otel_end(uint64_t token, bool has_failed) {
    if (token != 0) {
        bool failed;
        SEXP flag = PROTECT(Rf_ScalarLogical(has_failed));
        SEXP call = PROTECT(Rf_lang3(objs.end_span, kept(token), flag));
        call_quietly(call, &failed);
        UNPROTECT(2);
        release(token);
    }
}
