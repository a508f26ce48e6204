// A request's way through an app: req, onHeaders, call, reply; and what becomes of every failure on it.
#include <stdlib.h>
#include <string.h>

#include "shim.h"

// What runs for a listener.
struct app {
    uint32_t listener;
    uint64_t token;
    bool has_on_headers;
    uint64_t socket_rules;  // token of what socket_accept() takes
    bool keeps_req;         // while it is answered, to tell of it if it fails
    bool shows_id;          // whether requests have REQUEST_ID
    int detail;             // what clients see of errors: an index in `details`
    double most_seconds;    // for R, of one request; 0: as many as it takes
    int loop;               // of package later: the index of the one that was current
};

// `rookery.error_detail`, in R/errors.R. The last is what httpuv shows.
static const char* const details[] = {"none", "message", "full", "httpuv"};
enum { DETAIL_FULL = 2, DETAIL_HTTPUV = 3, DETAIL_COUNT = 4 };

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

static bool is_true(SEXP settings, int at) {
    return Rf_asLogical(VECTOR_ELT(settings, at)) == TRUE;
}

// `settings` is list(has_on_headers, has_on_error, shows_id, detail, most_seconds).
void app_set(uint32_t listener, SEXP app, SEXP settings, SEXP socket_rules) {
    int loop = later_server_begins();
    struct app* more = realloc(apps, sizeof(struct app) * (app_count + 1));
    if (more == NULL) {
        later_server_ends(loop);
        Rf_error("rookery: out of memory");
    }
    apps = more;
    struct app* set = &apps[app_count++];
    *set = (struct app){
        .listener = listener,
        .token = keep(app),
        .socket_rules = keep(socket_rules),
        .has_on_headers = is_true(settings, 0),
        .keeps_req = is_true(settings, 1),
        .shows_id = is_true(settings, 2),
        .most_seconds = Rf_asReal(VECTOR_ELT(settings, 4)),
        .loop = loop,
    };
    const char* detail = CHAR(STRING_ELT(VECTOR_ELT(settings, 3), 0));
    while (set->detail < DETAIL_COUNT - 1 && strcmp(details[set->detail], detail) != 0) {
        set->detail++;
    }
    if (set->detail == DETAIL_FULL) {
        set->keeps_req = true;
    }
}

struct app_facts app_facts(uint32_t listener) {
    const struct app* app = find_app(listener);
    if (app == NULL) {
        return (struct app_facts){.app = R_NilValue, .detail = details[0]};
    }
    return (struct app_facts){
        .app = kept(app->token),
        .detail = details[app->detail],
        .is_httpuv = app->detail == DETAIL_HTTPUV,
    };
}

void app_remove(uint32_t listener) {
    struct app* app = find_app(listener);
    if (app != NULL) {
        release(app->token);
        release(app->socket_rules);
        later_server_ends(app->loop);
        *app = apps[--app_count];
    }
}

// Where a request is on its way.
enum stage { STAGE_REQUEST, STAGE_ON_HEADERS, STAGE_CALL, STAGE_RESPONSE, STAGE_PROMISE, STAGE_ON_WS_OPEN };

static const char* const stage_names[] = {"request", "onHeaders", "call", "response", "response", "onWSOpen"};
static const char* const stage_labels[] = {"reading the request", "onHeaders", "call", "the response", "the response of a promise",
                                           "onWSOpen"};

struct visit {
    const struct rk_event* event;
    const struct app* app;
    enum stage stage;
    const char* problem;
    SEXP req;        // while it is guarded
    uint64_t token;  // of it, for onError; 0: there is none
};

// Sends the reply and lets go of what R held for the request.
void app_respond(uint32_t slot, uint64_t id) {
    rk_respond(slot, id);
    input_answered(slot, id);
}

static bool is_nothing(SEXP value) {
    return value == R_NilValue || (TYPEOF(value) == VECSXP && XLENGTH(value) == 0);
}

SEXP ticket_new(uint32_t slot, uint64_t id) {
    SEXP ticket = Rf_allocVector(REALSXP, 3);
    REAL(ticket)[0] = (double)slot;
    REAL(ticket)[1] = (double)id;
    REAL(ticket)[2] = event_began();
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
            SEXP ticket = PROTECT(ticket_new(slot, id));
            // Else what the request holds could go before it is answered.
            SEXP req = visit->app->keeps_req ? visit->req : R_NilValue;
            SEXP call = PROTECT(Rf_lang4(objs.then, value, ticket, req));
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
        fault_note_own(slot, id);
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
        visit->problem = receive_begin(visit->event, value, visit->app->keeps_req ? visit->req : R_NilValue);
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

// Of what R does from now on. May jump.
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

// The guarded part of a visit: every R object of the exchange is made here.
static SEXP run_visit(void* data) {
    struct visit* visit = data;
    const struct rk_event* event = visit->event;
    SEXP app = PROTECT(kept(visit->app->token));
    bool is_second = event->kind == RK_REQUEST && event->token != 0;
    SEXP req = PROTECT(is_second ? kept(event->token) : request_new(event));
    if (visit->app->shows_id && !is_second) {
        request_bind_id(req, event);
    }
    visit->req = req;
    if (visit->app->keeps_req) {
        visit->token = keep(req);
    }
    event_is_read();
    if (visit->app->most_seconds > 0) {
        limit_time(visit->app->most_seconds);
    }
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
        if (is_second || event->is_seen || !ask_on_headers(visit, app, req)) {
            ask_call(visit, app, req);
        }
        break;
    }
    UNPROTECT(2);
    return R_NilValue;
}

static void fail(const struct visit* visit, struct guard* guard, char route[ROUTE_MAX], double began) {
    const struct rk_event* event = visit->event;
    enum failure failure = guard->failure;
    SEXP caught = PROTECT(guard_caught(guard));
    const char* text = visit->problem;
    if (failure == FAILURE_INTERRUPT) {
        text = "interrupted";
    } else if (text == NULL && caught == R_NilValue) {
        text = "left by a restart or a condition that is no error";
    }
    if (route[0] == '\0') {
        rk_route(event->slot, event->id, route, ROUTE_MAX);
    }
    struct fault fault = {
        .listener = event->listener,
        .slot = event->slot,
        .id = event->id,
        .stage = stage_names[visit->stage],
        .label = stage_labels[visit->stage],
        .route = route,
        .req = kept(visit->token),
        .began = began,
        .is_answerable = visit->stage != STAGE_ON_WS_OPEN,
    };
    if (fault.is_answerable) {
        fault_answer(&fault, caught, text);
    } else {
        static const char reason[] = "Error in onWSOpen";
        fault_tell(&fault, caught, text);
        rk_ws_close(event->id, 1011, reason, sizeof reason - 1);
    }
    UNPROTECT(1);
    guard_pass_on(failure);
}

static void handle_request(const struct rk_event* event) {
    const struct app* app = find_app(event->listener);
    struct visit visit = {.event = event, .app = app};
    // `apps` may be another when R code has run.
    struct app copy;
    char route[ROUTE_MAX] = "";
    if (app == NULL) {
        // Its server was stopped with the request in the queue: nobody is there to answer, nobody to read it.
        rk_refuse(event->slot, event->id);
        app_respond(event->slot, event->id);
        release(event->token);
        return;
    }
    copy = *app;
    visit.app = &copy;
    if (event->kind == RK_HANDSHAKE) {
        // R holds it no more when onWSOpen is called. Any other is asked for what it was when it has failed.
        rk_route(event->slot, event->id, route, sizeof route);
    }
    double began = event_began();
    struct guard guard = {.body = run_visit, .data = &visit};
    enum failure failure = guard_run(&guard);
    if (copy.most_seconds > 0) {
        struct guard end = {.body = run_no_limit};
        guard_run(&end);
        release(end.token);
    }
    if (failure != FAILURE_NONE || visit.problem != NULL) {
        fail(&visit, &guard, route, began);
    }
    release(visit.token);
    // Of a request that onHeaders has seen; 0 for all others.
    release(event->token);
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

static void end_promise(SEXP ticket, SEXP req, SEXP caught, const char* text, const char* stage, const char* label) {
    char route[ROUTE_MAX];
    struct fault fault = {
        .slot = (uint32_t)REAL(ticket)[0],
        .id = (uint64_t)REAL(ticket)[1],
        .stage = stage,
        .label = label,
        .route = route,
        .req = req,
        .began = REAL(ticket)[2],
        .is_answerable = true,
    };
    fault.listener = rk_listener_of(fault.slot, fault.id);
    rk_route(fault.slot, fault.id, route, sizeof route);
    fault_answer(&fault, caught, text);
}

bool app_answer(SEXP ticket, SEXP value, SEXP req, const char* label) {
    struct settled settled = {(uint32_t)REAL(ticket)[0], (uint64_t)REAL(ticket)[1], value, NULL};
    if (!rk_is_held(settled.slot, settled.id)) {
        return true;
    }
    struct guard guard = {.body = run_settled, .data = &settled};
    guard_begin();
    enum failure failure = guard_run(&guard);
    guard_end();
    SEXP caught = PROTECT(guard_caught(&guard));
    bool is_response = failure == FAILURE_NONE && settled.problem == NULL;
    if (is_response) {
        fault_note_own(settled.slot, settled.id);
        app_respond(settled.slot, settled.id);
        stream_begin();
    } else {
        const char* text = settled.problem == NULL ? caught_text(caught) : settled.problem;
        end_promise(ticket, req, caught, text, "response", label);
    }
    UNPROTECT(1);
    rk_flush();
    return is_response;
}

SEXP ffi_respond(SEXP ticket, SEXP value, SEXP req) {
    app_answer(ticket, value, req, "the response of a promise");
    return R_NilValue;
}

SEXP ffi_reject(SEXP ticket, SEXP condition, SEXP req) {
    if (rk_is_held((uint32_t)REAL(ticket)[0], (uint64_t)REAL(ticket)[1])) {
        SEXP caught = PROTECT(caught_of(condition));
        end_promise(ticket, req, caught, NULL, "promise", "a promise");
        UNPROTECT(1);
        rk_flush();
    }
    return R_NilValue;
}
