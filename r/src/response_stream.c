// Streamed responses after their start: requests chunks from sources, sends them, and runs
// callbacks at the end. The R objects are in R/response-stream.R.
#include <stdio.h>
#include <string.h>

#include "shim.h"

// Chunks of this length or longer are lent to Rust until they are sent; shorter ones are copied
// (rookery-exchange).
enum { LEND_BYTES = 64 * 1024 };

// The sources whose pull function is running, each in the stack frame of the call.
struct pulling {
    uint64_t id;
    const char* reason;  // how the stream has ended meanwhile; NULL: it has not
    struct pulling* outer;
};

static struct pulling* pulling;

static double stream_id(SEXP source) {
    return handle_id(stream_field(source, syms.handle), "stream", "chunk");
}

// Concatenates strings in UTF-8.
static SEXP joined(SEXP strings) {
    const void* before = vmaxget();
    size_t len = 0;
    for (R_xlen_t i = 0; i < XLENGTH(strings); i++) {
        len += strlen(Rf_translateCharUTF8(STRING_ELT(strings, i)));
        vmaxset(before);
    }
    SEXP bytes = PROTECT(Rf_allocVector(RAWSXP, (R_xlen_t)len));
    char* out = (char*)RAW(bytes);
    for (R_xlen_t i = 0; i < XLENGTH(strings); i++) {
        const char* text = Rf_translateCharUTF8(STRING_ELT(strings, i));
        size_t part = strlen(text);
        memcpy(out, text, part);
        out += part;
        vmaxset(before);
    }
    UNPROTECT(1);
    return bytes;
}

static bool has_na(SEXP strings) {
    for (R_xlen_t i = 0; i < XLENGTH(strings); i++) {
        if (STRING_ELT(strings, i) == NA_STRING) {
            return true;
        }
    }
    return false;
}

static enum rk_write write_bytes(uint64_t id, SEXP owner, const void* start, size_t len,
    bool may_go_on) {
    if (len < LEND_BYTES) {
        return (enum rk_write)rk_stream_write(id, start, len, may_go_on);
    }
    release_returned();
    uint64_t token = keep(owner);
    enum rk_write status = (enum rk_write)rk_stream_lend(id, start, len, token, may_go_on);
    if (status != RK_WRITE_MORE && status != RK_WRITE_FULL) {
        release(token);
    }
    return status;
}

// Writes a chunk. With `may_go_on` the source may be pulled again at once. Raises an error for an
// invalid chunk, except for one that is too long.
static enum rk_write write_chunk(uint64_t id, SEXP chunk, bool may_go_on) {
    enum rk_write status = RK_WRITE_CLOSED;
    if (TYPEOF(chunk) == RAWSXP) {
        status = write_bytes(id, chunk, RAW(chunk), (size_t)XLENGTH(chunk), may_go_on);
    } else if (TYPEOF(chunk) == STRSXP && !has_na(chunk)) {
        SEXP only = XLENGTH(chunk) == 1 ? STRING_ELT(chunk, 0) : R_NilValue;
        const char* text = only == R_NilValue ? NULL : Rf_translateCharUTF8(only);
        if (text != NULL && text == CHAR(only)) {
            status = write_bytes(id, only, text, (size_t)LENGTH(only), may_go_on);
        } else {
            SEXP bytes = PROTECT(joined(chunk));
            status = write_bytes(id, bytes, RAW(bytes), (size_t)XLENGTH(bytes), may_go_on);
            UNPROTECT(1);
        }
    } else {
        abort_with(
            "rookery_bad_stream",
            "a chunk of a stream must be a raw vector or strings without NA, or NULL at its end, "
            "not an object of type %s",
            TYPEOF(chunk) == STRSXP ? "character with NA" : Rf_type2char(TYPEOF(chunk)));
    }
    return status;
}

// Writes a chunk, and also raises an error if it is too long.
static enum rk_write write_or_abort(uint64_t id, SEXP chunk, bool may_go_on) {
    enum rk_write status = write_chunk(id, chunk, may_go_on);
    if (status == RK_WRITE_TOO_LONG) {
        abort_with("rookery_bad_stream",
            "the stream has more bytes than the response's Content-Length");
    }
    return status;
}

static void mark_spent(SEXP source) {
    Rf_defineVar(syms.is_spent, Rf_ScalarLogical(TRUE), source);
}

static struct error_report error_report_of(SEXP source, uint64_t id, const char* label) {
    SEXP route = stream_field(source, syms.route);
    SEXP origin = stream_field(source, syms.origin);
    bool has_origin = TYPEOF(origin) == REALSXP && XLENGTH(origin) == 2;
    return (struct error_report){
        .listener = has_origin ? (uint32_t)REAL(origin)[0] : 0,
        .id = id,
        .stage = "stream",
        .label = label,
        .route = TYPEOF(route) == STRSXP ? CHAR(STRING_ELT(route, 0)) : "",
        .request_id = stream_field(source, syms.request_id),
        .began = has_origin ? REAL(origin)[1] : 0,
    };
}

// Aborts a stream that cannot be completed, and reports the error to the app, on stderr, and to the
// client if the head has not been sent.
static void fail(SEXP source, uint64_t id, SEXP caught, const char* text) {
    struct error_report report = error_report_of(source, id, "the stream");
    report.is_answerable = true;
    SEXP response = PROTECT(error_report_emit(&report, caught, text));
    // The status was sent or is already set, so only the text of onError's response is used.
    SEXP body = TYPEOF(response) == VECSXP ? list_element(response, syms.body) : R_NilValue;
    if (TYPEOF(body) == STRSXP && XLENGTH(body) == 1) {
        const void* before = vmaxget();
        SEXP string = STRING_ELT(body, 0);
        // Rf_translateCharUTF8() raises an error for text marked as bytes, which nothing would
        // catch here.
        const char* page = Rf_getCharCE(string) == CE_LATIN1 ? Rf_translateCharUTF8(string)
            : CHAR(string);
        rk_stream_abort(id, page, strlen(page));
        vmaxset(before);
    } else {
        rk_stream_abort(id, "", 0);
    }
    UNPROTECT(1);
}

// Uses the value of a source: a chunk, or the end of the stream.
static void take(SEXP source, uint64_t id, SEXP value, bool may_go_on) {
    bool is_end = value == R_NilValue || (TYPEOF(value) == SYMSXP && value == syms.exhausted);
    if (!is_end) {
        SEXP map = stream_field(source, syms.map);
        if (map != R_NilValue) {
            SEXP call = PROTECT(Rf_lang2(map, value));
            value = Rf_eval(call, R_GlobalEnv);
            UNPROTECT(1);
        }
        write_or_abort(id, PROTECT(value), may_go_on);
        UNPROTECT(1);
        return;
    }
    mark_spent(source);
    uint64_t missing = rk_stream_finish(id);
    if (missing > 0) {
        abort_with(
            "rookery_bad_stream",
            "the stream has %.0f bytes less than the response's Content-Length", (double)missing);
    }
}

struct pull {
    SEXP source;
    uint64_t id;
    SEXP value;      // the value of a promise; NULL: pull the source
    bool has_given;  // the source has returned a value
};

static SEXP run_pull(void* data) {
    struct pull* pull = data;
    SEXP value = pull->value;
    if (value == NULL) {
        SEXP call = PROTECT(Rf_lang1(stream_field(pull->source, syms.pull)));
        value = Rf_eval(call, R_GlobalEnv);
        UNPROTECT(1);
    }
    pull->has_given = true;
    PROTECT(value);
    SEXP promise = pull->value == NULL ? as_promise(value) : NULL;
    if (promise != NULL) {
        PROTECT(promise);
        SEXP fulfilled = promise_value(promise);
        if (fulfilled == NULL) {
            SEXP call = PROTECT(Rf_lang3(objs.await_chunk, promise, pull->source));
            Rf_eval(call, R_BaseEnv);
            UNPROTECT(3);
            later_expect();
            return R_NilValue;
        }
        UNPROTECT(2);
        value = PROTECT(fulfilled);
    }
    // After a promise the source is not pulled at once, because this may not run in the event loop.
    take(pull->source, pull->id, value, pull->value == NULL);
    UNPROTECT(1);
    return R_NilValue;
}

static void run_guarded_pull(struct pull* pull) {
    struct guard guard = {.body = run_pull, .data = pull};
    enum failure failure = guard_run(&guard);
    if (failure == FAILURE_NONE) {
        return;
    }
    SEXP caught = PROTECT(guard_caught(&guard));
    if (!pull->has_given) {
        // A source that has raised an error is not called with `close = TRUE`.
        mark_spent(pull->source);
    }
    fail(pull->source, pull->id, caught, caught_text(caught));
    UNPROTECT(1);
    guard_propagate_interrupt(failure);
}

static SEXP run_call(void* data) {
    SEXP* function = data;
    SEXP call = PROTECT(Rf_lang1(*function));
    SEXP value = Rf_eval(call, R_GlobalEnv);
    UNPROTECT(1);
    return value;
}

// Calls functions without arguments. An error in one does not keep the others from running.
static void run_each(SEXP functions, SEXP source, uint64_t id, const char* label) {
    PROTECT(functions);
    for (R_xlen_t i = 0; TYPEOF(functions) == VECSXP && i < XLENGTH(functions); i++) {
        SEXP function = VECTOR_ELT(functions, i);
        struct guard guard = {.body = run_call, .data = &function};
        enum failure failure = guard_run(&guard);
        if (failure != FAILURE_NONE) {
            struct error_report report = error_report_of(source, id, label);
            SEXP caught = PROTECT(guard_caught(&guard));
            error_report_emit(&report, caught, caught_text(caught));
            UNPROTECT(1);
            guard_propagate_interrupt(failure);
        }
    }
    UNPROTECT(1);
}

// Calls the functions that R/response-stream.R returns for the end of a stream, or for capacity.
static void run_callbacks(SEXP what, SEXP source, uint64_t id, const char* reason,
    const char* label) {
    bool failed;
    SEXP reason_r = PROTECT(reason == NULL ? R_NilValue : Rf_mkString(reason));
    SEXP call = PROTECT(reason == NULL ? Rf_lang2(what, source) : Rf_lang3(what, source, reason_r));
    SEXP functions = PROTECT(call_quietly(call, &failed));
    run_each(functions, source, id, label);
    UNPROTECT(3);
}

static void on_stream_end(SEXP source, const struct rk_event* event) {
    const char* reason = stream_end_name(event->code);
    SEXP lost = stream_field(source, syms.lost);
    if (TYPEOF(lost) == STRSXP) {
        // R has collected the stream's object. This is reported here and not in the finalizer,
        // because onError must run in the event loop.
        struct error_report report = error_report_of(source, event->id, "the stream");
        error_report_emit(&report, R_NilValue, CHAR(STRING_ELT(lost, 0)));
    }
    for (struct pulling* each = pulling; each != NULL; each = each->outer) {
        if (each->id == event->id) {
            // The source is running; its callbacks are called when it has returned.
            each->reason = reason;
            return;
        }
    }
    run_callbacks(objs.on_stream_end, source, event->id, reason, "a stream's end");
}

static void on_pull(SEXP source, const struct rk_event* event) {
    struct pull pull = {.source = source, .id = event->id};
    struct pulling frame = {.id = event->id, .outer = pulling};
    pulling = &frame;
    // Does not jump.
    run_guarded_pull(&pull);
    pulling = frame.outer;
    if (frame.reason != NULL) {
        run_callbacks(objs.on_stream_end, source, event->id, frame.reason, "a stream's end");
    }
}

void on_stream_event(const struct rk_event* event) {
    event_release();
    SEXP source = PROTECT(kept(event->token));
    if (event->kind == RK_STREAM_ENDED) {
        release(event->token);
    }
    if (source != R_NilValue) {
        switch (event->kind) {
        case RK_STREAM_PULL:
            on_pull(source, event);
            break;
        case RK_STREAM_DRAINED:
            run_callbacks(objs.on_stream_drained, source, event->id, NULL, "a stream's on_drain");
            break;
        default:
            on_stream_end(source, event);
            break;
        }
    }
    UNPROTECT(1);
}

// entry points ---------------------------------------------------------------

// Writes the value of a promised chunk, see await_chunk() in R/response-stream.R. This function and
// the next one do not raise errors, and do nothing in a fork.
SEXP ffi_stream_on_fulfilled(SEXP source, SEXP value) {
    double id = handle_id_here(stream_field(source, syms.handle));
    if (id >= 0 && rk_stream_queued_bytes((uint64_t)id) >= 0) {
        struct pull pull = {.source = source, .id = (uint64_t)id, .value = value};
        guard_begin();
        run_guarded_pull(&pull);
        guard_end();
        rk_flush();
    }
    return R_NilValue;
}

// Fails a stream whose promise was rejected.
SEXP ffi_stream_fail(SEXP source, SEXP condition) {
    double id = handle_id_here(stream_field(source, syms.handle));
    if (id >= 0 && rk_stream_queued_bytes((uint64_t)id) >= 0) {
        mark_spent(source);
        SEXP caught = PROTECT(caught_of(condition));
        fail(source, (uint64_t)id, caught, NULL);
        UNPROTECT(1);
        rk_flush();
    }
    return R_NilValue;
}

// Aborts a stream whose R object was collected. The error `text` is reported later, with the end of
// the stream, because a finalizer may run within any R code and must not call functions of the app.
SEXP ffi_stream_on_collected(SEXP source, SEXP text) {
    double id = handle_id_here(stream_field(source, syms.handle));
    if (id >= 0 && rk_stream_queued_bytes((uint64_t)id) >= 0) {
        char page[256] = "500 Internal Server Error\n";
        SEXP request_id = stream_field(source, syms.request_id);
        SEXP origin = stream_field(source, syms.origin);
        if (TYPEOF(origin) == REALSXP && app_facts((uint32_t)REAL(origin)[0]).is_httpuv) {
            snprintf(page, sizeof page, "An exception occurred.");
        } else if (TYPEOF(request_id) == STRSXP) {
            snprintf(page, sizeof page, "500 Internal Server Error\nRequest %s\n",
                CHAR(STRING_ELT(request_id, 0)));
        }
        mark_spent(source);
        Rf_defineVar(syms.lost, text, source);
        rk_stream_abort((uint64_t)id, page, strlen(page));
        rk_flush();
    }
    return R_NilValue;
}

static SEXP as_flag(enum rk_write status) {
    return Rf_ScalarLogical(status == RK_WRITE_MORE);
}

// Writes a chunk. Returns TRUE if more may be written at once, FALSE if the queue is full or the
// stream has ended.
SEXP ffi_stream_write(SEXP source, SEXP chunk) {
    double id = stream_id(source);
    if (id < 0) {
        return Rf_ScalarLogical(FALSE);
    }
    return as_flag(write_or_abort((uint64_t)id, chunk, false));
}

// Writes a chunk in the most frequent case: one string or a raw vector, for an open stream whose
// response was sent. Returns NULL in all other cases, which R/response-stream.R handles.
SEXP ffi_stream_write_fast(SEXP source, SEXP chunk) {
    double id = handle_id_here(stream_field(source, syms.handle));
    // Text marked as bytes raises an error, whose message R/response-stream.R has.
    bool is_text = TYPEOF(chunk) == STRSXP && XLENGTH(chunk) == 1 &&
        STRING_ELT(chunk, 0) != NA_STRING &&
                   Rf_getCharCE(STRING_ELT(chunk, 0)) != CE_BYTES;
    bool has_bytes = is_text ? LENGTH(STRING_ELT(chunk, 0)) > 0
        : TYPEOF(chunk) == RAWSXP && XLENGTH(chunk) > 0;
    if (id < 0 || !has_bytes || Rf_asLogical(stream_field(source, syms.is_ended)) == TRUE) {
        return R_NilValue;
    }
    enum rk_write status = write_chunk((uint64_t)id, chunk, false);
    return status == RK_WRITE_TOO_LONG ? R_NilValue : as_flag(status);
}

// Sends the head ("head"), ends the stream ("end") or aborts it ("cut"). Returns the number of
// bytes missing from its Content-Length; if it is not 0, the stream was not ended.
SEXP ffi_stream_command(SEXP source, SEXP what) {
    double id = stream_id(source);
    uint64_t missing = 0;
    if (id >= 0) {
        switch (CHAR(STRING_ELT(what, 0))[0]) {
        case 'h':
            rk_stream_send_head((uint64_t)id);
            break;
        case 'e':
            missing = rk_stream_finish((uint64_t)id);
            break;
        default:
            rk_stream_abort((uint64_t)id, "", 0);
            break;
        }
        rk_flush();
    }
    return Rf_ScalarReal((double)missing);
}

// Returns the number of queued bytes, NA after the end; and the numbers of bytes and chunks that
// were written.
SEXP ffi_stream_state(SEXP source) {
    double id = stream_id(source);
    int64_t waiting = id < 0 ? -1 : rk_stream_queued_bytes((uint64_t)id);
    SEXP state = Rf_allocVector(REALSXP, 3);
    REAL(state)[0] = waiting < 0 ? NA_REAL : (double)waiting;
    REAL(state)[1] = id < 0 ? 0 : (double)rk_stream_written_bytes((uint64_t)id);
    REAL(state)[2] = id < 0 ? 0 : (double)rk_stream_written_chunks((uint64_t)id);
    return state;
}
