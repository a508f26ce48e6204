// Responses that are written outside of the event of their request: those of promises, and of
// receive_body(). A ticket names the request to R code until then.
#include "shim.h"

// Returns a ticket, which names a request to R code.
SEXP ticket_new(uint32_t slot, uint64_t id) {
    SEXP ticket = Rf_allocVector(REALSXP, 3);
    REAL(ticket)[0] = (double)slot;
    REAL(ticket)[1] = (double)id;
    REAL(ticket)[2] = event_start();
    return ticket;
}

struct writing {
    uint32_t slot;
    uint64_t id;
    SEXP value;
    const char* problem;
    struct written written;
};

static SEXP run_write(void* data) {
    struct writing* writing = data;
    writing->problem = response_write(writing->slot, writing->id, writing->value,
        &writing->written);
    return R_NilValue;
}

static void respond_with_error(SEXP ticket, SEXP req, SEXP caught, const char* text,
    const char* stage, const char* label) {
    char route[ROUTE_MAX];
    struct error_report report = {
        .slot = (uint32_t)REAL(ticket)[0],
        .id = (uint64_t)REAL(ticket)[1],
        .stage = stage,
        .label = label,
        .route = route,
        .req = req,
        .began = REAL(ticket)[2],
        .is_answerable = true,
    };
    report.listener = rk_listener_of(report.slot, report.id);
    rk_route(report.slot, report.id, route, sizeof route);
    error_report_respond(&report, caught, text);
}

// Responds to a request outside of its event. Returns whether the value was a response.
bool deferred_respond(SEXP ticket, SEXP value, SEXP req, const char* label) {
    struct writing writing = {
        .slot = (uint32_t)REAL(ticket)[0], .id = (uint64_t)REAL(ticket)[1], .value = value};
    if (!rk_is_held(writing.slot, writing.id)) {
        return true;
    }
    struct guard guard = {.body = run_write, .data = &writing};
    guard_begin();
    enum failure failure = guard_run(&guard);
    guard_end();
    SEXP caught = PROTECT(guard_caught(&guard));
    bool is_response = failure == FAILURE_NONE && writing.problem == NULL;
    if (is_response) {
        error_report_note_500(writing.slot, writing.id, writing.written.status);
        response_send(writing.slot, writing.id);
        stream_start(writing.written.stream);
    } else {
        const char* text = writing.problem == NULL ? caught_text(caught) : writing.problem;
        respond_with_error(ticket, req, caught, text, "response", label);
    }
    UNPROTECT(1);
    rk_flush();
    return is_response;
}

// Sends the value of a promise as the response. Called by respond_later() in R/app-wrapper.R.
SEXP ffi_respond(SEXP ticket, SEXP value, SEXP req) {
    deferred_respond(ticket, value, req, "the response of a promise");
    return R_NilValue;
}

// Responds with an error, because the promise of a response was rejected.
SEXP ffi_reject(SEXP ticket, SEXP condition, SEXP req) {
    if (rk_is_held((uint32_t)REAL(ticket)[0], (uint64_t)REAL(ticket)[1])) {
        SEXP caught = PROTECT(caught_of(condition));
        respond_with_error(ticket, req, caught, NULL, "promise", "a promise");
        UNPROTECT(1);
        rk_flush();
    }
    return R_NilValue;
}
