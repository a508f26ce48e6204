// Invocations of an app for a request: onHeaders, call and onWSOpen, with the time limit, the use
// of the value that they return, and the report of errors.
#include <stdlib.h>
#include <string.h>

#include "shim.h"

// The stages of an invocation.
enum stage { STAGE_REQUEST, STAGE_ON_HEADERS, STAGE_CALL, STAGE_RESPONSE, STAGE_PROMISE,
    STAGE_ON_WS_OPEN };

static const char* const stage_names[] = {"request", "onHeaders", "call", "response", "response",
    "onWSOpen"};
static const char* const stage_labels[] = {"reading the request", "onHeaders", "call",
    "the response", "the response of a promise", "onWSOpen"};

struct invocation {
    const struct rk_event* event;
    const struct app* app;
    SEXP object;           // the app's R object; protected here, because R code may stop the server
    SEXP websocket_rules;  // the same for the rules of the app
    enum stage stage;
    const char* problem;
    SEXP req;        // valid while guarded code runs
    PROTECT_INDEX protected;  // where on_request() protects `req`
    uint64_t token;  // of `req`, for onError; 0: none
    uint64_t span;   // for otel_end(); 0: none
};

static bool is_nothing(SEXP value) {
    return value == R_NilValue || (TYPEOF(value) == VECSXP && XLENGTH(value) == 0);
}

// Uses the value of onHeaders or call: a response or a promise of one.
static void use_result(struct invocation* invocation, SEXP value) {
    uint32_t slot = invocation->event->slot;
    uint64_t id = invocation->event->id;
    invocation->stage = STAGE_RESPONSE;
    request_report_route(invocation->req, invocation->event);
    SEXP promise = as_promise(value);
    if (promise != NULL) {
        PROTECT(promise);
        SEXP fulfilled = promise_value(promise);
        if (fulfilled == NULL) {
            SEXP ticket = PROTECT(ticket_new(slot, id));
            // A reference from the promise, because `req` could be collected before the response.
            SEXP req = invocation->app->keeps_req ? invocation->req : R_NilValue;
            SEXP call = PROTECT(Rf_lang4(objs.then, promise, ticket, req));
            Rf_eval(call, R_BaseEnv);
            later_expect();
            otel_follow(invocation->span, promise);
            UNPROTECT(3);
            return;
        }
        invocation->stage = STAGE_PROMISE;
        value = fulfilled;
        UNPROTECT(1);
    }
    struct written written;
    invocation->problem = response_write(slot, id, PROTECT(value), &written);
    UNPROTECT(1);
    if (invocation->problem == NULL) {
        error_report_note_500(slot, id, written.status);
        response_send(slot, id);
        stream_start(written.stream);
    }
}

static SEXP call_with(const struct rk_event* event, SEXP function, SEXP argument) {
    SEXP call = PROTECT(Rf_lang2(function, argument));
    SEXP value = profile_call_request(call, event->slot, event->id);
    UNPROTECT(1);
    return value;
}

// Returns the value of onHeaders(req), not protected; R_NilValue for an app without onHeaders.
static SEXP call_on_headers(struct invocation* invocation, SEXP app, SEXP req) {
    if (!invocation->app->has_on_headers) {
        return R_NilValue;
    }
    invocation->stage = STAGE_ON_HEADERS;
    SEXP function = PROTECT(app_field(app, syms.on_headers));
    SEXP value = function == R_NilValue ? R_NilValue : call_with(invocation->event, function, req);
    UNPROTECT(1);
    return value;
}

// Uses a value of onHeaders() that is not NULL.
static void use_early_response(struct invocation* invocation, SEXP value) {
    if (is_receiver(value)) {
        SEXP req = invocation->app->keeps_req ? invocation->req : R_NilValue;
        // R holds the exchange only until the body is received.
        request_report_route(invocation->req, invocation->event);
        invocation->problem = receive_begin(invocation->event, value, req);
    } else {
        use_result(invocation, value);
    }
}

// Calls onHeaders(req). Returns whether that ended the request.
static bool respond_early(struct invocation* invocation, SEXP app, SEXP req) {
    SEXP value = PROTECT(call_on_headers(invocation, app, req));
    bool has_answered = !is_nothing(value);
    if (has_answered) {
        use_early_response(invocation, value);
    }
    UNPROTECT(1);
    return has_answered;
}

// Handles an opening handshake: refuses it with the response of onHeaders(), or accepts it.
static void run_handshake(struct invocation* invocation, SEXP app, SEXP req) {
    const struct rk_event* event = invocation->event;
    SEXP saved = PROTECT(invocation->app->has_on_headers ? request_save(req) : R_NilValue);
    SEXP value = PROTECT(call_on_headers(invocation, app, req));
    bool is_accepted = is_accepted_ws(value);
    if (!is_accepted && !is_nothing(value)) {
        use_early_response(invocation, value);
        UNPROTECT(2);
        return;
    }
    if (saved != R_NilValue) {
        request_restore(req, saved);
    }
    invocation->stage = STAGE_RESPONSE;
    SEXP protocol = R_NilValue;
    invocation->problem = websocket_accept(event, is_accepted ? value : R_NilValue,
        invocation->websocket_rules, &protocol);
    if (invocation->problem == NULL) {
        PROTECT(protocol);
        request_report_route(req, event);
        response_send(event->slot, event->id);
        invocation->stage = STAGE_ON_WS_OPEN;
        websocket_open(event, app, req, protocol);
        UNPROTECT(1);
    }
    UNPROTECT(2);
}

static void call_app(struct invocation* invocation, SEXP app, SEXP req) {
    invocation->stage = STAGE_CALL;
    SEXP function = PROTECT(app_field(app, syms.call));
    if (function == R_NilValue) {
        static const char page[] = "404 Not Found\n";
        response_text(invocation->event->slot, invocation->event->id, 404, "text/plain", page,
            sizeof page - 1);
        response_send(invocation->event->slot, invocation->event->id);
    } else {
        use_result(invocation, PROTECT(call_with(invocation->event, function, req)));
        UNPROTECT(1);
    }
    UNPROTECT(1);
}

// Limits the time of R code from now on. May jump.
static void limit_time(double seconds) {
    SEXP limit = PROTECT(Rf_ScalarReal(seconds));
    SEXP call = PROTECT(Rf_lang2(objs.limit_time, limit));
    Rf_eval(call, R_BaseEnv);
    UNPROTECT(2);
}

static SEXP run_no_limit(void* data) {
    (void)data;
    limit_time(R_PosInf);
    return R_NilValue;
}

// The guarded part of an invocation, in which all R objects of the exchange are made.
static SEXP run_invocation(void* data) {
    struct invocation* invocation = data;
    const struct rk_event* event = invocation->event;
    SEXP app = invocation->object;
    bool is_second = event->kind == RK_REQUEST && event->token != 0;
    SEXP req = PROTECT(is_second ? kept(event->token) : request_new(event));
    if (invocation->app->shows_id && !is_second) {
        request_bind_id(req, event);
    }
    invocation->req = req;
    REPROTECT(req, invocation->protected);
    if (invocation->app->keeps_req) {
        invocation->token = keep(req);
    }
    if (is_second) {
        request_bind_trace(req, event);
        input_bind(req, event);
    }
    event_release();
    invocation->span = otel_begin_call(event->kind == RK_HANDSHAKE ? "rookery.on_ws_open"
        : "rookery.call", req);
    if (invocation->app->max_seconds > 0) {
        limit_time(invocation->app->max_seconds);
    }
    switch (event->kind) {
    case RK_HEAD:
        if (!respond_early(invocation, app, req)) {
            uint64_t token = keep(req);
            if (rk_read_body(event->slot, event->id, token) != RK_OK) {
                release(token);
            }
        }
        break;
    case RK_HANDSHAKE:
        run_handshake(invocation, app, req);
        break;
    default:
        if (is_second || event->is_head_seen || !respond_early(invocation, app, req)) {
            call_app(invocation, app, req);
        }
        break;
    }
    UNPROTECT(1);
    return R_NilValue;
}

static SEXP run_report_route(void* data) {
    struct invocation* invocation = data;
    request_report_route(invocation->req, invocation->event);
    return R_NilValue;
}

static void fail(const struct invocation* invocation, struct guard* guard, char route[ROUTE_MAX],
    double began) {
    const struct rk_event* event = invocation->event;
    enum failure failure = guard->failure;
    SEXP caught = PROTECT(guard_caught(guard));
    const char* text = invocation->problem;
    if (failure == FAILURE_INTERRUPT) {
        text = "interrupted";
    } else if (text == NULL && caught == R_NilValue) {
        text = "ended by a restart, or by a condition that is not an error";
    }
    if (route[0] == '\0') {
        rk_route(event->slot, event->id, route, ROUTE_MAX);
    }
    struct error_report report = {
        .listener = event->listener,
        .slot = event->slot,
        .id = event->id,
        .stage = stage_names[invocation->stage],
        .label = stage_labels[invocation->stage],
        .route = route,
        .req = kept(invocation->token),
        .began = began,
        .is_answerable = invocation->stage != STAGE_ON_WS_OPEN,
    };
    if (report.is_answerable) {
        error_report_respond(&report, caught, text);
    } else {
        static const char reason[] = "Error in onWSOpen";
        error_report_emit(&report, caught, text);
        rk_ws_close(event->id, 1011, reason, sizeof reason - 1);
    }
    UNPROTECT(1);
    guard_propagate_interrupt(failure);
}

void on_request(const struct rk_event* event) {
    // A copy: R code may start or stop servers, which moves the registered apps.
    struct app app;
    struct invocation invocation = {.event = event, .app = &app};
    char route[ROUTE_MAX] = "";
    if (!app_find(event->listener, &app)) {
        // The server was stopped while the request was in the queue, and no app can respond.
        rk_refuse(event->slot, event->id);
        response_send(event->slot, event->id);
        release(event->token);
        return;
    }
    if (event->kind == RK_HANDSHAKE) {
        // R does not hold the exchange any more when onWSOpen is called. For other requests, the
        // route is only determined after an error.
        rk_route(event->slot, event->id, route, sizeof route);
    }
    double began = event_start();
    PROTECT(invocation.object = kept(app.token));
    invocation.websocket_rules =
        event->kind == RK_HANDSHAKE ? kept(app.websocket_rules) : R_NilValue;
    PROTECT(invocation.websocket_rules);
    PROTECT_WITH_INDEX(R_NilValue, &invocation.protected);
    struct guard guard = {.body = run_invocation, .data = &invocation};
    enum failure failure = guard_run(&guard);
    otel_end(invocation.span, failure != FAILURE_NONE || invocation.problem != NULL);
    if (app.max_seconds > 0) {
        struct guard end = {.body = run_no_limit};
        guard_run(&end);
        release(end.token);
    }
    if (failure != FAILURE_NONE || invocation.problem != NULL) {
        if (invocation.req != NULL) {
            struct guard reporting = {.body = run_report_route, .data = &invocation};
            guard_run(&reporting);
            release(reporting.token);
        }
        fail(&invocation, &guard, route, began);
    }
    UNPROTECT(3);
    release(invocation.token);
    // The token of a request for which onHeaders was called; 0 for all others.
    release(event->token);
}
