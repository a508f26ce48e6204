// The plain C interface between the R shim (C) and the core (Rust, src/rust).
//
// Ground rules
//   - Rust never calls R. Every function here returns before R can run or raise an error again, so
//     no
//     longjmp ever passes a Rust frame.
//   - All functions are called on R's main thread. Rust calls the functions that it gets from
//     rk_init(), rk_client_open() and rk_worker_join() on its own threads.
//   - Pointers in an rk_event are valid until the next rk_next().
//   - An exchange that R holds is named by a slot and an id. A stale pair is refused and never
//     dereferenced.
#ifndef ROOKERY_H
#define ROOKERY_H

#include <stddef.h>
#include <stdint.h>

struct rk_bytes {
    const char* start;
    size_t len;
};

struct rk_header {
    struct rk_bytes name;  // lower case
    struct rk_bytes cgi;   // its CGI name, HTTP_X_NAME; empty if the name contains a `_`
    struct rk_bytes value;
    int32_t symbol;        // index in the caches of symbols and values; -1: not interned
};

enum rk_kind {
    RK_NONE = 0,
    RK_REQUEST = 1,    // slot, id, head and body
    RK_HANDSHAKE = 2,  // like RK_REQUEST, for the opening handshake of a WebSocket
    RK_WS_MESSAGE = 3,    // id, is_text, data
    RK_WS_CLOSED = 4,     // id, code, data (the reason), is_text (whether the close was clean)
    RK_WS_DRAINED = 5,    // id: the queue was sent, after RK_SEND_FULL
    RK_HEAD = 6,       // like RK_REQUEST, before the body is read
    RK_STREAM_PULL = 7,       // id: a pulled stream has capacity for a chunk
    RK_STREAM_DRAINED = 8,       // id: the queue has capacity again, after RK_WRITE_FULL
    RK_STREAM_ENDED = 9,   // id, code (enum rk_stream_end)
    RK_BODY_CHUNK = 10,      // slot, id, data: a chunk of a request's body, after rk_receive_body()
    RK_BODY_END = 11   // slot, id, code (enum rk_stream_end): the end of the body
};

struct rk_event {
    int32_t kind;
    uint32_t listener;
    uint32_t slot;
    int32_t code;
    uint64_t id;
    // the token passed to rk_read_body(), rk_receive_body(), rk_ws_bind() or rk_response_stream();
    // 0: none
    uint64_t token;
    struct rk_bytes method;
    struct rk_bytes path;
    struct rk_bytes query;
    struct rk_bytes remote_addr;
    struct rk_bytes remote_port;
    struct rk_bytes local_addr;
    struct rk_bytes local_port;
    const struct rk_header* headers;
    size_t header_count;
    uint64_t body_len;
    int32_t body_fd;  // descriptor of a spooled body; -1: in memory
    int32_t is_text;
    struct rk_bytes data;
    int32_t is_https;
    int32_t has_client_certificate;  // rk_client_certificate() has the client's certificate
    // The supervisor has assigned the request id that rk_request_id() returns.
    int32_t has_supervisor_request_id;
    int32_t has_trace_request_id;  // the request id is the trace id in the traceparent header
    int32_t is_head_seen;  // onHeaders was called before, perhaps in another process
    int32_t is_route_used;  // whether rk_set_route() has an effect
    uint64_t span;  // rk_span_end() ends it after the event; 0: none
};

// The configuration of a listener except its address.
struct rk_setup {
    const void* site;
    const char* spool;         // the folder for bodies that are not kept in memory
    const void* tls;           // from rk_tls_new(); NULL: plaintext HTTP
    const char* const* proxies;  // trusted proxies, whose forwarding headers are used
    size_t proxy_count;
    int32_t calls_on_headers;
    int32_t has_proxy_header;  // each connection begins with a PROXY protocol header
    // only pages of the request's host and of `origins` may open WebSockets
    int32_t checks_origins;
    const char* const* origins;
    size_t origin_count;
    int32_t sends_request_id;
    int32_t inherits;   // enum rk_inherits: an inherited socket to use instead of the address
    int32_t is_sticky;  // for the supervisor: the app needs session affinity
    int32_t sends_timing;
    int32_t keeps_identity_headers;  // also from clients that are not trusted proxies
    const char* const* proxy_senders;  // who may send a PROXY protocol header; empty: anyone
    size_t proxy_sender_count;
};

// The Rust side (src/rust) asserts the same layout.
#if UINTPTR_MAX == UINT64_MAX
_Static_assert(sizeof(struct rk_bytes) == 16 && offsetof(struct rk_bytes, len) == 8, "rk_bytes");
_Static_assert(sizeof(struct rk_header) == 56 && offsetof(struct rk_header, symbol) == 48,
    "rk_header");
_Static_assert(sizeof(struct rk_event) == 224 && offsetof(struct rk_event, id) == 16 &&
                   offsetof(struct rk_event, method) == 32 &&
                       offsetof(struct rk_event, headers) == 144 &&
                   offsetof(struct rk_event, body_fd) == 168 &&
                       offsetof(struct rk_event, data) == 176 &&
                   offsetof(struct rk_event, is_https) == 192,
               "rk_event");
_Static_assert(sizeof(struct rk_setup) == 112 && offsetof(struct rk_setup, calls_on_headers) == 40,
    "rk_setup");
#endif

enum rk_result { RK_OK = 0, RK_BAD_NAME = 1, RK_BAD_VALUE = 2, RK_STALE = 3, RK_TOO_MANY = 4 };

// servers
//
// `schedule` makes R's event loop take events, and `released` makes it call rk_released(). Rust
// calls both on any thread.
void rk_init(void (*schedule)(void), void (*released)(void));
int rk_listen_tcp(const char* host, int port, const struct rk_setup* setup, uint32_t* listener,
    int* bound_port);
int rk_listen_unix(const char* path, int mask, const struct rk_setup* setup, uint32_t* listener);
void rk_stop(uint32_t listener);
void rk_drain(uint32_t listener);
int rk_connections(uint32_t listener);
int rk_refuse(uint32_t slot, uint64_t id);       // sets a 503 response
void rk_refuse_held(uint32_t listener);  // responds with 503 to all requests that R holds
void rk_stop_all(int (*is_interrupted)(void));
void rk_forked(void);
// the version of the core
const char* rk_version(void);
const char* rk_error(void);
int64_t rk_live_bytes(void);
int64_t rk_allocations(void);

// worker of a supervisor

enum rk_worker_state { RK_WORKER_NONE = 0, RK_WORKER_FREE = 1, RK_WORKER_USED = 2,
    RK_WORKER_FAILED = 3 };

// the arguments are called on another thread
void rk_worker_join(void (*interrupt)(void), void (*collect)(void), void (*end)(int is_time_over));
int rk_worker_state(void);  // an enum rk_worker_state; after RK_WORKER_FAILED, see rk_error()
int rk_worker_serves(uint32_t listener);  // whether the listener gets the worker's requests

// R's stack and profiles

enum { RK_STACK_MAX = 240, RK_PROFILE_PATH_MAX = 1024, RK_PROFILE_ROUTE_MAX = 160 };

enum rk_profile_progress { RK_PROFILE_RUNNING = 1, RK_PROFILE_COMPLETE = 2,
    RK_PROFILE_UNSUPPORTED = 3, RK_PROFILE_OTHER = 4, RK_PROFILE_FAILED = 5,
    RK_PROFILE_REPLACED = 6 };

struct rk_profile_request {
    uint32_t number;
    uint32_t interval_us;
};

// publishes the names of the functions on R's stack, and the place of the innermost call
void rk_stack_sampled(struct rk_bytes names, struct rk_bytes place);
// the word by which profiles are requested; NULL if nobody can request one
const uint64_t* rk_profile_word(void);
// reads the value of that word: whether it requests a profile, which one, and the path of its file
int rk_profile_request(uint64_t word, struct rk_profile_request* request, char* path, size_t len);
void rk_profile_set_progress(uint32_t number, int progress);
// writes the name by which the handler of a request is called during a profile
void rk_profile_route(uint32_t slot, uint64_t id, char* out, size_t len);

// admin listener

int rk_admin_start(const char* at, const char* target);  // RK_OK, or see rk_error()
// 1: the app listens on `address`; 2: the app stops, `address` is NULL
void rk_admin_set_state(int state, const char* address);
void rk_admin_stop(void);

// errors for the live page
int rk_shares_errors(void);  // whether to pass on the next error
void rk_share_error(struct rk_bytes request_id, struct rk_bytes route, struct rk_bytes label,
    struct rk_bytes class_name, struct rk_bytes message, struct rk_bytes trace);

// limits

// In the order of the table of settings; NaN: the default.
int rk_limits_set(const double* values, size_t count);  // RK_STALE: a server runs with other limits

// events
int rk_next(struct rk_event* event);
int rk_is_empty(void);
uint64_t rk_event_count(void);
int rk_wait(double seconds);
int rk_has_failed(void);  // whether the I/O thread has ended unexpectedly
int32_t rk_spans_in_r(int32_t is_in_r);  // returns whether this process makes the requests' spans
void rk_span_end(uint64_t span);
void rk_span_error(struct rk_bytes label, struct rk_bytes class);
// Writes the traceparent of the span of an event as a string; returns 0 if the event has no span.
int32_t rk_span_traceparent(uint64_t span, char header[56]);
int rk_take_failure(void);     // returns 1 once after a failure; see rk_error()
void rk_fail_for_test(void);      // makes the I/O thread fail
int rk_park(void);
void rk_resume(void);
void rk_between(void);
void rk_task_ended(void);
void rk_flush(void);

// exchanges that R holds
int rk_read_body(uint32_t slot, uint64_t id, uint64_t token);
int rk_receive_body(uint32_t slot, uint64_t id, uint64_t token);  // R keeps the exchange
// bytes of a received body that the app has processed
void rk_body_consumed(uint64_t id, size_t bytes);
int64_t rk_body_read(uint32_t slot, uint64_t id, uint64_t offset, void* out, size_t len);
int rk_body_is_lendable(uint32_t slot, uint64_t id, size_t len);
void* rk_body_lend(uint32_t slot, uint64_t id, size_t len);
void rk_body_return(void* start);
int rk_response_begin(uint32_t slot, uint64_t id, int status);
int rk_response_mark_failed(uint32_t slot, uint64_t id);
int rk_response_header(uint32_t slot, uint64_t id, struct rk_bytes name, struct rk_bytes value);
int rk_response_copy(uint32_t slot, uint64_t id, const void* start, size_t len);
int rk_response_lend(uint32_t slot, uint64_t id, const void* start, size_t len, uint64_t token);
int rk_response_file(uint32_t slot, uint64_t id, const char* path, int unlink_it);
int rk_respond(uint32_t slot, uint64_t id);
int rk_is_held(uint32_t slot, uint64_t id);
int rk_route(uint32_t slot, uint64_t id, char* out, size_t len);
// sets the route by which the request is counted
void rk_set_route(uint32_t slot, uint64_t id, struct rk_bytes route);
uint32_t rk_listener_of(uint32_t slot, uint64_t id);  // 0 if R does not hold the exchange
int rk_request_id(uint32_t slot, uint64_t id, char* out, size_t len);
uint64_t rk_request_process(void);  // the part of request ids that identifies this process
// formats an id that this server has assigned
void rk_format_request_id(uint64_t id, uint64_t process, char out[33]);

// The form of an error response that suits a client. RK_FORMAT_PAGE is for a browser on this
// machine.
enum rk_error_format { RK_FORMAT_TEXT = 0, RK_FORMAT_JSON = 1, RK_FORMAT_PAGE = 2 };
int rk_error_format(uint32_t slot, uint64_t id);


// HTTPS
// Take settings as lines `name=value`.
void* rk_tls_new(struct rk_bytes lines);
void rk_tls_free(void* tls);
int rk_tls_reload(uint32_t listener);
int rk_has_tls(void);  // may be called in a signal handler
int rk_tls_development_certificate(const char* folder, struct rk_bytes* file,
    struct rk_bytes* fingerprint, int* is_new);
int rk_client_certificate(uint32_t slot, uint64_t id, struct rk_bytes* subject,
    struct rk_bytes* fingerprint);

// WebSockets

// The result of sending a message. After RK_SEND_FULL, RK_WS_DRAINED follows.
enum rk_send { RK_SEND_CLOSED = -1, RK_SEND_FULL = 0, RK_SEND_MORE = 1 };

// The compression of messages; level 0 turns it off.
struct rk_ws_compression {
    int32_t level;
    int32_t keeps_window;
    uint64_t threshold;
};

int rk_ws_accept(uint32_t slot, uint64_t id, const struct rk_bytes* protocols, size_t count,
                 struct rk_ws_compression compression, struct rk_bytes* chosen);
void rk_ws_bind(uint64_t id, uint64_t token);
void rk_ws_unbind(uint64_t id);
// returns the number of WebSockets
size_t rk_ws_list(uint32_t listener, uint64_t* tokens, size_t capacity);
int rk_ws_send(uint64_t id, int is_text, const void* start, size_t len);
int rk_ws_lend(uint64_t id, int is_text, const void* start, size_t len, uint64_t token);
int64_t rk_ws_queued_bytes(uint64_t id);  // -1 after the end
void rk_ws_ping(uint64_t id);
void rk_ws_close(uint64_t id, int code, const char* reason, size_t len);
void rk_ws_abort(uint64_t id);

// streamed responses

// Bits 8 and higher have the seconds of silence after which a comment is sent in an event stream.
enum rk_stream_rule { RK_PULLED = 1, RK_PROMPT = 2, RK_EVENTS = 4, RK_COMPRESSIBLE = 8 };
// The result of writing a chunk. RK_WRITE_MORE and RK_WRITE_FULL (wait for RK_STREAM_DRAINED) mean
// that the chunk was queued. With RK_WRITE_SLOW the stream was aborted.
enum rk_write { RK_WRITE_MORE = 0, RK_WRITE_FULL = 1, RK_WRITE_CLOSED = 2, RK_WRITE_SLOW = 3,
    RK_WRITE_TOO_LONG = 4 };
enum rk_stream_end { RK_END_DONE = 0, RK_END_CLIENT = 1, RK_END_ERROR = 2, RK_END_SLOW = 3,
    RK_END_TIMEOUT = 4, RK_END_STOP = 5 };

int rk_response_stream(uint32_t slot, uint64_t id, int rules, uint64_t token);
int rk_stream_write(uint64_t id, const void* start, size_t len, int may_go_on);
int rk_stream_lend(uint64_t id, const void* start, size_t len, uint64_t token, int may_go_on);
void rk_streams_yield(void);
void rk_stream_send_head(uint64_t id);
// the number of bytes missing from its Content-Length; if it is not 0, the stream was not ended
uint64_t rk_stream_finish(uint64_t id);
void rk_stream_abort(uint64_t id, const char* page, size_t len);
int64_t rk_stream_queued_bytes(uint64_t id);  // -1 after the end
uint64_t rk_stream_written_bytes(uint64_t id);
uint64_t rk_stream_written_chunks(uint64_t id);

// WebSocket clients

struct rk_client_setup {
    struct rk_bytes url;
    struct rk_bytes ca;  // PEM text, or the path of a PEM file; empty: the system's authorities
    const struct rk_bytes* protocols;
    size_t protocol_count;
    const struct rk_bytes* headers;  // alternating names and values
    size_t header_count;
    double message;  // maximum size in bytes
    double queue;
    double connect_time;  // seconds
    double close_time;
    double ping_time;  // Inf: no pings
    double pong_time;
    int32_t compresses;
    uint32_t group;  // the group of clients whose events are taken together
};

enum rk_client_kind { RK_CLIENT_OPENED = 1, RK_CLIENT_MESSAGE = 2, RK_CLIENT_CLOSED = 3,
    RK_CLIENT_FAILED = 4 };

struct rk_client_event {
    int32_t kind;
    int32_t code;  // the close code; for RK_CLIENT_FAILED the status of the response, or 0
    int32_t is_text;
    int32_t is_clean;
    uint64_t id;
    uint64_t token;
    struct rk_bytes data;  // the subprotocol, the message, the reason, or the error
};

#if UINTPTR_MAX == UINT64_MAX
_Static_assert(sizeof(struct rk_client_setup) == 120 &&
    offsetof(struct rk_client_setup, message) == 64 &&
                   offsetof(struct rk_client_setup, group) == 116,
               "rk_client_setup");
_Static_assert(sizeof(struct rk_client_event) == 48 && offsetof(struct rk_client_event, id) == 16 &&
                   offsetof(struct rk_client_event, data) == 32,
               "rk_client_event");
#endif

enum rk_client_send_status { RK_CLIENT_SENT = 0, RK_CLIENT_FULL = 1, RK_CLIENT_ENDED = 2 };

int rk_client_check(struct rk_bytes url);
int rk_client_open(const struct rk_client_setup* setup, void (*wake)(uint32_t group),
    uint64_t token, uint64_t* id);
int rk_client_send(uint64_t id, int is_text, const void* start, size_t len);
void rk_client_close(uint64_t id, int code, const char* reason, size_t len);
uint64_t rk_client_abandon(uint64_t id);  // returns the client's token
uint64_t rk_client_queued_bytes(uint64_t id);
int rk_client_next(uint32_t group, struct rk_client_event* event);
int rk_client_has_events(uint32_t group);
void rk_client_stop(void);

int rk_is_utf8(const char* start, size_t len);

// tokens of lent memory that Rust no longer uses
size_t rk_released(uint64_t* tokens, size_t capacity);

// access log

enum rk_log_format {
    RK_LOG_COMMON = 0,
    RK_LOG_JSON = 1,
    RK_LOG_COMBINED = 2,
    RK_LOG_TERMINAL = 3,
    RK_LOG_FIELDS = 4
};

// Logs to the file `path`, or if it is NULL to the descriptor `fd`, which Rust closes. With -1,
// rk_log_next() returns the records.
int rk_log_open(const char* path, int fd, int format);
// the next record as a line of fields, which is valid until the next call; 0 without one
int rk_log_next(struct rk_bytes* line);
uint64_t rk_log_lost(void);
void rk_log_close(void);
void rk_output_init(void);   // called once
void rk_output_flush(void);  // called before the process ends
int rk_output_json(int is_on);

// static paths of a listener; a site is opaque to C, see static_paths.c
struct rk_static_path {
    struct rk_bytes key;
    struct rk_bytes path;
    struct rk_bytes html_charset;
    struct rk_bytes validation_name;   // empty: none
    struct rk_bytes validation_value;
    const struct rk_bytes* headers;    // alternating names and values
    size_t header_count;
    int32_t is_excluded;
    int32_t has_index;
    int32_t falls_through;
    int32_t is_site;
};

#if UINTPTR_MAX == UINT64_MAX
_Static_assert(sizeof(struct rk_static_path) == 112 &&
    offsetof(struct rk_static_path, headers) == 80 &&
                   offsetof(struct rk_static_path, falls_through) == 104,
               "rk_static_path");
#endif

void* rk_site_new(void);
void rk_site_free(void* site);
int rk_site_add(void* site, const struct rk_static_path* path);  // -1: see rk_error()
// serves the added paths; 1: the supervisor has not confirmed the change
int rk_site_publish(void* site);

// text ---------------------------------------------------------------------
//
// A returned text is valid until rk_text_free(), which frees the last one.

int rk_ip_family(struct rk_bytes text);  // 4, 6, or -1 if it is not an address
struct rk_bytes rk_base64(struct rk_bytes bytes);
struct rk_bytes rk_uri_encode(struct rk_bytes text, int is_whole);
int rk_is_secret_name(struct rk_bytes name);
// Returns the text with the name `what`, see text/for_r.rs.
struct rk_bytes rk_text(struct rk_bytes what, const struct rk_bytes* inputs, size_t count);
// 0 if the result has a NUL
int rk_uri_decode(struct rk_bytes text, int is_whole, struct rk_bytes* out);
void rk_text_free(void);  // called when the returned text was copied

#endif
