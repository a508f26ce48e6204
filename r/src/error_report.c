// Error reports: onError, the message on stderr, and the response to the client. See
// R/error-report.R.
#include <string.h>

#include "shim.h"

enum { REQUEST_ID_MAX = 128 };

static SEXP text_or_null(const char* text) {
    return text == NULL ? R_NilValue : Rf_ScalarString(Rf_mkCharCE(text, CE_UTF8));
}

static SEXP request_id(const struct error_report* report) {
    if (report->request_id != NULL && report->request_id != R_NilValue) {
        return report->request_id;
    }
    char text[REQUEST_ID_MAX + 1];
    rk_request_id(report->slot, report->id, text, sizeof text);
    return Rf_mkString(text);
}

// Returns the report as a list for R/error-report.R.
static SEXP error_report_list(const struct error_report* report, SEXP caught, const char* text) {
    const char* names[] = {"app",     "detail", "stage", "label", "route",   "request_id",
        "condition",
                           "text",    "trace",  "req",   "seconds", "is_answerable", "format", ""};
    static const char* const formats[] = {"text", "json", "page"};
    struct app_facts facts = app_facts(report->listener);
    bool failed;
    // A finalizer may stop the server, which releases the app.
    PROTECT(facts.app);
    SEXP list = PROTECT(Rf_mkNamed(VECSXP, names));
    SET_VECTOR_ELT(list, 0, facts.app);
    SET_VECTOR_ELT(list, 1, Rf_mkString(facts.detail));
    SET_VECTOR_ELT(list, 2, Rf_mkString(report->stage));
    SET_VECTOR_ELT(list, 3, Rf_mkString(report->label));
    SET_VECTOR_ELT(list, 4, text_or_null(report->route == NULL ? "" : report->route));
    SET_VECTOR_ELT(list, 5, request_id(report));
    SET_VECTOR_ELT(list, 6, caught_condition(caught));
    SET_VECTOR_ELT(list, 7, text_or_null(text));
    SET_VECTOR_ELT(list, 8, caught_trace(caught));
    SET_VECTOR_ELT(list, 9, report->req == NULL ? R_NilValue : report->req);
    double seconds = report->began > 0 ? monotonic_seconds() - report->began : NA_REAL;
    SET_VECTOR_ELT(list, 10, Rf_ScalarReal(seconds));
    SET_VECTOR_ELT(list, 11, Rf_ScalarLogical(report->is_answerable));
    SET_VECTOR_ELT(list, 12, Rf_mkString(formats[rk_error_format(report->slot, report->id)]));
    SEXP call = PROTECT(Rf_lang2(objs.complete_error_report, list));
    SEXP complete = call_quietly(call, &failed);
    UNPROTECT(3);
    return failed ? list : complete;
}

struct on_error_call {
    SEXP list;
    SEXP response;  // a list of length one
};

static SEXP run_on_error(void* data) {
    struct on_error_call* on_error = data;
    SEXP call = PROTECT(Rf_lang2(objs.call_on_error, on_error->list));
    SET_VECTOR_ELT(on_error->response, 0, Rf_eval(call, R_BaseEnv));
    UNPROTECT(1);
    return R_NilValue;
}

// Returns the response of the app's onError, or R_NilValue if onError returned none; not protected.
// Jumps out of onError end here; this function does not jump.
static SEXP call_on_error(SEXP list, enum failure* failure) {
    struct on_error_call on_error = {list, PROTECT(Rf_allocVector(VECSXP, 1))};
    struct guard guard = {.body = run_on_error, .data = &on_error};
    guard_begin();
    *failure = guard_run(&guard);
    guard_end();
    if (*failure != FAILURE_NONE) {
        SEXP why = PROTECT(guard_caught(&guard));
        log_error("onError", caught_condition(why), caught_text(why));
        UNPROTECT(1);
    }
    UNPROTECT(1);
    return VECTOR_ELT(on_error.response, 0);
}

// Returns the default error response, or R_NilValue if it could not be made; not protected.
static SEXP default_response(SEXP list) {
    bool failed;
    SEXP call = PROTECT(Rf_lang2(objs.error_response, list));
    SEXP response = call_quietly(call, &failed);
    UNPROTECT(1);
    return failed ? R_NilValue : response;
}

// Reports an error to the app's onError and on stderr. Returns the response of onError, not
// protected.
static SEXP report_error(const struct error_report* report, SEXP list, const char* text,
    enum failure* failure) {
    bool failed;
    SEXP response = PROTECT(call_on_error(list, failure));
    SEXP call = PROTECT(Rf_lang2(objs.write_error_report, list));
    call_quietly(call, &failed);
    if (failed) {
        bool has_route = report->route != NULL && report->route[0] != '\0';
        REprintf(
            has_route ? "rookery: %s (%s): %s\n" : "rookery: %s%s: %s\n",
            has_route ? report->route : "", report->label,
            text == NULL ? "an error whose message could not be shown" : text);
    }
    UNPROTECT(2);
    return response;
}

// Reports an error to the app's onError and on stderr. Returns the response to send, or R_NilValue
// if the client cannot get a response or none could be made. Jumps only when memory runs out.
SEXP error_report_emit(const struct error_report* report, SEXP caught, const char* text) {
    SEXP list = PROTECT(error_report_list(report, caught, text));
    enum failure failure;
    SEXP response = PROTECT(report_error(report, list, text, &failure));
    if (response == R_NilValue && report->is_answerable) {
        response = default_response(list);
    }
    PROTECT(response);
    guard_propagate_interrupt(failure);
    UNPROTECT(3);
    return report->is_answerable ? response : R_NilValue;
}

struct response_attempt {
    const struct error_report* report;
    SEXP response;
    const char* problem;
    struct written* written;
};

static SEXP run_response_write(void* data) {
    struct response_attempt* attempt = data;
    const struct error_report* report = attempt->report;
    attempt->problem = response_write(report->slot, report->id, attempt->response,
        attempt->written);
    return R_NilValue;
}

// Writes a response; returns whether that was possible. If a response of onError cannot be written,
// this is logged. Does not jump.
static bool try_response(const struct error_report* report, SEXP response, bool is_apps,
    struct written* written) {
    struct response_attempt attempt = {
        .report = report, .response = response, .written = written};
    struct guard guard = {.body = run_response_write, .data = &attempt};
    guard_begin();
    bool is_written = guard_run(&guard) == FAILURE_NONE && attempt.problem == NULL;
    guard_end();
    SEXP why = PROTECT(guard_caught(&guard));
    if (is_written && written->lacks_file) {
        // The missing file was logged before, and the default response says more than the page for
        // missing files.
        UNPROTECT(1);
        return false;
    }
    if (!is_written && is_apps) {
        log_error("the response of onError", caught_condition(why), attempt.problem);
    }
    UNPROTECT(1);
    return is_written;
}

// Reports an error, and responds with the response of onError or with status 500.
void error_report_respond(const struct error_report* report, SEXP caught, const char* text) {
    SEXP list = PROTECT(error_report_list(report, caught, text));
    enum failure failure;
    struct written written = {0};
    SEXP response = PROTECT(report_error(report, list, text, &failure));
    bool is_written = response != R_NilValue && try_response(report, response, true, &written);
    if (!is_written) {
        response = PROTECT(default_response(list));
        is_written = response != R_NilValue && try_response(report, response, false, &written);
        UNPROTECT(1);
    }
    if (!is_written) {
        const char* page = app_facts(report->listener).is_httpuv ? "An exception occurred."
            : "500 Internal Server Error\n";
        response_text(report->slot, report->id, 500, "text/plain; charset=UTF-8", page,
            strlen(page));
    }
    rk_response_mark_failed(report->slot, report->id);
    response_send(report->slot, report->id);
    stream_start(is_written ? written.stream : 0);
    guard_propagate_interrupt(failure);
    UNPROTECT(2);
}

// Logs a response with status 500 that the app made itself, with the request id that the client may
// know. Jumps only when memory runs out.
void error_report_note_500(uint32_t slot, uint64_t id, int status) {
    if (status != 500 || app_facts(rk_listener_of(slot, id)).is_httpuv) {
        return;
    }
    bool failed;
    char route[ROUTE_MAX] = "";
    struct error_report report = {.slot = slot, .id = id};
    rk_route(slot, id, route, sizeof route);
    SEXP route_r = PROTECT(text_or_null(route));
    SEXP id_r = PROTECT(request_id(&report));
    SEXP call = PROTECT(Rf_lang3(objs.note_app_500, route_r, id_r));
    call_quietly(call, &failed);
    UNPROTECT(3);
}
