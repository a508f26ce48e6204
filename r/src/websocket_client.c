// WebSocket clients: takes their events in callbacks of package later. The R objects are in
// R/websocket-client.R.
#include <string.h>

#include "shim.h"

// The maximum number of events handled in one callback, after which other callbacks of `later` run.
enum { BATCH = 16 };

// Whether an event is being read, whose memory the next event overwrites. Allocating R objects may
// run finalizers of the app, which may run `later`.
static bool is_reading;

// For each event loop, true if its clients have just yielded to server events of this process. They
// do not yield twice in a row.
static bool has_yielded[LATER_LOOPS];

static void client_callback(int loop);

// Makes an event loop take the events of its clients. Called by Rust on the thread of the clients,
// and below. Must not use R.
static void wake(uint32_t loop) {
    later_schedule_in((int)loop, LATER_CLIENTS);
}

// Called when the package is loaded.
void client_init(void) {
    later_init(LATER_CLIENTS, client_callback);
    is_reading = false;
}

// Called in a forked child, in which the parent's clients cannot be used. Must not use R.
void client_forked(void) {
    is_reading = false;
}

struct delivery {
    const struct rk_client_event* event;
    SEXP core;
    uint64_t functions;  // the token of the list of functions to call
};

// Gets the functions to call from R/websocket-client.R. Runs guarded.
static SEXP run_delivery(void* data) {
    static const char* const kinds[] = {"", "open", "message", "close", "error"};
    struct delivery* delivery = data;
    const struct rk_client_event* event = delivery->event;
    struct rk_bytes bytes = event->data;
    // Text that R's strings cannot hold becomes a raw vector.
    bool is_raw =
        event->kind == RK_CLIENT_MESSAGE && (!event->is_text || !fits_string(bytes));
    SEXP value = PROTECT(is_raw ? Rf_allocVector(RAWSXP, (R_xlen_t)bytes.len) : make_string(bytes));
    if (is_raw && bytes.len > 0) {
        memcpy(RAW(value), bytes.start, bytes.len);
    }
    SEXP kind = PROTECT(Rf_mkString(kinds[event->kind]));
    SEXP code = PROTECT(Rf_ScalarInteger(event->code));
    SEXP is_clean = PROTECT(Rf_ScalarLogical(event->is_clean != 0));
    is_reading = false;
    SEXP call = PROTECT(Rf_lang6(Rf_install("client_event"), delivery->core, kind, value, code,
        is_clean));
    SEXP functions = PROTECT(Rf_eval(call, objs.ns));
    delivery->functions = keep(functions);
    UNPROTECT(6);
    return R_NilValue;
}

static SEXP run_function(void* data) {
    SEXP call = PROTECT(Rf_lang1(*(SEXP*)data));
    Rf_eval(call, R_GlobalEnv);
    UNPROTECT(1);
    return R_NilValue;
}

// Returns whether the function was interrupted. Does not jump.
static bool run_guarded(SEXP (*body)(void* data), void* data) {
    struct guard guard = {.body = body, .data = data};
    enum failure failure = guard_run(&guard);
    if (failure != FAILURE_NONE) {
        SEXP caught = PROTECT(guard_caught(&guard));
        log_error("a callback of a WebSocketClient", caught_condition(caught), caught_text(caught));
        UNPROTECT(1);
        guard_propagate_interrupt(failure);
    }
    return failure == FAILURE_INTERRUPT;
}

// Calls all callbacks for an event. An error in one does not keep the others from running. Returns
// whether one was interrupted. Does not jump.
static bool handle_delivery(const struct rk_client_event* event, int loop) {
    SEXP core = PROTECT(kept(event->token));
    if ((event->kind == RK_CLIENT_CLOSED || event->kind == RK_CLIENT_FAILED) && event->token != 0) {
        release(event->token);
        later_loop_release(loop);
    }
    struct delivery delivery = {.event = event, .core = core};
    bool is_interrupted = core != R_NilValue && run_guarded(run_delivery, &delivery);
    is_reading = false;
    SEXP functions = PROTECT(kept(delivery.functions));
    release(delivery.functions);
    for (R_xlen_t i = 0; TYPEOF(functions) == VECSXP && i < XLENGTH(functions); i++) {
        SEXP function = VECTOR_ELT(functions, i);
        is_interrupted |= run_guarded(run_function, &function);
    }
    UNPROTECT(2);
    return is_interrupted;
}

// Lets events of servers go first if there are any. The event of a client may be the consequence of
// an event of a server of this process, which is then the older one although R is woken for it
// later. Returns whether the events of the clients have to wait.
static bool yield(int loop) {
    has_yielded[loop] = !has_yielded[loop] && !rk_is_empty();
    if (has_yielded[loop]) {
        later_schedule();
        wake((uint32_t)loop);
    }
    return has_yielded[loop];
}

// Runs as a callback of `later` in a loop whose clients have events.
static void client_callback(int loop) {
    if (is_reading || yield(loop)) {
        // The callback that reads an event will take the other events.
        return;
    }
    struct rk_client_event event;
    guard_watch_interrupts();
    guard_begin();
    // An interrupt ends this batch only. The event loop handles the interrupt afterwards, and the
    // next call takes further events.
    bool is_interrupted = false;
    for (int i = 0; i < BATCH && !is_interrupted; i++) {
        if (!rk_client_next((uint32_t)loop, &event)) {
            break;
        }
        is_reading = true;
        is_interrupted = handle_delivery(&event, loop);
    }
    guard_end();
    if (rk_client_has_events((uint32_t)loop)) {
        wake((uint32_t)loop);
    }
}

// Handles the last events of clients that ffi_close() has ended.
void client_last_events(void) {
    for (int loop = 0; loop < LATER_LOOPS; loop++) {
        // Each batch takes at least one event.
        while (!is_reading && rk_client_has_events((uint32_t)loop)) {
            client_callback(loop);
        }
    }
}

// entry points ---------------------------------------------------------------

static struct rk_bytes* all_bytes(SEXP strings) {
    struct rk_bytes* all = (struct rk_bytes*)R_alloc((size_t)XLENGTH(strings) + 1,
        sizeof(struct rk_bytes));
    for (R_xlen_t i = 0; i < XLENGTH(strings); i++) {
        all[i] = bytes_of_char(STRING_ELT(strings, i));
    }
    return all;
}

// Returns NULL, or an error message for an invalid URL.
SEXP ffi_client_check(SEXP url) {
    return rk_client_check(bytes_of_char(STRING_ELT(url, 0))) == RK_OK ? R_NilValue
        : last_error();
}

// Starts a client. `setup` is list(url, ca, protocols, headers, numbers), with strings in UTF-8 and
// alternating header names and values. Returns the handle, or an error message.
SEXP ffi_client_open(SEXP core, SEXP setup) {
    SEXP protocols = VECTOR_ELT(setup, 2);
    SEXP headers = VECTOR_ELT(setup, 3);
    const double* numbers = REAL(VECTOR_ELT(setup, 4));
    struct rk_client_setup how = {
        .url = bytes_of_char(STRING_ELT(VECTOR_ELT(setup, 0), 0)),
        .ca = bytes_of_char(STRING_ELT(VECTOR_ELT(setup, 1), 0)),
        .protocols = all_bytes(protocols),
        .protocol_count = (size_t)XLENGTH(protocols),
        .headers = all_bytes(headers),
        .header_count = (size_t)XLENGTH(headers) / 2,
        .message = numbers[0],
        .queue = numbers[1],
        .connect_time = numbers[2],
        .close_time = numbers[3],
        .ping_time = numbers[4],
        .pong_time = numbers[5],
        .compresses = numbers[6] != 0,
    };
    SEXP loop = variable(core, syms.loop);
    how.group = (uint32_t)later_loop_use(loop == NULL ? 0 : Rf_asInteger(loop));
    // Remembers the loop for ffi_client_abandon().
    Rf_defineVar(syms.loop_place, PROTECT(Rf_ScalarInteger((int)how.group)), core);
    UNPROTECT(1);
    uint64_t id = 0;
    uint64_t token = keep(core);
    if (rk_client_open(&how, wake, token, &id) != RK_OK) {
        release(token);
        later_loop_release((int)how.group);
        return last_error();
    }
    return handle_new(id);
}

static uint64_t client_id(SEXP handle) {
    double id = handle_id(handle, "WebSocketClient", "message");
    return id < 0 ? 0 : (uint64_t)id;
}

// Returns TRUE if the message was queued, FALSE if the queue is full, and NULL if the connection
// has ended.
SEXP ffi_client_send(SEXP handle, SEXP message) {
    uint64_t id = client_id(handle);
    bool is_text = TYPEOF(message) == STRSXP;
    const char* start = is_text ? Rf_translateCharUTF8(STRING_ELT(message, 0))
        : (const char*)RAW(message);
    size_t len = is_text ? strlen(start) : (size_t)XLENGTH(message);
    switch (rk_client_send(id, is_text, start, len)) {
    case RK_CLIENT_SENT:
        return Rf_ScalarLogical(TRUE);
    case RK_CLIENT_FULL:
        return Rf_ScalarLogical(FALSE);
    default:
        return R_NilValue;
    }
}

// Returns package later's id of the current loop.
SEXP ffi_client_loop(void) {
    return Rf_ScalarInteger(later_current());
}

SEXP ffi_client_close(SEXP handle, SEXP code, SEXP reason) {
    const char* text = Rf_translateCharUTF8(STRING_ELT(reason, 0));
    rk_client_close(client_id(handle), Rf_asInteger(code), text, strlen(text));
    return R_NilValue;
}

// Closes a client whose R object was collected. A client of another process is not closed.
SEXP ffi_client_abandon(SEXP handle) {
    double id = handle_id_here(handle);
    uint64_t token = id < 0 ? 0 : rk_client_abandon((uint64_t)id);
    if (token != 0) {
        SEXP place = variable(kept(token), syms.loop_place);
        later_loop_release(place == NULL ? 0 : Rf_asInteger(place));
        release(token);
    }
    return R_NilValue;
}

SEXP ffi_client_queued_bytes(SEXP handle) {
    return Rf_ScalarReal((double)rk_client_queued_bytes(client_id(handle)));
}
