/* The loop: accept, read, call R, write. The epoll is level-triggered, and a batch of pipelined
 * requests takes one write. */
#include "bare_epoll.h"
#include <R_ext/Rdynload.h>
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define READ_SIZE 65536
#define MAX_CONNECTIONS 65536
#define EVENTS 256

struct connection {
    int fd;
    bool closing;
    bool wants_write;
    size_t written;
    struct buffer in;
    struct buffer out;
    struct peer peer;
    SEXP source; /* returns the chunks of a streamed response; NULL if there is none */
};

/* The number of chunks that one connection may send before other connections are served. */
#define PIECES 16

struct job {
    const struct request *request;
    const struct peer *peer;
    SEXP handler;
    struct buffer *out;
    SEXP *source;
};

static struct connection *connections[MAX_CONNECTIONS]; /* keeps the connections' strings alive */
/* keeps the strings of the connections alive, two for each descriptor */
static SEXP peer_strings;
static enum call_shape shape;
static int epoll_fd;

static SEXP answer(void *data) {
    struct job *job = data;
    SEXP req = PROTECT(req_build(job->request, job->peer));
    SEXP call = PROTECT(Rf_lang2(job->handler, req));
    SEXP reply = PROTECT(Rf_eval(call, R_GlobalEnv));
    SEXP source = reply_write(reply, job->request->keep_alive, job->out);
    if (source != NULL) {
        R_PreserveObject(source);
        *job->source = source;
    }
    UNPROTECT(3);
    return R_NilValue;
}

static void forget_source(struct connection *c) {
    if (c->source != NULL) {
        R_ReleaseObject(c->source);
        c->source = NULL;
    }
}

static SEXP add_piece(void *data) {
    struct connection *c = data;
    SEXP call = PROTECT(Rf_lang1(c->source));
    SEXP piece = PROTECT(Rf_eval(call, R_GlobalEnv));
    reply_write_piece(piece, &c->out);
    if (piece == R_NilValue) {
        forget_source(c);
    }
    UNPROTECT(2);
    return R_NilValue;
}

static void close_connection(struct connection *c) {
    connections[c->fd] = NULL;
    SET_VECTOR_ELT(peer_strings, 2 * c->fd, R_NilValue);
    SET_VECTOR_ELT(peer_strings, 2 * c->fd + 1, R_NilValue);
    forget_source(c);
    close(c->fd);
    free(c->in.data);
    free(c->out.data);
    free(c);
}

static void accept_all(int listener) {
    for (;;) {
        struct sockaddr_in address;
        socklen_t length = sizeof address;
        int fd = accept4(listener, (struct sockaddr *)&address, &length, SOCK_NONBLOCK
            | SOCK_CLOEXEC);
        if (fd < 0) {
            return;
        }
        if (fd >= MAX_CONNECTIONS) {
            close(fd);
            continue;
        }
        char text[INET_ADDRSTRLEN], port[16];
        int one = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct connection *c = calloc(1, sizeof *c);
        if (c == NULL) {
            close(fd);
            continue;
        }
        inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
        snprintf(port, sizeof port, "%d", ntohs(address.sin_port));
        c->fd = fd;
        c->peer.address = Rf_mkString(text);
        SET_VECTOR_ELT(peer_strings, 2 * fd, c->peer.address);
        c->peer.port = Rf_mkString(port);
        SET_VECTOR_ELT(peer_strings, 2 * fd + 1, c->peer.port);
        MARK_NOT_MUTABLE(c->peer.address);
        MARK_NOT_MUTABLE(c->peer.port);
        connections[fd] = c;
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
    }
}

static void wait_for_room(struct connection *c) {
    if (!c->wants_write) {
        struct epoll_event event = {.events = EPOLLOUT, .data.fd = c->fd};
        epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &event);
        c->wants_write = true;
    }
}

/* Returns false if the connection is closed. */
static bool flush(struct connection *c) {
    for (int made = 0;; made++) {
        while (c->written < c->out.length) {
            ssize_t n = send(c->fd, c->out.data + c->written, c->out.length - c->written,
                MSG_NOSIGNAL);
            if (n < 0) {
                if (errno != EAGAIN) {
                    close_connection(c);
                    return false;
                }
                wait_for_room(c);
                return true;
            }
            c->written += (size_t)n;
        }
        c->written = c->out.length = 0;
        if (c->source == NULL) {
            break;
        }
        if (made == PIECES) {
            wait_for_room(c);
            return true;
        }
        SEXP condition = R_NilValue;
        if (!call_protected(shape, add_piece, c, &condition)) {
            REprintf("a piece could not be made\n");
            close_connection(c);
            return false;
        }
    }
    if (c->closing) {
        close_connection(c);
        return false;
    }
    if (c->wants_write) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = c->fd};
        epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &event);
        c->wants_write = false;
    }
    return true;
}

static void serve_buffered(struct connection *c, SEXP handler) {
    static struct request request;
    size_t at = 0, used = 0;
    while (at < c->in.length && !c->closing && c->source == NULL) {
        enum parse_status status = parse_request(c->in.data + at, c->in.length - at, &request,
            &used);
        if (status == PARSE_PARTIAL) {
            break;
        }
        size_t mark = c->out.length;
        SEXP condition = R_NilValue;
        struct job job = {&request, &c->peer, handler, &c->out, &c->source};
        if (status == PARSE_BAD) {
            reply_write_error(400, &c->out);
            c->closing = true;
        } else if (call_protected(shape, answer, &job, &condition)) {
            c->closing = !request.keep_alive;
        } else {
            c->out.length = mark;
            REprintf("the handler failed\n");
            reply_write_error(500, &c->out);
            c->closing = true;
        }
        at += used;
    }
    memmove(c->in.data, c->in.data + at, c->in.length - at);
    c->in.length -= at;
}

static void readable(struct connection *c, SEXP handler) {
    buffer_reserve(&c->in, READ_SIZE);
    ssize_t n = recv(c->fd, c->in.data + c->in.length, c->in.capacity - c->in.length, 0);
    if (n < 0 && errno == EAGAIN) {
        return;
    }
    if (n <= 0) {
        close_connection(c);
        return;
    }
    c->in.length += (size_t)n;
    serve_buffered(c, handler);
    flush(c);
}

static void check_interrupt(void *unused) {
    (void)unused;
    R_CheckUserInterrupt();
}

SEXP bare_serve(SEXP port, SEXP handler, SEXP constants, SEXP call_shape) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET,
        .sin_port = htons((uint16_t)Rf_asInteger(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0
        || listen(listener, 1024) != 0) {
        Rf_error("cannot listen on port %d: %s", Rf_asInteger(port), strerror(errno));
    }
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event);
    peer_strings = Rf_allocVector(VECSXP, 2 * MAX_CONNECTIONS);
    R_PreserveObject(peer_strings);
    shape = (enum call_shape)Rf_asInteger(call_shape);
    call_init();
    req_init(constants, "127.0.0.1", Rf_asInteger(port));
    struct epoll_event events[EVENTS];
    for (unsigned turn = 0;; turn++) {
        int count = epoll_wait(epoll_fd, events, EVENTS, 1000);
        call_batch_begin();
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                accept_all(listener);
            } else if (connections[fd] != NULL) {
                if (connections[fd]->wants_write) {
                    flush(connections[fd]);
                } else {
                    readable(connections[fd], handler);
                }
            }
        }
        call_batch_end();
        if ((count <= 0 || turn % 1024 == 0) && !R_ToplevelExec(check_interrupt, NULL)) {
            return R_NilValue;
        }
    }
}

static SEXP call_handler(void *call) {
    return Rf_eval((SEXP)call, R_GlobalEnv);
}

/* For the r-call group: returns the seconds of CPU time, which other load does not affect, for
 * `times` calls of `handler(req)` in the given way, with the same call object each time. */
SEXP bare_time(SEXP call_shape, SEXP handler, SEXP req, SEXP times) {
    struct timespec start, end;
    SEXP condition = R_NilValue, call = PROTECT(Rf_lang2(handler, req));
    int count = Rf_asInteger(times);
    call_init();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    call_batch_begin();
    for (int i = 0; i < count; i++) {
        if (Rf_asInteger(call_shape) < 0) {
            call_handler(call); /* unprotected: the cost of the call itself */
        } else if (!call_protected((enum call_shape)Rf_asInteger(call_shape), call_handler, call,
            &condition)) {
            Rf_error("the handler failed");
        }
    }
    call_batch_end();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    UNPROTECT(1);
    return Rf_ScalarReal((double)(end.tv_sec - start.tv_sec) +
                         (double)(end.tv_nsec - start.tv_nsec) * 1e-9);
}

static const R_CallMethodDef methods[] = {
    {"bare_serve", (DL_FUNC)bare_serve, 4},
    {"bare_time", (DL_FUNC)bare_time, 4},
    {NULL, NULL, 0},
};

void R_init_bare_epoll(DllInfo *info) {
    R_registerRoutines(info, NULL, methods, NULL, NULL);
    R_useDynamicSymbols(info, FALSE);
}
