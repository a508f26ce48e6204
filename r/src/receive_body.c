// Request bodies that the app receives in chunks: passes the chunks and the end of a body to
// R/receive-body.R.
#include "shim.h"

static double ticket_part(SEXP receiver, int part) {
    SEXP ticket = variable(receiver, syms.ticket);
    if (ticket == NULL || TYPEOF(ticket) != REALSXP || XLENGTH(ticket) != 3) {
        abort_with("rookery_bad_argument",
            "this receive_body() object does not belong to a request");
    }
    return REAL(ticket)[part];
}

static SEXP call_over(SEXP receiver, const char* reason) {
    SEXP reason_r = PROTECT(Rf_mkString(reason));
    SEXP call = PROTECT(Rf_lang3(objs.on_body_end, receiver, reason_r));
    SEXP value = Rf_eval(call, R_BaseEnv);
    UNPROTECT(2);
    return value;
}

// Begins to receive a body, after onHeaders has returned a receiver. Runs guarded.
const char* receive_begin(const struct rk_event* event, SEXP receiver, SEXP req) {
    if (variable(receiver, syms.ticket) != NULL) {
        return "this receive_body() object has received the body of another request: create one "
        "for each request";
    }
    char text[ROUTE_MAX];
    Rf_defineVar(syms.ticket, PROTECT(ticket_new(event->slot, event->id)), receiver);
    Rf_defineVar(syms.req, req, receiver);
    // For error reports after R no longer holds the exchange.
    rk_route(event->slot, event->id, text, sizeof text);
    Rf_defineVar(syms.route, PROTECT(Rf_mkString(text)), receiver);
    rk_request_id(event->slot, event->id, text, sizeof text);
    Rf_defineVar(syms.request_id, PROTECT(Rf_mkString(text)), receiver);
    Rf_defineVar(syms.origin, PROTECT(Rf_ScalarReal(event->listener)), receiver);
    UNPROTECT(4);
    if (event->kind != RK_HEAD) {
        // The request has no body.
        call_over(receiver, "done");
        return NULL;
    }
    uint64_t token = keep(receiver);
    if (rk_receive_body(event->slot, event->id, token) != RK_OK) {
        release(token);
        // onHeaders has stopped the server, which has responded itself.
        call_over(receiver, "stop");
    }
    return NULL;
}

static const char* text_of(SEXP receiver, SEXP name, const char* otherwise) {
    SEXP value = variable(receiver, name);
    return value != NULL && TYPEOF(value) == STRSXP && XLENGTH(value) == 1
        ? CHAR(STRING_ELT(value, 0)) : otherwise;
}

// Reports an error in a function of the app, which R/receive-body.R has named in `doing`. The
// response is status 500 unless one was sent before. The rest of the body is dropped.
static void fail(SEXP receiver, uint32_t slot, uint64_t id, SEXP caught, const char* text) {
    SEXP origin = variable(receiver, syms.origin);
    SEXP request_id = variable(receiver, syms.request_id);
    SEXP req = variable(receiver, syms.req);
    struct error_report report = {
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
    if (report.is_answerable) {
        error_report_respond(&report, caught, text);
    } else {
        error_report_emit(&report, caught, text);
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
        event_release();
        return call_over(arrival->receiver, stream_end_name(event->code));
    }
    SEXP bytes = PROTECT(chunk_new(event->data.start, event->data.len));
    event_release();
    SEXP call = PROTECT(Rf_lang3(objs.on_body_chunk, arrival->receiver, bytes));
    Rf_eval(call, R_BaseEnv);
    if (NO_REFERENCES(call)) {
        SETCADDR(call, R_NilValue);
        chunk_recycle(bytes);
    }
    UNPROTECT(2);
    return R_NilValue;
}

static SEXP run_rest(void* data) {
    struct arrival* arrival = data;
    SEXP call = PROTECT(Rf_lang2(objs.body_process_queue, arrival->receiver));
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

void on_body_event(const struct rk_event* event) {
    SEXP receiver = PROTECT(kept(event->token));
    if (event->kind == RK_BODY_END) {
        release(event->token);
    }
    if (receiver != R_NilValue) {
        struct arrival arrival = {event, receiver};
        enum failure failure = run_guarded(run_arrival, &arrival);
        event_release();
        if (failure != FAILURE_NONE) {
            // Chunks that arrived while the function called service() before it failed.
            enum failure second = run_guarded(run_rest, &arrival);
            guard_propagate_interrupt(second == FAILURE_INTERRUPT ? second : failure);
        }
    } else {
        event_release();
    }
    UNPROTECT(1);
}

// entry points ---------------------------------------------------------------

SEXP ffi_receive_consumed(SEXP receiver, SEXP bytes) {
    rk_body_consumed((uint64_t)ticket_part(receiver, 1), (size_t)Rf_asReal(bytes));
    return R_NilValue;
}

SEXP ffi_receive_fail(SEXP receiver, SEXP condition, SEXP trace) {
    SEXP caught = PROTECT(caught_with(condition, trace));
    fail(receiver, (uint32_t)ticket_part(receiver, 0), (uint64_t)ticket_part(receiver, 1), caught,
        NULL);
    UNPROTECT(1);
    rk_flush();
    return R_NilValue;
}

// Sends a response; returns whether it was valid.
SEXP ffi_receive_respond(SEXP receiver, SEXP value) {
    SEXP req = variable(receiver, syms.req);
    req = req == NULL ? R_NilValue : req;
    bool is_response =
        deferred_respond(variable(receiver, syms.ticket), value, req, "the response");
    return Rf_ScalarLogical(is_response);
}

// Returns whether the request still waits for its response.
SEXP ffi_receive_is_waiting(SEXP receiver) {
    return Rf_ScalarLogical(rk_is_held((uint32_t)ticket_part(receiver, 0),
        (uint64_t)ticket_part(receiver, 1)));
}

// Drops the exchange of a client that has disconnected.
SEXP ffi_receive_drop(SEXP receiver) {
    uint32_t slot = (uint32_t)ticket_part(receiver, 0);
    uint64_t id = (uint64_t)ticket_part(receiver, 1);
    if (rk_is_held(slot, id)) {
        response_send(slot, id);
    }
    return R_NilValue;
}
