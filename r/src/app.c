// A request's way through an app: req, onHeaders, call, reply; and what becomes of every failure on it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

// What runs for a listener.
struct app {
    uint32_t listener;
    uint64_t token;
    bool has_on_headers;
    uint64_t socket_rules;  // token of what socket_accept() takes
};

static struct app* apps;
static size_t app_count;

static struct app* find_app(uint32_t listener) {
    for (size_t i = 0; i < app_count; i++) {
        if (apps[i].listener == listener) {
            return &apps[i];
        }
    }
    return NULL;
}

void app_set(uint32_t listener, SEXP app, bool has_on_headers, SEXP socket_rules) {
    struct app* more = realloc(apps, sizeof(struct app) * (app_count + 1));
    if (more == NULL) {
        Rf_error("rookery: out of memory");
    }
    apps = more;
    apps[app_count++] = (struct app){listener, keep(app), has_on_headers, keep(socket_rules)};
}

void app_remove(uint32_t listener) {
    struct app* app = find_app(listener);
    if (app != NULL) {
        release(app->token);
        release(app->socket_rules);
        *app = apps[--app_count];
    }
}

// Where a request is on its way.
enum stage { STAGE_REQUEST, STAGE_ON_HEADERS, STAGE_CALL, STAGE_RESPONSE, STAGE_PROMISE, STAGE_ON_WS_OPEN };

static const char* const stage_names[] = {"reading the request", "onHeaders", "call", "the response", "the response of a promise",
                                          "onWSOpen"};

struct visit {
    const struct rk_event* event;
    const struct app* app;
    enum stage stage;
    const char* problem;
};

// Sends the reply and lets go of what R held for the request.
void app_respond(uint32_t slot, uint64_t id) {
    rk_respond(slot, id);
    input_answered(slot, id);
}

static bool is_nothing(SEXP value) {
    return value == R_NilValue || (TYPEOF(value) == VECSXP && XLENGTH(value) == 0);
}

static SEXP make_ticket(uint32_t slot, uint64_t id) {
    SEXP ticket = Rf_allocVector(REALSXP, 2);
    REAL(ticket)[0] = (double)slot;
    REAL(ticket)[1] = (double)id;
    return ticket;
}

// Takes what onHeaders or call returned: a response, or the promise of one.
static void take_result(struct visit* visit, SEXP value) {
    uint32_t slot = visit->event->slot;
    uint64_t id = visit->event->id;
    visit->stage = STAGE_RESPONSE;
    if (Rf_inherits(value, "promise")) {
        SEXP fulfilled = promise_value(value);
        if (fulfilled == NULL) {
            SEXP ticket = PROTECT(make_ticket(slot, id));
            SEXP call = PROTECT(Rf_lang3(objs.then, value, ticket));
            Rf_eval(call, R_BaseEnv);
            UNPROTECT(2);
            return;
        }
        visit->stage = STAGE_PROMISE;
        value = fulfilled;
    }
    visit->problem = response_write(slot, id, PROTECT(value));
    UNPROTECT(1);
    if (visit->problem == NULL) {
        app_respond(slot, id);
        stream_begin();
    }
}

static SEXP call_with(SEXP function, SEXP argument) {
    SEXP call = PROTECT(Rf_lang2(function, argument));
    SEXP value = Rf_eval(call, R_GlobalEnv);
    UNPROTECT(1);
    return value;
}

// onHeaders(req), not protected; R_NilValue for an app without one.
static SEXP say_on_headers(struct visit* visit, SEXP app, SEXP req) {
    if (!visit->app->has_on_headers) {
        return R_NilValue;
    }
    visit->stage = STAGE_ON_HEADERS;
    SEXP function = PROTECT(app_field(app, syms.on_headers));
    SEXP value = function == R_NilValue ? R_NilValue : call_with(function, req);
    UNPROTECT(1);
    return value;
}

// What onHeaders() has answered.
static void take_answer(struct visit* visit, SEXP value) {
    if (receive_is(value)) {
        visit->problem = receive_begin(visit->event, value);
    } else {
        take_result(visit, value);
    }
}

// onHeaders(req); whether it has answered.
static bool ask_on_headers(struct visit* visit, SEXP app, SEXP req) {
    SEXP value = PROTECT(say_on_headers(visit, app, req));
    bool has_answered = !is_nothing(value);
    if (has_answered) {
        take_answer(visit, value);
    }
    UNPROTECT(1);
    return has_answered;
}

// A handshake: refused by what onHeaders() answers, or accepted.
static void ask_handshake(struct visit* visit, SEXP app, SEXP req) {
    const struct rk_event* event = visit->event;
    SEXP saved = PROTECT(visit->app->has_on_headers ? request_save(req) : R_NilValue);
    SEXP value = PROTECT(say_on_headers(visit, app, req));
    bool is_accepted = socket_is_accepted(value);
    if (!is_accepted && !is_nothing(value)) {
        take_answer(visit, value);
        UNPROTECT(2);
        return;
    }
    if (saved != R_NilValue) {
        request_restore(req, saved);
    }
    visit->stage = STAGE_RESPONSE;
    SEXP protocol = R_NilValue;
    visit->problem = socket_accept(event, is_accepted ? value : R_NilValue, kept(visit->app->socket_rules), &protocol);
    if (visit->problem == NULL) {
        PROTECT(protocol);
        app_respond(event->slot, event->id);
        visit->stage = STAGE_ON_WS_OPEN;
        socket_open(event, app, req, protocol);
        UNPROTECT(1);
    }
    UNPROTECT(2);
}

static void ask_call(struct visit* visit, SEXP app, SEXP req) {
    visit->stage = STAGE_CALL;
    SEXP function = PROTECT(app_field(app, syms.call));
    if (function == R_NilValue) {
        static const char page[] = "404 Not Found\n";
        response_text(visit->event->slot, visit->event->id, 404, "text/plain", page, sizeof page - 1);
        app_respond(visit->event->slot, visit->event->id);
    } else {
        take_result(visit, PROTECT(call_with(function, req)));
        UNPROTECT(1);
    }
    UNPROTECT(1);
}

// The guarded part of a visit: every R object of the exchange is made here.
static SEXP run_visit(void* data) {
    struct visit* visit = data;
    const struct rk_event* event = visit->event;
    SEXP app = PROTECT(kept(visit->app->token));
    bool is_second = event->kind == RK_REQUEST && event->token != 0;
    SEXP req = PROTECT(is_second ? kept(event->token) : request_new(event));
    event_is_read();
    switch (event->kind) {
    case RK_HEAD:
        if (!ask_on_headers(visit, app, req)) {
            uint64_t token = keep(req);
            if (rk_proceed(event->slot, event->id, token) != RK_OK) {
                release(token);
            }
        }
        break;
    case RK_HANDSHAKE:
        ask_handshake(visit, app, req);
        break;
    default:
        if (is_second) {
            input_bind(req, event);
        }
        if (is_second || !ask_on_headers(visit, app, req)) {
            ask_call(visit, app, req);
        }
        break;
    }
    UNPROTECT(2);
    return R_NilValue;
}

// "GET /path", cut where it is longer than a line of a log should be.
enum { ROUTE_METHOD = 16, ROUTE_PATH = 200, ROUTE_MAX = ROUTE_METHOD + 1 + ROUTE_PATH + 1 };

static char* route_part(char* out, struct rk_bytes part, size_t most) {
    size_t len = part.len < most ? part.len : most;
    memcpy(out, part.start, len);
    return out + len;
}

// By snprintf() it takes 1,200 instructions, for every request.
static void route_of(const struct rk_event* event, char out[ROUTE_MAX]) {
    out = route_part(out, event->method, ROUTE_METHOD);
    *out++ = ' ';
    *route_part(out, event->path, ROUTE_PATH) = '\0';
}

// 500 with httpuv's two texts.
void answer_failure(uint32_t slot, uint64_t id, SEXP condition) {
    static const char type[] = "text/plain; charset=UTF-8";
    static const char plain[] = "An exception occurred.";
    if (condition != R_NilValue) {
        bool failed;
        SEXP call = PROTECT(Rf_lang2(objs.message, condition));
        SEXP text = PROTECT(call_quietly(call, &failed));
        if (!failed && TYPEOF(text) == STRSXP && XLENGTH(text) == 1) {
            response_text(slot, id, 500, type, CHAR(STRING_ELT(text, 0)), (size_t)LENGTH(STRING_ELT(text, 0)));
            UNPROTECT(2);
            rk_reply_fail(slot, id);
            app_respond(slot, id);
            return;
        }
        UNPROTECT(2);
    }
    response_text(slot, id, 500, type, plain, sizeof plain - 1);
    rk_reply_fail(slot, id);
    app_respond(slot, id);
}

static void handle_request(const struct rk_event* event) {
    const struct app* app = find_app(event->listener);
    struct visit visit = {.event = event, .app = app};
    // The event's pointers, and `apps`, may be gone when R code has run: what a failure needs is copied first.
    struct app copy;
    char route[ROUTE_MAX];
    if (app == NULL) {
        // Its server was stopped with the request in the queue: nobody is there to answer, nobody to read it.
        rk_refuse(event->slot, event->id);
        app_respond(event->slot, event->id);
        release(event->token);
        return;
    }
    copy = *app;
    visit.app = &copy;
    route_of(event, route);
    struct guard guard = {.body = run_visit, .data = &visit};
    enum failure failure = guard_run(&guard);
    // Of a request that onHeaders has seen; 0 for all others.
    release(event->token);
    if (failure == FAILURE_NONE && visit.problem == NULL) {
        return;
    }
    SEXP condition = PROTECT(kept(guard.token));
    release(guard.token);
    char where[320];
    snprintf(where, sizeof where, "%s (%s)", route, stage_names[visit.stage]);
    const char* text = visit.problem;
    if (failure == FAILURE_INTERRUPT) {
        text = "interrupted";
    } else if (text == NULL && condition == R_NilValue) {
        text = "left by a restart or a condition that is no error";
    }
    report(where, condition, text);
    if (visit.stage == STAGE_ON_WS_OPEN) {
        static const char reason[] = "Error in onWSOpen";
        rk_ws_close(event->id, 1011, reason, sizeof reason - 1);
    } else {
        bool is_apps = visit.stage == STAGE_CALL || visit.stage == STAGE_ON_HEADERS;
        answer_failure(event->slot, event->id, is_apps ? condition : R_NilValue);
    }
    UNPROTECT(1);
    guard_pass_on(failure);
}

void handle_event(const struct rk_event* event) {
    // A handler may call service(), which overwrites what Rust lends: the event itself is ours.
    struct rk_event copy = *event;
    switch (event->kind) {
    case RK_REQUEST:
    case RK_HANDSHAKE:
    case RK_HEAD:
        handle_request(&copy);
        break;
    case RK_MESSAGE:
        handle_message(&copy);
        break;
    case RK_CLOSED:
        handle_closed(&copy);
        break;
    case RK_DRAINED:
        handle_drained(&copy);
        break;
    case RK_WANT:
    case RK_ROOM:
    case RK_DEPARTED:
        handle_stream(&copy);
        break;
    case RK_BODY:
    case RK_BODY_END:
        handle_body(&copy);
        break;
    default:
        break;
    }
}

// The two ends of a promise: see then() in R/app.R.

struct settled {
    uint32_t slot;
    uint64_t id;
    SEXP value;
    const char* problem;
};

static SEXP run_settled(void* data) {
    struct settled* settled = data;
    settled->problem = response_write(settled->slot, settled->id, settled->value);
    return R_NilValue;
}

static void end_promise(uint32_t slot, uint64_t id, SEXP condition, const char* text, bool is_apps) {
    char where[320];
    size_t len = (size_t)rk_route(slot, id, where, 256);
    snprintf(where + len, sizeof where - len, " (%s)", is_apps ? "a promise" : "the response of a promise");
    report(where, condition, text);
    answer_failure(slot, id, is_apps ? condition : R_NilValue);
}

SEXP ffi_respond(SEXP ticket, SEXP value) {
    struct settled settled = {(uint32_t)REAL(ticket)[0], (uint64_t)REAL(ticket)[1], value, NULL};
    if (!rk_is_held(settled.slot, settled.id)) {
        return R_NilValue;
    }
    struct guard guard = {.body = run_settled, .data = &settled};
    guard_begin();
    enum failure failure = guard_run(&guard);
    guard_end();
    SEXP condition = PROTECT(kept(guard.token));
    release(guard.token);
    if (failure == FAILURE_NONE && settled.problem == NULL) {
        app_respond(settled.slot, settled.id);
        stream_begin();
    } else {
        end_promise(settled.slot, settled.id, condition, settled.problem, false);
    }
    UNPROTECT(1);
    rk_flush();
    return R_NilValue;
}

SEXP ffi_reject(SEXP ticket, SEXP condition) {
    uint32_t slot = (uint32_t)REAL(ticket)[0];
    uint64_t id = (uint64_t)REAL(ticket)[1];
    if (rk_is_held(slot, id)) {
        end_promise(slot, id, condition, NULL, true);
        rk_flush();
    }
    return R_NilValue;
}
