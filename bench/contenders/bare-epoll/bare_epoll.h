/* The upper bound of the r-http group: one thread, one epoll, and direct calls of R.
 *
 * For each request it does what a drop-in replacement for httpuv has to do: it makes a fresh
 * environment with every binding of the Rook specification that httpuv makes, calls the handler
 * protected so that the condition object is available, and checks the response before it is
 * written. It leaves out what a server needs and a benchmark does not: chunked requests, limits,
 * timeouts, static files, the package later, and WebSockets. A server with those cannot be faster
 * than this program. */
#ifndef BARE_EPOLL_H
#define BARE_EPOLL_H

#define R_NO_REMAP
#define STRICT_R_HEADERS
#include <R.h>
#include <Rinternals.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Enough for the scenario with 200 header lines. A request with more gets status 431. */
#define MAX_HEADERS 512
/* R never frees a symbol, so clients may not choose more than this many header names during the
 * process. */
#define MAX_NAMES 4096
/* One megabyte of body with its head, which is more than the largest request of any scenario. */
#define MAX_REQUEST (4u << 20)

struct span {
    const char *start;
    uint32_t length;
};

struct header {
    struct span name; /* the parser converts it to lower case in place */
    struct span value;
};

struct request {
    struct span method;
    struct span path;
    struct span query; /* with its question mark; empty without one */
    struct span body;
    int header_count;
    bool keep_alive;
    struct header headers[MAX_HEADERS];
};

enum parse_status { PARSE_WHOLE, PARSE_PARTIAL, PARSE_BAD };

/* parse.c: reads one request from `data`. `*used` is its whole length, head and body. Converts
 * names to lower case in place. */
enum parse_status parse_request(char *data, size_t length, struct request *request, size_t *used);

struct buffer {
    char *data;
    size_t length;
    size_t capacity;
};

void buffer_reserve(struct buffer *buffer, size_t extra);
void buffer_append(struct buffer *buffer, const char *data, size_t length);

/* The two addresses of a connection, as R strings that all its requests share. */
struct peer {
    SEXP address;
    SEXP port;
};

/* req.c */
void req_init(SEXP constants, const char *server_name, int server_port);
SEXP req_build(const struct request *request, const struct peer *peer);

/* reply.c: appends a whole response, or its head if the body is a function, which is returned (NULL
 * otherwise). Raises an R error for an invalid response. */
SEXP reply_write(SEXP reply, bool keep_alive, struct buffer *out);
void reply_write_piece(SEXP piece, struct buffer *out);
void reply_write_error(int status, struct buffer *out);

/* call.c: the four ways from the loop to the handler that the r-call group compares. */
enum call_shape {
    CALL_TRAMPOLINE, /* R_tryEvalSilent over .Call over R_withCallingErrorHandler, as Rookery */
    CALL_EVALQ,      /* R's tryCatch(evalq(...)), built for each call, as httpuv issue 244 */
    CALL_TRY_CATCH,  /* R_tryCatchError of the C API */
    CALL_UNWIND      /* only R_UnwindProtect: catches nothing, so this is a lower bound */
};

/* Runs `work` protected and returns true on success. On failure `*condition` is the condition
 * object or R_NilValue. */
bool call_protected(enum call_shape shape, SEXP (*work)(void *), void *data, SEXP *condition);
/* Called before and after each batch of calls, which is one iteration of the loop. */
void call_batch_begin(void);
void call_batch_end(void);
SEXP bare_trampoline(void);
void call_init(void);

#endif
