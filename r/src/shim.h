// The declarations that the C files of the package share. rookery.h has the interface to Rust.
//
// Map of the C files. No two of them call each other, directly or through other files.
//
//   start           init.c: registers the entry points (ffi_*), sets up the other files
//   event loop      event_loop.c: service(), takes events from Rust and dispatches them
//   requests        invocation.c: onHeaders, call and onWSOpen of an app
//                   receive_body.c: receive_body(), an upload in chunks
//                   response_stream.c: streamed responses after their start
//                   websocket.c: messages and callbacks of WebSockets
//                   deferred_response.c: responses of promises
//   diagnostics     stack_sampling.c: the functions on R's stack, while an activity takes long
//                   profile.c: profiles by route
//   errors          error_report.c: onError, stderr, and the response to a failed request
//   responses       response.c: from the value that an app returned to the response
//                   response_stream_start.c: a stream as the body of a response
//   request data    request.c: the Rook environment `req`
//                   rook_input.c, request_body.c: req$rook.input, and the memory behind it
//                   request_strings.c: strings that are cached from request to request
//                   lazy_strings.c: strings that are made at the first access
//                   tls.c: TLS settings, and the certificate of a client
//   objects of R    websocket_object.c, response_stream_start.c: objects with methods
//                   object_template.c: makes such objects without calls
//                   connection_handle.c: names a connection to R, and detects forks
//                   body_chunk.c: raw vectors for the chunks of an upload
//                   app_values.c, promise.c: reading apps, lists, classes and promises
//   listeners       listener.c, app_registry.c, static_paths.c, access_log.c,
//                   admin_listener.c
//   clients         websocket_client.c: WebSocketClient
//   processes       supervised_worker.c: this process as a worker of a supervisor
//                   program.c: the program that serve() starts for a path
//                   signals.c: SIGINT, SIGTERM, SIGHUP, SIGALRM
//   running R code  guarded_call.c: calls that no error, restart or interrupt can jump out of
//                   later_scheduling.c: package later, R's event loop
//   text            text_functions.c: functions whose work is done in Rust
//   leaves          globals.c: symbols, shared R objects, the table of kept objects
//                   event.c: the event that is being handled
#ifndef SHIM_H
#define SHIM_H
#define R_NO_REMAP
#include <R.h>
#include <R_ext/Rdynload.h>
#include <Rinternals.h>
#include <Rversion.h>
#include <signal.h>
#include <stdbool.h>
#include "rookery.h"
#if R_VERSION < R_Version(4, 5, 0)
// The names in R's documentation, for versions of R that do not have them.
#define R_ClosureFormals FORMALS
#define R_ClosureBody BODY
#define R_ClosureEnv CLOENV
#define ANY_ATTRIB(object) (ATTRIB(object) != R_NilValue)
#endif

// globals.c ----------------------------------------------------------------

extern struct symbols {
    SEXP method, script_name, path_info, query_string, rook_version, url_scheme;
    SEXP client_subject, client_fingerprint;
    SEXP server_name, server_port, remote_addr, remote_port;
    SEXP headers, content_type, content_length;
    SEXP input, errors, httpuv_version, body_data, request_route;
    SEXP call, on_headers, on_ws_open, message_callbacks, close_callbacks, drain_callbacks,
        protocol;
    SEXP status, response_headers, body, body_file, body_file_owned, file, owned;
    SEXP handle, request, paused, dollar;
    SEXP ticket, promise_impl, enclosing, private_fields, state, value;
    SEXP has_failed, is_answered;
    SEXP then, on_fulfilled, on_rejected, promise_domain;
    SEXP self, pull, heartbeat, map, is_events, is_ended, is_spent, route, exhausted, compress,
        loop, loop_place, lost, doing;
    SEXP request_id, origin, req;
} syms;

// R objects that are made once, by globals_init() and globals_prepare().
extern struct objects {
    SEXP empty_string, rook_version, url_scheme, url_scheme_https, no_headers;
    SEXP null_input, error_stream, httpuv_version, request_classes;
    SEXP globals, ns;
    SEXP input_parts, open_body, assign_body, close_body, websocket_parts, pushed_parts,
        events_parts, then, as_promise;
    SEXP on_body_chunk, body_process_queue, on_body_end;
    SEXP new_source, start_stream, await_chunk, on_stream_drained, on_stream_end;
    SEXP overflow, log_error, load_later_if_idle, handle_signals, watch_interrupts;
    SEXP interrupted_observer, session_token;
    SEXP trace, complete_error_report, call_on_error, write_error_report, error_response,
        note_app_500, limit_time;
    SEXP begin_call_span, begin_message_span, follow_promise, end_span;
} objs;

bool globals_init(SEXP ns, SEXP globals, SEXP shared);
void globals_prepare(SEXP shared);

// Raises an R error of class `class` and of class `rookery_error`; `format` is a format of
// printf(). Must not be called with a Rust frame on the stack.
_Noreturn void abort_with(const char* class, const char* format,
    ...) __attribute__((format(printf, 2, 3)));

// A table that keeps R objects alive, by token. Unlike with R_PreserveObject(), all operations are
// O(1).
uint64_t keep(SEXP object);
SEXP kept(uint64_t token);
void release(uint64_t token);
void release_returned(void);

// Returns the value of a variable in an environment, without its parents; NULL if it is unbound. A
// promise is forced.
SEXP variable(SEXP env, SEXP name);

// The number of forks between the process that loaded the package and this one. What C holds on
// behalf of another process is not valid in this one.
extern unsigned forks;

// request_body.c -----------------------------------------------------------

void body_init(DllInfo* dll);
SEXP body_bytes(uint32_t slot, uint64_t id, uint64_t from, R_xlen_t len);
SEXP ffi_lent_blocks(void);

// rook_input.c -------------------------------------------------------------

void input_init(void);
void input_bind(SEXP req, const struct rk_event* event);
void input_answered(uint32_t slot, uint64_t id);
void input_refused(void);
SEXP ffi_input_read(SEXP ticket, SEXP l);
SEXP ffi_input_tell(SEXP ticket);
SEXP ffi_input_seek(SEXP ticket, SEXP offset);
SEXP ffi_body_read(SEXP ticket, SEXP offset, SEXP n);
SEXP ffi_body_open(SEXP ticket);
SEXP ffi_body_opened(SEXP ticket, SEXP both);

// lazy_strings.c -----------------------------------------------------------

void lazy_strings_init(DllInfo* dll);
SEXP own_request_id(uint64_t id);
SEXP lazy_text(struct rk_bytes bytes);
SEXP lazy_trace_id(SEXP trace_parent);
SEXP lazy_headers(SEXP headers, SEXP element);

// request_strings.c --------------------------------------------------------

// The request fields whose last value is cached, so that an equal value is the same R object.
enum field {
    FIELD_METHOD,
    FIELD_PATH,
    FIELD_QUERY,
    FIELD_REMOTE_ADDR,
    FIELD_REMOTE_PORT,
    FIELD_LOCAL_ADDR,
    FIELD_LOCAL_PORT,
    FIELD_COUNT
};

void strings_init(void);
struct rk_bytes bytes_of_char(SEXP text);
bool fits_string(struct rk_bytes bytes);
SEXP make_char(struct rk_bytes bytes);
SEXP make_string(struct rk_bytes bytes);
SEXP utf8_text(SEXP text, struct rk_bytes* bytes);
SEXP sent_text(SEXP value);
SEXP field_string(enum field field, struct rk_bytes bytes);
SEXP header_string(const struct rk_header* header, bool* was_cached);
SEXP header_symbol(const struct rk_header* header);
SEXP header_name(const struct rk_header* header);

// request.c ----------------------------------------------------------------

SEXP request_new(const struct rk_event* event);
void request_bind_id(SEXP req, const struct rk_event* event);
void request_bind_trace(SEXP req, const struct rk_event* event);
void request_report_route(SEXP req, const struct rk_event* event);
SEXP request_save(SEXP req);
void request_restore(SEXP req, SEXP saved);

// tls.c --------------------------------------------------------------------

void tls_bind_client(SEXP req, const struct rk_event* event);
SEXP ffi_tls_new(SEXP lines);
SEXP ffi_tls_reload(SEXP listener);
SEXP ffi_tls_development_certificate(SEXP folder);

// otel.c -------------------------------------------------------------------

uint64_t otel_begin_call(const char* name, SEXP req);
uint64_t otel_begin_message(uint64_t parent);
void otel_follow(uint64_t token, SEXP promise);
void otel_end(uint64_t token, bool has_failed);
SEXP ffi_spans_in_r(SEXP is_in_r);

// guarded_call.c -----------------------------------------------------------

// The reasons for which a guarded call ended without a value.
enum failure {
    FAILURE_NONE,
    FAILURE_ERROR,     // a condition of class error
    FAILURE_OVERFLOW,  // the stack overflowed; the condition is made from the message
    FAILURE_OTHER,     // a condition that is not an error, or a restart
    FAILURE_INTERRUPT  // Ctrl-C
};

struct guard {
    SEXP (*body)(void* data);
    void* data;
    uint64_t token;  // of the value of guard_caught()
    enum failure failure;
};

void guard_init(void);
void guard_watch_interrupts(void);
void guard_begin(void);
void guard_end(void);
bool guard_is_active(void);
bool guard_is_too_deep(void);
void guard_forked(void);
void guard_interrupt_handler(void);
bool guard_withdraw_interrupt(void);
void guard_defer_interrupt(void);
void guard_set_at_terminal(void);
enum failure guard_run(struct guard* guard);
SEXP guard_caught(struct guard* guard);
SEXP caught_condition(SEXP caught);
SEXP caught_trace(SEXP caught);
const char* caught_text(SEXP caught);
SEXP caught_of(SEXP condition);
SEXP caught_with(SEXP condition, SEXP trace);
void guard_propagate_interrupt(enum failure failure);
void guard_forget_interrupt(void);
bool guard_is_interrupted(void);
void guard_check_interrupt(void);
SEXP call_quietly(SEXP call, bool* failed);
bool run_quietly(SEXP (*body)(void* data), void* data);
void log_error(const char* where, SEXP condition, const char* text);

// profile.c ----------------------------------------------------------------

void profile_handle(uint64_t request);
void profile_check(void);
SEXP profile_call(SEXP call, const char* name);
SEXP profile_call_request(SEXP call, uint32_t slot, uint64_t id);
void profile_forked(void);

// stack_sampling.c ---------------------------------------------------------

void stack_sampling_init(void);
void stack_sampling_close(void);
void stack_sampling_watch(const uint64_t* word);
void stack_sampling_forked(void);
unsigned activity_begin(void);
void activity_end(unsigned outer);
unsigned activity_current(void);
void activity_begin_between(void);
bool activity_is_between(void);
void activity_end_between(void);

// error_report.c -----------------------------------------------------------

// The maximum length of a route in reports, in bytes.
enum { ROUTE_MAX = 218 };

// The place and request of an error of an app. Unknown fields are 0 or NULL.
struct error_report {
    uint32_t listener;
    uint32_t slot;
    uint64_t id;
    const char* stage;  // onError's info$stage
    const char* label;  // the stage in words
    const char* route;
    SEXP request_id;    // for an exchange that R no longer holds
    SEXP req;
    double began;       // monotonic_seconds() when R began with the request
    bool is_answerable;
};

SEXP error_report_emit(const struct error_report* report, SEXP caught, const char* text);
void error_report_respond(const struct error_report* report, SEXP caught, const char* text);
void error_report_note_500(uint32_t slot, uint64_t id, int status);

// response.c ---------------------------------------------------------------

// The facts about a response that are needed after it was written.
struct written {
    int status;
    bool lacks_file;  // the response names a file that cannot be opened
    uint64_t stream;  // the token of a stream's source, for stream_start(); 0: no stream
};

// Write the app's response to an exchange. They return NULL, or a description of what is wrong.
const char* response_headers(uint32_t slot, uint64_t id, SEXP headers);
void response_time_rendering(bool is_timed);
const char* response_write(uint32_t slot, uint64_t id, SEXP value, struct written* written);
void response_send(uint32_t slot, uint64_t id);
void response_text(uint32_t slot, uint64_t id, int status, const char* type, const char* text,
    size_t len);

// event.c ------------------------------------------------------------------

// Seconds of a clock that never goes back.
double monotonic_seconds(void);
// Notes that C reads an event. What the event points to is overwritten by the next event, and any
// allocation may make R run finalizers of the app, which may call service() or run `later`.
void event_begin(void);
// Notes that C has copied all it needs of the event, so that other events may be taken.
void event_release(void);
bool event_is_being_read(void);
// Sets when the handling of the current event began, a value of monotonic_seconds().
void event_set_start(double now);
double event_start(void);
const char* stream_end_name(int32_t code);

// app_values.c -------------------------------------------------------------

SEXP app_field(SEXP app, SEXP name);
// Returns the element of a list (VECSXP) with exactly this name, or R_NilValue.
SEXP list_element(SEXP list, SEXP name);
// Returns a copy of a list (VECSXP) with one more element, without names.
SEXP list_with(SEXP list, SEXP element);
bool is_accepted_ws(SEXP value);
bool is_receiver(SEXP value);
// Whether a response's `body` is a streamed one: a function, a source or a stream object.
bool is_stream(SEXP body);

// promise.c ----------------------------------------------------------------

SEXP as_promise(SEXP value);
SEXP promise_value(SEXP promise);
SEXP ffi_promise_attach(SEXP promise, SEXP on_fulfilled, SEXP on_rejected);

// app_registry.c -----------------------------------------------------------

// The app of a listener, as app_set() has registered it.
struct app {
    uint32_t listener;
    uint64_t token;            // of the R object
    bool has_on_headers;
    uint64_t websocket_rules;  // token of what websocket_accept() takes
    bool keeps_req;            // whether `req` is kept for onError until the response is sent
    bool shows_id;             // whether requests have REQUEST_ID
    int detail;                // what clients see of errors: an index in `details`
    double max_seconds;        // time limit of R code for one request; 0: none
    int loop;                  // the index of the event loop of package later
};

// The data about an app that error reports contain. `app` is R_NilValue after the listener was
// stopped.
struct app_facts {
    SEXP app;
    const char* detail;
    bool is_httpuv;
};

void app_set(uint32_t listener, SEXP app, SEXP settings, SEXP websocket_rules);
// Copies the app of a listener to `out`; returns false if the listener has no app.
bool app_find(uint32_t listener, struct app* out);
struct app_facts app_facts(uint32_t listener);
void app_remove(uint32_t listener);

// invocation.c ------------------------------------------------------------

void on_request(const struct rk_event* event);

// deferred_response.c -----------------------------------------------------

SEXP ticket_new(uint32_t slot, uint64_t id);
bool deferred_respond(SEXP ticket, SEXP value, SEXP req, const char* label);

// object_template.c --------------------------------------------------------

struct object_template {
    SEXP methods;  // VECSXP of closures
    SEXP names;    // VECSXP of symbols
    SEXP classes;  // STRSXP
};

// Initializes a template from a list of named closures and classes, which the caller keeps alive.
void template_init(struct object_template* template, SEXP parts);
// Creates the methods with `enclosing` as their environment, binds them in `self`, and sets the
// classes of `self`. The bindings are not locked, because some objects have fields that change.
void template_bind(const struct object_template* template, SEXP enclosing, SEXP self);
// Returns a new object and the environment of its methods, which has the object as `self`. An app
// may keep a single method; every method keeps both alive.
SEXP template_new(const struct object_template* template, SEXP* enclosing);

// connection_handle.c ------------------------------------------------------

SEXP handle_new(uint64_t id);
double handle_id(SEXP handle, const char* what, const char* given);
double handle_id_here(SEXP handle);
SEXP ffi_handle_number(SEXP handle);

// body_chunk.c -------------------------------------------------------------

void chunk_init(DllInfo* dll);
SEXP chunk_new(const void* start, size_t len);
void chunk_recycle(SEXP chunk);

// receive_body.c -----------------------------------------------------------

const char* receive_begin(const struct rk_event* event, SEXP receiver, SEXP req);
void on_body_event(const struct rk_event* event);
SEXP ffi_receive_consumed(SEXP receiver, SEXP bytes);
SEXP ffi_receive_fail(SEXP receiver, SEXP condition, SEXP trace);
SEXP ffi_receive_respond(SEXP receiver, SEXP value);
SEXP ffi_receive_is_waiting(SEXP receiver);
SEXP ffi_receive_drop(SEXP receiver);

// response_stream_start.c --------------------------------------------------

void stream_object_init(void);
SEXP ffi_stream_object(SEXP source, SEXP status, SEXP headers, SEXP is_events);
// Returns a variable of a source, or R_NilValue.
SEXP stream_field(SEXP source, SEXP name);
const char* stream_set_body(uint32_t slot, uint64_t id, SEXP body, uint64_t* token);
void stream_start(uint64_t token);

// response_stream.c --------------------------------------------------------

void on_stream_event(const struct rk_event* event);
SEXP ffi_stream_on_fulfilled(SEXP source, SEXP value);
SEXP ffi_stream_fail(SEXP source, SEXP condition);
SEXP ffi_stream_on_collected(SEXP source, SEXP text);
SEXP ffi_stream_write(SEXP source, SEXP chunk);
SEXP ffi_stream_write_fast(SEXP source, SEXP chunk);
SEXP ffi_stream_command(SEXP source, SEXP what);
SEXP ffi_stream_state(SEXP source);

// websocket_object.c -------------------------------------------------------

void websocket_object_init(void);
SEXP websocket_object(SEXP handle, SEXP req, SEXP protocol);

// websocket.c --------------------------------------------------------------

const char* websocket_accept(const struct rk_event* event, SEXP accepted, SEXP rules,
    SEXP* protocol);
void websocket_open(const struct rk_event* event, SEXP app, SEXP req, SEXP protocol);
void on_message(const struct rk_event* event);
void on_close(const struct rk_event* event);
void on_drain(const struct rk_event* event);

// later_scheduling.c -------------------------------------------------------

// The tasks that package later runs for this package.
enum later_task {
    LATER_SERVE,    // takes events from Rust
    LATER_RELEASE,  // releases memory that the server has sent
    LATER_CLIENTS,  // takes events of WebSocket clients
    LATER_TASKS
};

// The maximum number of event loops that are in use at once.
enum { LATER_LOOPS = 64 };

void later_init(enum later_task task, void (*run)(int loop));
bool later_is_loaded(void);
void later_enable_wakeup(void);
void later_disable_wakeup(void);
void later_schedule(void);
void later_release(void);
void later_schedule_in(int loop, enum later_task task);
void later_expect(void);
bool later_is_expected(void);
bool later_run(double seconds, SEXP loop);
int later_current(void);
int later_loop_use(int id);
void later_loop_release(int at);
int later_add_server(void);
void later_remove_server(int at);
int later_begin_wait(SEXP* loop);
int later_wait_loop(void);
void later_set_wait_loop(int outer);
void later_close(void);
void later_forked(void);
SEXP ffi_later_use(SEXP run_now, SEXP current_loop);

// websocket_client.c -------------------------------------------------------

void client_init(void);
void client_forked(void);
SEXP ffi_client_loop(void);
void client_last_events(void);
SEXP ffi_client_check(SEXP url);
SEXP ffi_client_open(SEXP core, SEXP setup);
SEXP ffi_client_send(SEXP handle, SEXP message);
SEXP ffi_client_close(SEXP handle, SEXP code, SEXP reason);
SEXP ffi_client_abandon(SEXP handle);
SEXP ffi_client_queued_bytes(SEXP handle);

// event_loop.c -------------------------------------------------------------

void event_loop_init(void);
extern int interrupts;

// signals.c ----------------------------------------------------------------

bool stop_is_requested(void);
bool has_stopped_all_servers(void);
bool signals_are_watched(void);
bool interrupt_is_pending(void);
bool reload_is_requested(void);
void take_reload_request(void);
void take_stop_request(void);
void signals_pass_to(int pid);
void signals_send(int pid, int signal_number);
void signals_forked(void);
void signals_count_listener(int change);
void signals_are_supervised(void);
void signals_end(int is_time_over);
int signals_passed(void);
void signals_interrupt(void);
bool signal_is_ignored(int signal_number);

// supervised_worker.c ------------------------------------------------------

void worker_init(void);
void worker_collect(void);
void worker_check_interrupt(void);
void worker_forget_interrupt(void);

// access_log.c -------------------------------------------------------------

// Whether an R function gets the records of the access log.
bool log_is_read(void);

// entry points (init.c registers them) --------------------------------------

SEXP ffi_limits_set(SEXP values);
SEXP ffi_listen_tcp(SEXP host, SEXP port, SEXP setup);
SEXP ffi_listen_unix(SEXP path, SEXP mask, SEXP setup);
SEXP ffi_stop(SEXP listener);
SEXP ffi_drain(SEXP listener);
SEXP ffi_connections(SEXP listener);
SEXP ffi_refuse(SEXP listener, SEXP held);

SEXP ffi_worker_state(void);
SEXP ffi_worker_gate(SEXP gate);
SEXP ffi_worker_serves(SEXP listener);
SEXP ffi_worker_interrupts_again(void);
SEXP ffi_admin_start(SEXP at, SEXP target);
SEXP ffi_admin_set_state(SEXP state, SEXP address);
SEXP ffi_admin_stop(void);
SEXP ffi_shares_errors(void);
SEXP ffi_share_error(SEXP texts);
SEXP ffi_span_error(SEXP texts);
SEXP ffi_signals_watch(SEXP seconds);
SEXP ffi_signals_unwatch(void);
SEXP ffi_signals_seen(void);
SEXP ffi_signals_left(void);
SEXP ffi_signals_closing(void);
SEXP ffi_note_interrupt(void);
SEXP ffi_program_start(SEXP program, SEXP arguments, SEXP input);
SEXP ffi_program_read(SEXP reports);
SEXP ffi_program_wait(SEXP pid, SEXP seconds);
SEXP ffi_program_signal(SEXP pid, SEXP signal_number);
SEXP ffi_program_forget(SEXP reports);
SEXP ffi_log_open(SEXP path, SEXP format);
SEXP ffi_output_json(SEXP is_on);
SEXP ffi_log_next(void);
SEXP ffi_log_lost(void);
SEXP ffi_log_close(void);

// text_functions.c ---------------------------------------------------------

// Copies text that Rust lends into an R string, and ends the loan.
SEXP copy_lent_text(struct rk_bytes text, cetype_t encoding);
enum { ERROR_MAX = 4096 };  // the maximum length of a message of rk_error(), with its NUL
SEXP last_error(void);
SEXP ffi_ip_family(SEXP ip);
SEXP ffi_base64(SEXP bytes);
SEXP ffi_is_secret_name(SEXP names);
SEXP ffi_text(SEXP what, SEXP inputs, SEXP is_native);
SEXP ffi_uri_encode(SEXP strings, SEXP is_whole);
SEXP ffi_uri_decode(SEXP strings, SEXP is_whole);
SEXP ffi_site_new(SEXP state);
SEXP ffi_site_set(SEXP site, SEXP keys, SEXP paths);
SEXP ffi_site_state(SEXP site);
SEXP ffi_service(SEXP timeout_ms);
SEXP ffi_flush_end(void);
SEXP ffi_interrupt(void);
SEXP ffi_take_failure(void);
SEXP ffi_fail_for_test(void);
SEXP ffi_close(void);
SEXP ffi_last_events(void);
SEXP ffi_respond(SEXP ticket, SEXP value, SEXP req);
SEXP ffi_reject(SEXP ticket, SEXP condition, SEXP req);
SEXP ffi_ws_add(SEXP self, SEXP function, SEXP kind);
SEXP ffi_ws_remove(SEXP self, SEXP function, SEXP kind);
SEXP ffi_ws_send(SEXP handle, SEXP message);
SEXP ffi_ws_queued_bytes(SEXP handle);
SEXP ffi_ws_ping(SEXP handle);
SEXP ffi_ws_close(SEXP handle, SEXP code, SEXP reason);
SEXP ffi_websockets(SEXP listener);
SEXP ffi_rng_state(void);
SEXP ffi_live_bytes(void);
SEXP ffi_allocations(void);
#endif
