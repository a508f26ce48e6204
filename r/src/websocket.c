// WebSockets: accepting them, their messages, and the callbacks of their R objects.
#include <stdio.h>
#include <string.h>

#include "shim.h"

// Begins the response that accepts an opening handshake. Returns NULL, or an error message.
// `accepted` is the value of accept_ws(), or R_NilValue; `rules` is list(protocols, compression) of
// the app. `*protocol` is set to the chosen subprotocol, not protected. Runs guarded.
const char* websocket_accept(const struct rk_event* event, SEXP accepted, SEXP rules,
    SEXP* protocol) {
    SEXP headers = R_NilValue;
    SEXP protocols = VECTOR_ELT(rules, 0);
    // Level, threshold in bytes, and whether to use context takeover.
    const double* how = REAL(VECTOR_ELT(rules, 1));
    struct rk_ws_compression compression = {(int32_t)how[0], how[2] != 0, (uint64_t)how[1]};
    if (accepted != R_NilValue) {
        SEXP own = list_element(accepted, syms.protocol);
        protocols = own == R_NilValue ? protocols : own;
        headers = list_element(accepted, syms.response_headers);
    }
    size_t count = TYPEOF(protocols) == STRSXP ? (size_t)XLENGTH(protocols) : 0;
    struct rk_bytes* names = (struct rk_bytes*)R_alloc(count + 1, sizeof(struct rk_bytes));
    for (size_t i = 0; i < count; i++) {
        SEXP name = STRING_ELT(protocols, (R_xlen_t)i);
        names[i] = (struct rk_bytes){CHAR(name), (size_t)LENGTH(name)};
    }
    struct rk_bytes chosen;
    if (rk_ws_accept(event->slot, event->id, names, count, compression, &chosen) != RK_OK) {
        return "no handshake is waiting for a response, or the subprotocol is invalid";
    }
    const char* problem = response_headers(event->slot, event->id, headers);
    if (problem != NULL) {
        rk_ws_unbind(event->id);
        return problem;
    }
    *protocol = chosen.len == 0 ? objs.empty_string : make_string(chosen);
    return NULL;
}

// Makes the R object of a WebSocket, and calls onWSOpen. Runs guarded.
void websocket_open(const struct rk_event* event, SEXP app, SEXP req, SEXP protocol) {
    PROTECT(protocol);
    SEXP handle = PROTECT(handle_new(event->id));
    SEXP ws = PROTECT(websocket_object(handle, req, protocol));
    rk_ws_bind(event->id, keep(ws));
    SEXP function = PROTECT(app_field(app, syms.on_ws_open));
    if (function == R_NilValue) {
        abort_with("rookery_bad_app", "the app has no `onWSOpen`");
    }
    SEXP call = PROTECT(Rf_lang2(function, ws));
    Rf_eval(call, R_GlobalEnv);
    UNPROTECT(5);
}

// Reports an error in a callback of a WebSocket.
static void report_callback_error(const struct rk_event* event, SEXP ws, struct guard* guard,
    const char* stage, const char* label) {
    SEXP req = TYPEOF(ws) == ENVSXP ? variable(ws, syms.request) : NULL;
    struct error_report report = {.listener = event->listener, .id = event->id, .stage = stage,
        .label = label, .req = req};
    SEXP caught = PROTECT(guard_caught(guard));
    error_report_emit(&report, caught, caught_text(caught));
    UNPROTECT(1);
}

struct delivery {
    const struct rk_event* event;
    SEXP ws;
    SEXP callbacks;
    SEXP binary;
    SEXP message;
    R_xlen_t next;
    uint64_t span;  // for otel_end(); 0: none
};

static SEXP callbacks_of(SEXP ws, SEXP name) {
    if (TYPEOF(ws) != ENVSXP) {
        return R_NilValue;
    }
    // The operator `$` would search for a method for each class of the object.
    SEXP value = variable(ws, name);
    return value == NULL ? R_NilValue : value;
}

static SEXP run_message(void* data) {
    struct delivery* delivery = data;
    for (; delivery->next < XLENGTH(delivery->callbacks); delivery->next++) {
        SEXP function = VECTOR_ELT(delivery->callbacks, delivery->next);
        SEXP call = PROTECT(Rf_lang3(function, delivery->binary, delivery->message));
        profile_call(call, "WEBSOCKET:message");
        UNPROTECT(1);
    }
    return R_NilValue;
}

// Converts the message to an R object. Text that R's strings cannot hold, because it has a NUL or
// 2 GiB, becomes a raw vector.
static SEXP run_decode(void* data) {
    struct delivery* delivery = data;
    struct rk_bytes bytes = delivery->event->data;
    bool is_text = delivery->event->is_text && fits_string(bytes);
    SEXP message = PROTECT(is_text ? make_string(bytes)
        : Rf_allocVector(RAWSXP, (R_xlen_t)bytes.len));
    if (!is_text && bytes.len > 0) {
        memcpy(RAW(message), bytes.start, bytes.len);
    }
    delivery->binary = Rf_ScalarLogical(!is_text);
    delivery->message = message;
    event_release();
    delivery->span = otel_begin_message(delivery->event->span);
    SEXP callbacks = PROTECT(callbacks_of(delivery->ws, syms.message_callbacks));
    delivery->callbacks = callbacks;
    SEXP value = TYPEOF(callbacks) == VECSXP ? run_message(delivery) : R_NilValue;
    UNPROTECT(2);
    return value;
}

void on_message(const struct rk_event* event) {
    SEXP ws = PROTECT(kept(event->token));
    if (ws == R_NilValue) {
        UNPROTECT(1);
        return;
    }
    struct delivery delivery = {.event = event, .ws = ws};
    struct guard guard = {.body = run_decode, .data = &delivery};
    enum failure failure = guard_run(&guard);
    otel_end(delivery.span, failure != FAILURE_NONE);
    if (failure != FAILURE_NONE) {
        report_callback_error(event, ws, &guard, "message", "a WebSocket's onMessage");
        if (failure == FAILURE_ERROR) {
            static const char reason[] = "Error executing onWSMessage";
            rk_ws_close(event->id, 1011, reason, sizeof reason - 1);
        } else {
            rk_ws_abort(event->id);
        }
        guard_propagate_interrupt(failure);
    }
    UNPROTECT(1);
}

// Returns whether a closing callback is called with the event: its first argument has no default
// and is not `...`. Other callbacks are called without arguments, as by httpuv.
static bool takes_event(SEXP function) {
    if (TYPEOF(function) != CLOSXP) {
        return false;
    }
    SEXP formals = R_ClosureFormals(function);
    return formals != R_NilValue && TAG(formals) != R_DotsSymbol && CAR(formals) == R_MissingArg;
}

// Returns list(target, code, reason, wasClean), as in package websocket.
static SEXP close_event(const struct delivery* delivery) {
    static const char* names[] = {"target", "code", "reason", "wasClean", ""};
    SEXP info = PROTECT(Rf_mkNamed(VECSXP, names));
    SET_VECTOR_ELT(info, 0, delivery->ws);
    SET_VECTOR_ELT(info, 1, Rf_ScalarInteger(delivery->event->code));
    SET_VECTOR_ELT(info, 2, delivery->message);
    SET_VECTOR_ELT(info, 3, Rf_ScalarLogical(delivery->event->is_text));
    UNPROTECT(1);
    return info;
}

// Prepares the callbacks in the first call, and runs one callback in each further call.
static SEXP run_callback(void* data) {
    struct delivery* delivery = data;
    bool is_close = delivery->event->kind == RK_WS_CLOSED;
    if (delivery->callbacks == NULL) {
        SEXP reason = PROTECT(delivery->event->data.len > 0 ? make_string(delivery->event->data)
            : objs.empty_string);
        event_release();
        if (is_close) {
            // The R object learns that the connection has ended.
            Rf_defineVar(syms.handle, R_NilValue, delivery->ws);
        }
        delivery->callbacks = callbacks_of(delivery->ws, is_close ? syms.close_callbacks
            : syms.drain_callbacks);
        delivery->message = reason;
        UNPROTECT(1);
        return delivery->callbacks;
    }
    SEXP function = VECTOR_ELT(delivery->callbacks, delivery->next);
    SEXP call;
    if (is_close && takes_event(function)) {
        call = PROTECT(Rf_lang2(function, PROTECT(close_event(delivery))));
    } else {
        call = PROTECT(Rf_lang1(PROTECT(function)));
    }
    Rf_eval(call, R_GlobalEnv);
    UNPROTECT(2);
    return R_NilValue;
}

// Calls all callbacks. An error in one does not keep the others from running.
static void run_callbacks(const struct rk_event* event, SEXP ws, const char* stage,
    const char* label) {
    struct delivery delivery = {.event = event, .ws = ws};
    struct guard guard = {.body = run_callback, .data = &delivery};
    if (guard_run(&guard) == FAILURE_NONE && TYPEOF(delivery.callbacks) == VECSXP) {
        PROTECT(delivery.callbacks);
        PROTECT(delivery.message);
        for (; delivery.next < XLENGTH(delivery.callbacks); delivery.next++) {
            enum failure failure = guard_run(&guard);
            if (failure != FAILURE_NONE) {
                report_callback_error(event, ws, &guard, stage, label);
                guard_propagate_interrupt(failure);
            }
        }
        UNPROTECT(2);
    } else {
        release(guard.token);
    }
}

void on_close(const struct rk_event* event) {
    SEXP ws = PROTECT(kept(event->token));
    rk_ws_unbind(event->id);
    release(event->token);
    if (ws != R_NilValue) {
        run_callbacks(event, ws, "close", "a WebSocket's onClose");
    }
    UNPROTECT(1);
}

void on_drain(const struct rk_event* event) {
    SEXP ws = PROTECT(kept(event->token));
    if (ws != R_NilValue) {
        run_callbacks(event, ws, "drain", "a WebSocket's onDrain");
    }
    UNPROTECT(1);
}

// Returns the field for a kind of callback: 0 message, 1 close, 2 drain.
static SEXP callbacks_name(SEXP kind) {
    switch (Rf_asInteger(kind)) {
    case 0:
        return syms.message_callbacks;
    case 1:
        return syms.close_callbacks;
    default:
        return syms.drain_callbacks;
    }
}

// Adds a callback. In R, `self$callbacks <- c(self$callbacks, func)` would search for methods of
// `$` and `$<-` for each class of the object, and allocate sixty cells.
SEXP ffi_ws_add(SEXP self, SEXP function, SEXP kind) {
    SEXP name = callbacks_name(kind);
    SEXP before = callbacks_of(self, name);
    before = PROTECT(TYPEOF(before) == VECSXP ? before : Rf_allocVector(VECSXP, 0));
    SEXP after = PROTECT(list_with(before, function));
    Rf_defineVar(name, after, self);
    UNPROTECT(2);
    return R_NilValue;
}

// Removes the last callback that is identical to `function`. A list that is being iterated is not
// changed.
SEXP ffi_ws_remove(SEXP self, SEXP function, SEXP kind) {
    SEXP name = callbacks_name(kind);
    SEXP before = PROTECT(callbacks_of(self, name));
    R_xlen_t at = TYPEOF(before) == VECSXP ? XLENGTH(before) - 1 : -1;
    while (at >= 0 && VECTOR_ELT(before, at) != function) {
        at--;
    }
    if (at >= 0) {
        SEXP after = PROTECT(Rf_allocVector(VECSXP, XLENGTH(before) - 1));
        for (R_xlen_t i = 0, j = 0; i < XLENGTH(before); i++) {
            if (i != at) {
                SET_VECTOR_ELT(after, j++, VECTOR_ELT(before, i));
            }
        }
        Rf_defineVar(name, after, self);
        UNPROTECT(1);
    }
    UNPROTECT(1);
    return R_NilValue;
}

// Longer messages are lent to Rust until they are sent.
enum { LEND_BYTES = 64 * 1024 };

static SEXP sent(int status) {
    return Rf_ScalarLogical(status == RK_SEND_MORE);
}

// Sends a message. Returns TRUE if more may be sent at once, FALSE if too much is queued or the
// connection has ended.
SEXP ffi_ws_send(SEXP handle, SEXP message) {
    double id = handle_id(handle, "WebSocket", "message");
    if (id < 0) {
        return sent(RK_SEND_CLOSED);
    }
    bool is_text = TYPEOF(message) != RAWSXP;
    // Nearly every message is a string, and is used directly; checking this in R takes two calls.
    bool is_string = TYPEOF(message) == STRSXP && !Rf_isObject(message);
    message = PROTECT(is_text && !is_string ? sent_text(message) : message);
    const void* start;
    size_t len;
    SEXP owner = message;
    if (is_text) {
        if (TYPEOF(message) != STRSXP || XLENGTH(message) == 0) {
            abort_with("rookery_bad_argument",
                "`message` must be a string or a raw vector, not `character(0)`");
        }
        owner = STRING_ELT(message, 0);
        start = Rf_translateCharUTF8(owner);
        len = strlen(start);
        // A translated string is in R's transient memory, which is freed when this call returns.
        if (start != CHAR(owner) && len > LEND_BYTES) {
            owner = Rf_allocVector(RAWSXP, (R_xlen_t)len);
            start = memcpy(RAW(owner), start, len);
        }
    } else {
        start = RAW(message);
        len = (size_t)XLENGTH(message);
    }
    PROTECT(owner);
    int status;
    if (len > LEND_BYTES) {
        // Releases the messages that were sent, so that they do not accumulate in a callback that
        // sends in a loop.
        release_returned();
        uint64_t token = keep(owner);
        status = rk_ws_lend((uint64_t)id, is_text, start, len, token);
        if (status == RK_SEND_CLOSED) {
            release(token);
        }
    } else {
        status = rk_ws_send((uint64_t)id, is_text, start, len);
    }
    UNPROTECT(2);
    return sent(status);
}

SEXP ffi_ws_close(SEXP handle, SEXP code, SEXP reason) {
    double id = handle_id(handle, "WebSocket", "message");
    if (id >= 0) {
        const char* text = Rf_translateCharUTF8(STRING_ELT(reason, 0));
        rk_ws_close((uint64_t)id, Rf_asInteger(code), text, strlen(text));
        rk_flush();
    }
    return R_NilValue;
}

// Returns the number of bytes that are queued; 0 after the end of the connection.
SEXP ffi_ws_queued_bytes(SEXP handle) {
    double id = handle_id(handle, "WebSocket", "message");
    int64_t waiting = id < 0 ? 0 : rk_ws_queued_bytes((uint64_t)id);
    return Rf_ScalarReal(waiting < 0 ? 0 : (double)waiting);
}

// Returns TRUE, or FALSE if the connection has ended.
SEXP ffi_ws_ping(SEXP handle) {
    double id = handle_id(handle, "WebSocket", "message");
    if (id < 0 || rk_ws_queued_bytes((uint64_t)id) < 0) {
        return sent(RK_SEND_CLOSED);
    }
    rk_ws_ping((uint64_t)id);
    return sent(RK_SEND_MORE);
}

// Returns the R objects of a listener's WebSockets, named by their indices in the table of kept
// objects. The indices are reused, because R never frees a symbol, and converting the list to an
// environment makes symbols of the names.
SEXP ffi_websockets(SEXP listener) {
    size_t capacity = rk_ws_list((uint32_t)Rf_asInteger(listener), NULL, 0);
    uint64_t* tokens = (uint64_t*)R_alloc(capacity + 1, sizeof(uint64_t));
    SEXP sockets = PROTECT(Rf_allocVector(VECSXP, (R_xlen_t)capacity));
    // The allocations may have run finalizers, which may have opened and closed WebSockets.
    size_t count = rk_ws_list((uint32_t)Rf_asInteger(listener), tokens, capacity);
    count = count < capacity ? count : capacity;
    for (size_t i = 0; i < count; i++) {
        SET_VECTOR_ELT(sockets, (R_xlen_t)i, kept(tokens[i]));
    }
    sockets = Rf_xlengthgets(sockets, (R_xlen_t)count);
    UNPROTECT(1);
    PROTECT(sockets);
    SEXP names = PROTECT(Rf_allocVector(STRSXP, (R_xlen_t)count));
    for (size_t i = 0; i < count; i++) {
        char name[24];
        snprintf(name, sizeof name, "%llu", (unsigned long long)tokens[i]);
        SET_STRING_ELT(names, (R_xlen_t)i, Rf_mkChar(name));
    }
    Rf_setAttrib(sockets, R_NamesSymbol, names);
    UNPROTECT(2);
    return sockets;
}
