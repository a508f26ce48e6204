// WebSockets: the R object of each, and its callbacks.
#include <stdio.h>
#include <string.h>

#include "shim.h"

// Makes the WebSocket object and calls onWSOpen. Runs guarded.
void socket_open(const struct rk_event* event, SEXP app, SEXP req) {
    SEXP handle = PROTECT(handle_new(event->id));
    SEXP ws = PROTECT(socket_object(handle, req));
    rk_ws_bind(event->id, event->listener, keep(ws));
    SEXP function = PROTECT(app_field(app, syms.on_ws_open));
    if (function == R_NilValue) {
        Rf_error("the app has no `onWSOpen`");
    }
    SEXP call = PROTECT(Rf_lang2(function, ws));
    Rf_eval(call, R_GlobalEnv);
    UNPROTECT(4);
}

struct delivery {
    const struct rk_event* event;
    SEXP ws;
    SEXP callbacks;
    SEXP binary;
    SEXP message;
    R_xlen_t next;
};

static SEXP callbacks_of(SEXP ws, SEXP name) {
    if (TYPEOF(ws) != ENVSXP) {
        return R_NilValue;
    }
    // Not `$`, which looks for a method for each of the object's classes first.
    SEXP value = variable(ws, name);
    return value == NULL ? R_NilValue : value;
}

static SEXP run_message(void* data) {
    struct delivery* delivery = data;
    for (; delivery->next < XLENGTH(delivery->callbacks); delivery->next++) {
        SEXP function = VECTOR_ELT(delivery->callbacks, delivery->next);
        SEXP call = PROTECT(Rf_lang3(function, delivery->binary, delivery->message));
        Rf_eval(call, R_GlobalEnv);
        UNPROTECT(1);
    }
    return R_NilValue;
}

// The message as R sees it: text with a NUL, which R's strings cannot hold, is delivered as binary.
static SEXP run_decode(void* data) {
    struct delivery* delivery = data;
    struct rk_bytes bytes = delivery->event->data;
    bool is_text = delivery->event->is_text && memchr(bytes.start, 0, bytes.len) == NULL;
    SEXP message = PROTECT(is_text ? make_string(bytes) : Rf_allocVector(RAWSXP, (R_xlen_t)bytes.len));
    if (!is_text && bytes.len > 0) {
        memcpy(RAW(message), bytes.start, bytes.len);
    }
    delivery->binary = Rf_ScalarLogical(!is_text);
    delivery->message = message;
    event_is_read();
    SEXP callbacks = PROTECT(callbacks_of(delivery->ws, syms.message_callbacks));
    delivery->callbacks = callbacks;
    SEXP value = TYPEOF(callbacks) == VECSXP ? run_message(delivery) : R_NilValue;
    UNPROTECT(2);
    return value;
}

void handle_message(const struct rk_event* event) {
    SEXP ws = PROTECT(kept(event->token));
    if (ws == R_NilValue) {
        UNPROTECT(1);
        return;
    }
    struct delivery delivery = {.event = event, .ws = ws};
    struct guard guard = {.body = run_decode, .data = &delivery};
    enum failure failure = guard_run(&guard);
    if (failure != FAILURE_NONE) {
        SEXP condition = PROTECT(kept(guard.token));
        release(guard.token);
        const char* text = condition == R_NilValue ? "interrupted, or left by a restart" : NULL;
        report("a WebSocket's onMessage", condition, text);
        if (failure == FAILURE_ERROR) {
            static const char reason[] = "Error executing onWSMessage";
            rk_ws_close(event->id, 1011, reason, sizeof reason - 1);
        } else {
            rk_ws_abort(event->id);
        }
        UNPROTECT(1);
        guard_pass_on(failure);
    }
    UNPROTECT(1);
}

static SEXP run_close(void* data) {
    struct delivery* delivery = data;
    if (delivery->callbacks == NULL) {
        // The connection has ended: its object learns it.
        Rf_defineVar(syms.handle, R_NilValue, delivery->ws);
        delivery->callbacks = callbacks_of(delivery->ws, syms.close_callbacks);
        return delivery->callbacks;
    }
    SEXP call = PROTECT(Rf_lang1(VECTOR_ELT(delivery->callbacks, delivery->next)));
    Rf_eval(call, R_GlobalEnv);
    UNPROTECT(1);
    return R_NilValue;
}

// Each of the closing callbacks runs, whatever became of the one before.
void handle_closed(const struct rk_event* event) {
    event_is_read();
    SEXP ws = PROTECT(kept(event->token));
    rk_ws_unbind(event->id);
    release(event->token);
    if (ws == R_NilValue) {
        UNPROTECT(1);
        return;
    }
    struct delivery delivery = {.event = event, .ws = ws};
    struct guard guard = {.body = run_close, .data = &delivery};
    if (guard_run(&guard) == FAILURE_NONE && TYPEOF(delivery.callbacks) == VECSXP) {
        PROTECT(delivery.callbacks);
        for (; delivery.next < XLENGTH(delivery.callbacks); delivery.next++) {
            enum failure failure = guard_run(&guard);
            if (failure != FAILURE_NONE) {
                SEXP condition = PROTECT(kept(guard.token));
                release(guard.token);
                const char* text = condition == R_NilValue ? "interrupted, or left by a restart" : NULL;
                report("a WebSocket's onClose", condition, text);
                UNPROTECT(1);
                guard_pass_on(failure);
            }
        }
        UNPROTECT(1);
    } else {
        release(guard.token);
    }
    UNPROTECT(1);
}

// Adds a callback to the list of its kind, and gives the list. In R, `self$callbacks <- c(self$callbacks, func)` looks for
// methods of `$` and `$<-` for each of the object's classes, and makes sixty cells on the way.
SEXP ffi_ws_add(SEXP self, SEXP function, SEXP is_close) {
    SEXP name = Rf_asLogical(is_close) ? syms.close_callbacks : syms.message_callbacks;
    SEXP before = callbacks_of(self, name);
    before = PROTECT(TYPEOF(before) == VECSXP ? before : Rf_allocVector(VECSXP, 0));
    SEXP after = PROTECT(list_with(before, function));
    Rf_defineVar(name, after, self);
    UNPROTECT(2);
    return after;
}

// A longer message stays R's memory until it is sent.
enum { LEND_BYTES = 64 * 1024 };

SEXP ffi_ws_send(SEXP handle, SEXP message) {
    double id = handle_id(handle, "WebSocket", "message");
    if (id < 0) {
        return R_NilValue;
    }
    bool is_text = TYPEOF(message) == STRSXP;
    const void* start;
    size_t len;
    SEXP owner = message;
    if (is_text) {
        if (XLENGTH(message) == 0) {
            Rf_error("`message` must be a string or a raw vector, not `character(0)`");
        }
        owner = STRING_ELT(message, 0);
        start = Rf_translateCharUTF8(owner);
        len = strlen(start);
        // A string that had to be translated lies in R's transient memory, which goes with this call.
        if (start != CHAR(owner) && len > LEND_BYTES) {
            owner = Rf_mkCharLenCE(start, (int)len, CE_UTF8);
            start = CHAR(owner);
        }
    } else if (TYPEOF(message) == RAWSXP) {
        start = RAW(message);
        len = (size_t)XLENGTH(message);
    } else {
        Rf_error("`message` must be a string or a raw vector");
    }
    PROTECT(owner);
    if (len > LEND_BYTES) {
        rk_ws_lend((uint64_t)id, is_text, start, len, keep(owner));
    } else {
        rk_ws_send((uint64_t)id, is_text, start, len);
    }
    UNPROTECT(1);
    return R_NilValue;
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

// The objects of a listener's WebSockets, named by their places in the table of kept objects. Those are used again: R
// never frees a symbol, and whoever makes an environment of this makes symbols of the names.
SEXP ffi_sockets(SEXP listener) {
    size_t count = rk_ws_list((uint32_t)Rf_asInteger(listener), NULL, 0);
    uint64_t* tokens = (uint64_t*)R_alloc(count + 1, sizeof(uint64_t));
    rk_ws_list((uint32_t)Rf_asInteger(listener), tokens, count);
    SEXP sockets = PROTECT(Rf_allocVector(VECSXP, (R_xlen_t)count));
    SEXP names = PROTECT(Rf_allocVector(STRSXP, (R_xlen_t)count));
    for (size_t i = 0; i < count; i++) {
        char name[24];
        snprintf(name, sizeof name, "%llu", (unsigned long long)tokens[i]);
        SET_VECTOR_ELT(sockets, (R_xlen_t)i, kept(tokens[i]));
        SET_STRING_ELT(names, (R_xlen_t)i, Rf_mkChar(name));
    }
    Rf_setAttrib(sockets, R_NamesSymbol, names);
    UNPROTECT(2);
    return sockets;
}
