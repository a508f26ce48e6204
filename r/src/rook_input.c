// req$rook.input and req$.bodyData, from which apps read the body of a request.
//
// rook.input is made with each request that has a body. .bodyData is a connection that few apps
// use, so it is a promise, see open_body() in R/rook-input.R.

#include <math.h>
#include <stdlib.h>

#include "shim.h"

// The elements of a ticket, the numeric vector by which R code names a body. The offset is changed
// in place.
enum { TICKET_SLOT, TICKET_ID, TICKET_SIZE, TICKET_FD, TICKET_PROCESS, TICKET_OFFSET,
    TICKET_LENGTH };

static struct object_template input_template;

void input_init(void) {
    template_init(&input_template, objs.input_parts);
}

static SEXP new_ticket(const struct rk_event* event) {
    SEXP ticket = Rf_allocVector(REALSXP, TICKET_LENGTH);
    double* field = REAL(ticket);
    field[TICKET_SLOT] = (double)event->slot;
    field[TICKET_ID] = (double)event->id;
    field[TICKET_SIZE] = (double)event->body_len;
    field[TICKET_FD] = (double)event->body_fd;
    field[TICKET_PROCESS] = (double)forks;
    field[TICKET_OFFSET] = 0;
    return ticket;
}

static uint32_t slot_of(SEXP ticket) {
    return (uint32_t)REAL(ticket)[TICKET_SLOT];
}

static uint64_t id_of(SEXP ticket) {
    return (uint64_t)REAL(ticket)[TICKET_ID];
}

// Raises an error if the body can no longer be read.
static void check_readable(SEXP ticket) {
    if (REAL(ticket)[TICKET_PROCESS] != (double)forks) {
        abort_with(
            "rookery_in_fork",
            "the body of this request belongs to the process from which this one was forked: read "
            "it before the "
            "fork (`body <- req$rook.input$read()`)");
    }
    if (!rk_is_held(slot_of(ticket), id_of(ticket))) {
        abort_with(
            "rookery_body_gone",
            "the body of this request is no longer available, because the response has been sent: "
            "read it before "
            "(`body <- req$rook.input$read()`), or return a promise, which keeps the body until "
            "it is resolved");
    }
}

// Makes the R object of rook.input, of which only the methods are made here.
static SEXP input_object(SEXP ticket) {
    SEXP self = PROTECT(R_NewEnv(objs.ns, FALSE, 0));
    Rf_defineVar(syms.ticket, ticket, self);
    template_bind(&input_template, self, self);
    R_LockEnvironment(self, TRUE);
    UNPROTECT(1);
    return self;
}

// Binds .bodyData in a request, with a call that assign_body() in R/rook-input.R has made.
static void bind_body_data(SEXP req, SEXP ticket) {
    SEXP arguments = CDR(CADR(objs.assign_body));
    SETCADR(CADR(arguments), PROTECT(Rf_lang3(objs.open_body, ticket, req)));
    SETCADDDR(arguments, req);
    Rf_eval(objs.assign_body, R_BaseEnv);
    // Otherwise, the call would keep the request until the next one.
    SETCADR(CADR(arguments), R_NilValue);
    SETCADDDR(arguments, R_NilValue);
    UNPROTECT(1);
}

// Sets both bindings in a request with a body.
void input_bind(SEXP req, const struct rk_event* event) {
    if (event->body_len > 0) {
        SEXP ticket = PROTECT(new_ticket(event));
        Rf_defineVar(syms.input, PROTECT(input_object(ticket)), req);
        bind_body_data(req, ticket);
        UNPROTECT(2);
    }
}

// ---- rook.input ----

// Returns the next `l` bytes, or all remaining ones if there are fewer or if `l` is negative.
SEXP ffi_input_read(SEXP ticket, SEXP l) {
    int type = TYPEOF(l);
    bool is_number = (type == INTSXP || type == REALSXP || type == LGLSXP) && XLENGTH(l) == 1 &&
        !Rf_inherits(l, "factor");
    double n = is_number ? Rf_asReal(l) : NA_REAL;
    if (ISNAN(n)) {
        abort_with("rookery_bad_argument", "`l` must be one number.");
    }
    check_readable(ticket);
    double* field = REAL(ticket);
    double rest = field[TICKET_SIZE] - field[TICKET_OFFSET];
    n = trunc(n);
    if (n < 0 || n > rest) {
        n = rest;
    }
    SEXP bytes = body_bytes(slot_of(ticket), id_of(ticket), (uint64_t)field[TICKET_OFFSET],
        (R_xlen_t)n);
    field[TICKET_OFFSET] += (double)XLENGTH(bytes);
    return bytes;
}

// Returns `n` bytes from `offset`, independently of the position of rook.input.
SEXP ffi_body_read(SEXP ticket, SEXP offset, SEXP n) {
    check_readable(ticket);
    return body_bytes(slot_of(ticket), id_of(ticket), (uint64_t)Rf_asReal(offset),
        (R_xlen_t)Rf_asReal(n));
}

// Returns the position of rook.input.
SEXP ffi_input_tell(SEXP ticket) {
    check_readable(ticket);
    return Rf_ScalarReal(REAL(ticket)[TICKET_OFFSET]);
}

// Sets the position; returns the previous one.
SEXP ffi_input_seek(SEXP ticket, SEXP offset) {
    double was = REAL(ticket)[TICKET_OFFSET];
    REAL(ticket)[TICKET_OFFSET] = Rf_asReal(offset);
    return Rf_ScalarReal(was);
}

// ---- .bodyData ----

// The connection that was opened for the request in each slot, which is closed after the response.
struct opened {
    uint64_t id;
    uint64_t token;  // of list(connection, req); 0: none
};

static struct opened* opened;
static size_t slot_count;
static size_t opened_count;

static void close_opened(struct opened* entry) {
    bool failed;
    SEXP both = PROTECT(kept(entry->token));
    release(entry->token);
    entry->token = 0;
    opened_count--;
    SEXP call = PROTECT(Rf_lang2(objs.close_body, both));
    call_quietly(call, &failed);
    UNPROTECT(2);
}

// Returns the size of the body and its descriptor (-1: in memory); NULL after the response.
SEXP ffi_body_open(SEXP ticket) {
    if (REAL(ticket)[TICKET_PROCESS] == (double)forks &&
            !rk_is_held(slot_of(ticket), id_of(ticket))) {
        return R_NilValue;
    }
    check_readable(ticket);
    SEXP where = Rf_allocVector(REALSXP, 2);
    REAL(where)[0] = REAL(ticket)[TICKET_SIZE];
    REAL(where)[1] = REAL(ticket)[TICKET_FD];
    return where;
}

// Remembers list(connection, req), to close the connection after the response.
SEXP ffi_body_opened(SEXP ticket, SEXP both) {
    size_t slot = slot_of(ticket);
    if (slot >= slot_count) {
        struct opened* more = realloc(opened, sizeof(struct opened) * (slot + 1));
        if (more == NULL) {
            Rf_error("rookery: out of memory");
        }
        for (; slot_count <= slot; slot_count++) {
            more[slot_count] = (struct opened){0, 0};
        }
        opened = more;
    }
    if (opened[slot].token != 0) {
        // Left over from a request to which R has not responded.
        close_opened(&opened[slot]);
    }
    // keep() may run a finalizer, which may move `opened`.
    uint64_t token = keep(both);
    opened[slot] = (struct opened){id_of(ticket), token};
    opened_count++;
    return R_NilValue;
}

// Closes the connection to the body of a request after the response.
void input_answered(uint32_t slot, uint64_t id) {
    if (opened_count > 0 && slot < slot_count && opened[slot].token != 0 && opened[slot].id == id) {
        close_opened(&opened[slot]);
    }
}

// Closes the connections of requests to which the server has responded itself.
void input_refused(void) {
    for (size_t slot = 0; slot < slot_count && opened_count > 0; slot++) {
        if (opened[slot].token != 0 && !rk_is_held((uint32_t)slot, opened[slot].id)) {
            close_opened(&opened[slot]);
        }
    }
}
