// Requests' bodies in pieces: R/receive.R is told of each, and of the end.
#include "shim.h"

bool receive_is(SEXP value) {
    return TYPEOF(value) == ENVSXP && Rf_inherits(value, "rookery_receiver");
}

static double ticket_part(SEXP receiver, int part) {
    SEXP ticket = variable(receiver, syms.ticket);
    if (ticket == NULL || TYPEOF(ticket) != REALSXP || XLENGTH(ticket) != 3) {
        abort_with("rookery_bad_argument", "this receive_body() is no request's");
    }
    return REAL(ticket)[part];
}

static SEXP call_over(SEXP receiver, const char* reason) {
    SEXP reason_r = PROTECT(Rf_mkString(reason));
    SEXP call = PROTECT(Rf_lang3(objs.body_over, receiver, reason_r));
    SEXP value = Rf_eval(call, R_BaseEnv);
    UNPROTECT(2);
    return value;
}

// onHeaders has returned what receives the body. Runs guarded.
const char* receive_begin(const struct rk_event* event, SEXP receiver, SEXP req) {
    if (variable(receiver, syms.ticket) != NULL) {
        return "receive_body() has received another request's body: make one for each";
    }
    char text[ROUTE_MAX];
    Rf_defineVar(syms.ticket, PROTECT(ticket_new(event->slot, event->id)), receiver);
    Rf_defineVar(syms.req, req, receiver);
    // For what fails when R does not hold the exchange any more.
    rk_route(event->slot, event->id, text, sizeof text);
    Rf_defineVar(syms.route, PROTECT(Rf_mkString(text)), receiver);
    rk_request_id(event->slot, event->id, text, sizeof text);
    Rf_defineVar(syms.request_id, PROTECT(Rf_mkString(text)), receiver);
    Rf_defineVar(syms.origin, PROTECT(Rf_ScalarReal(event->listener)), receiver);
    UNPROTECT(4);
    if (event->kind != RK_HEAD) {
        // There is no body.
        call_over(receiver, "done");
        return NULL;
    }
    uint64_t token = keep(receiver);
    if (rk_receive(event->slot, event->id, token) != RK_OK) {
        release(token);
        // Answered for R: onHeaders has stopped its server.
        call_over(receiver, "stop");
    }
    return NULL;
}

static const char* text_of(SEXP receiver, SEXP name, const char* otherwise) {
    SEXP value = variable(receiver, name);
    return value != NULL && TYPEOF(value) == STRSXP && XLENGTH(value) == 1 ? CHAR(STRING_ELT(value, 0)) : otherwise;
}

// A function of the app's has failed, that R/receive.R has named in `doing`: 500, unless the
// request has been answered, and what comes of the body is dropped.
static void fail(SEXP receiver, uint32_t slot, uint64_t id, SEXP caught, const char* text) {
    SEXP origin = variable(receiver, syms.origin);
    SEXP request_id = variable(receiver, syms.request_id);
    SEXP req = variable(receiver, syms.req);
    struct fault fault = {
        .listener = origin == NULL ? 0 : (uint32_t)Rf_asReal(origin),
        .slot = slot,
        .id = id,
        .stage = "receive",
        .label = text_of(receiver, syms.doing, "receive_body"),
        .route = text_of(receiver, syms.route, ""),
        .request_id = request_id,
        .req = req,
        .began = ticket_part(receiver, 2),
        .is_answerable = rk_is_held(slot, id),
    };
    Rf_defineVar(syms.has_failed, Rf_ScalarLogical(TRUE), receiver);
    Rf_defineVar(syms.is_answered, Rf_ScalarLogical(TRUE), receiver);
    if (fault.is_answerable) {
        fault_answer(&fault, caught, text);
    } else {
        fault_tell(&fault, caught, text);
    }
}

struct arrival {
    const struct rk_event* event;
    SEXP receiver;
};

static SEXP run_arrival(void* data) {
    struct arrival* arrival = data;
    const struct rk_event* event = arrival->event;
    if (event->kind == RK_BODY_END) {
        event_is_read();
        return call_over(arrival->receiver, departure_name(event->code));
    }
    SEXP bytes = PROTECT(piece_new(event->data.start, event->data.len));
    event_is_read();
    SEXP call = PROTECT(Rf_lang3(objs.body_came, arrival->receiver, bytes));
    Rf_eval(call, R_BaseEnv);
    if (NO_REFERENCES(call)) {
        SETCADDR(call, R_NilValue);
        piece_return(bytes);
    }
    UNPROTECT(2);
    return R_NilValue;
}

static SEXP run_rest(void* data) {
    struct arrival* arrival = data;
    SEXP call = PROTECT(Rf_lang2(objs.body_next, arrival->receiver));
    SEXP value = Rf_eval(call, R_BaseEnv);
    UNPROTECT(1);
    return value;
}

static enum failure run_guarded(SEXP (*body)(void*), struct arrival* arrival) {
    struct guard guard = {.body = body, .data = arrival};
    enum failure failure = guard_run(&guard);
    if (failure == FAILURE_NONE) {
        return failure;
    }
    SEXP caught = PROTECT(guard_caught(&guard));
    fail(arrival->receiver, arrival->event->slot, arrival->event->id, caught, caught_text(caught));
    UNPROTECT(1);
    return failure;
}

void handle_body(const struct rk_event* event) {
    SEXP receiver = PROTECT(kept(event->token));
    if (event->kind == RK_BODY_END) {
        release(event->token);
    }
    if (receiver != R_NilValue) {
        struct arrival arrival = {event, receiver};
        enum failure failure = run_guarded(run_arrival, &arrival);
        event_is_read();
        if (failure != FAILURE_NONE) {
            // What came while the function ran that has failed, by a service() in it.
            enum failure second = run_guarded(run_rest, &arrival);
            guard_pass_on(second == FAILURE_INTERRUPT ? second : failure);
        }
    } else {
        event_is_read();
    }
    UNPROTECT(1);
}

// entry points ---------------------------------------------------------------

SEXP ffi_receive_taken(SEXP receiver, SEXP bytes) {
    rk_taken_of((uint64_t)ticket_part(receiver, 1), (size_t)Rf_asReal(bytes));
    return R_NilValue;
}

SEXP ffi_receive_fail(SEXP receiver, SEXP condition, SEXP trace) {
    SEXP caught = PROTECT(caught_with(condition, trace));
    fail(receiver, (uint32_t)ticket_part(receiver, 0), (uint64_t)ticket_part(receiver, 1), caught, NULL);
    UNPROTECT(1);
    rk_flush();
    return R_NilValue;
}

// Answers; whether it could.
SEXP ffi_receive_respond(SEXP receiver, SEXP value) {
    SEXP req = variable(receiver, syms.req);
    bool is_response = app_answer(variable(receiver, syms.ticket), value, req == NULL ? R_NilValue : req, "the response");
    return Rf_ScalarLogical(is_response);
}

// Whether the request still waits for its answer.
SEXP ffi_receive_held(SEXP receiver) {
    return Rf_ScalarLogical(rk_is_held((uint32_t)ticket_part(receiver, 0), (uint64_t)ticket_part(receiver, 1)));
}

// Its client has gone: nobody is answered.
SEXP ffi_receive_drop(SEXP receiver) {
    uint32_t slot = (uint32_t)ticket_part(receiver, 0);
    uint64_t id = (uint64_t)ticket_part(receiver, 1);
    if (rk_is_held(slot, id)) {
        app_respond(slot, id);
    }
    return R_NilValue;
}
