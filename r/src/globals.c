// Symbols and R objects that are made once, and the table of kept R objects.
#include <stdarg.h>

#include "shim.h"

struct symbols syms;
struct objects objs;
unsigned forks;

_Noreturn void abort_with(const char* class, const char* format, ...) {
    // The maximum length of R's own messages.
    char text[8192];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    SEXP message = PROTECT(Rf_mkString(text));
    SEXP call = PROTECT(Rf_lang3(Rf_install("abort"), message, PROTECT(Rf_mkString(class))));
    Rf_eval(call, objs.ns);
    // This line is not reached, because abort() has raised the error.
    Rf_error("%s", text);
}

static SEXP root;         // VECSXP with the table as its element
static SEXP table;        // VECSXP of kept objects
static uint64_t* spare;   // a stack of free indices
static size_t spare_count;
static const R_xlen_t first_table = 64;

// Doubles the table if no index is free. Allocating may run a finalizer of the app, which may keep
// and release other objects and thereby enlarge the table as well, so the state is checked again
// after the last allocation. Only the root is preserved: R_PreserveObject() allocates, and loses an
// object that a finalizer preserves meanwhile.
static void table_grow(void) {
    R_xlen_t old = XLENGTH(table);
    SEXP bigger = PROTECT(Rf_allocVector(VECSXP, old * 2));
    if (spare_count > 0 || XLENGTH(table) != old) {
        UNPROTECT(1);
        return;
    }
    uint64_t* more = realloc(spare, sizeof(uint64_t) * (size_t)old * 2);
    if (more == NULL) {
        Rf_error("rookery: out of memory for %ld kept objects", (long)old * 2);
    }
    spare = more;
    for (R_xlen_t i = 0; i < old; i++) {
        SET_VECTOR_ELT(bigger, i, VECTOR_ELT(table, i));
    }
    SET_VECTOR_ELT(root, 0, bigger);
    UNPROTECT(1);
    table = bigger;
    for (R_xlen_t i = old * 2; i > old; i--) {
        spare[spare_count++] = (uint64_t)i - 1;
    }
}

// A token is the index plus one, so that 0 stands for none.
uint64_t keep(SEXP object) {
    while (spare_count == 0) {
        PROTECT(object);
        table_grow();
        UNPROTECT(1);
    }
    uint64_t index = spare[--spare_count];
    SET_VECTOR_ELT(table, (R_xlen_t)index, object);
    return index + 1;
}

SEXP kept(uint64_t token) {
    return token == 0 ? R_NilValue : VECTOR_ELT(table, (R_xlen_t)token - 1);
}

void release(uint64_t token) {
    if (token != 0) {
        SET_VECTOR_ELT(table, (R_xlen_t)token - 1, R_NilValue);
        spare[spare_count++] = token - 1;
    }
}

// Releases the objects whose memory Rust has sent.
void release_returned(void) {
    uint64_t tokens[64];
    size_t count;
    while ((count = rk_released(tokens, 64)) > 0) {
        for (size_t i = 0; i < count; i++) {
            release(tokens[i]);
        }
    }
}

static SEXP constant_string(const char* text) {
    SEXP string = Rf_mkString(text);
    R_PreserveObject(string);
    MARK_NOT_MUTABLE(string);
    return string;
}

SEXP variable(SEXP env, SEXP name) {
#if R_VERSION >= R_Version(4, 5, 0)
    // R_MissingArg cannot be the value of a variable.
    SEXP value = R_getVarEx(name, env, FALSE, R_MissingArg);
    return value == R_MissingArg ? NULL : value;
#else
    SEXP value = Rf_findVarInFrame(env, name);
    if (value == R_UnboundValue || TYPEOF(value) != PROMSXP) {
        return value == R_UnboundValue ? NULL : value;
    }
    PROTECT(value);
    value = Rf_eval(value, R_BaseEnv);
    UNPROTECT(1);
    return value;
#endif
}

static SEXP shared_object(SEXP shared, const char* name) {
    SEXP value = variable(shared, Rf_install(name));
    if (value == NULL) {
        Rf_error("rookery: internal error: `%s` is missing from the shared objects", name);
    }
    R_PreserveObject(value);
    return value;
}

static void symbols_init(void) {
    syms = (struct symbols){
        .method = Rf_install("REQUEST_METHOD"),
        .script_name = Rf_install("SCRIPT_NAME"),
        .path_info = Rf_install("PATH_INFO"),
        .query_string = Rf_install("QUERY_STRING"),
        .rook_version = Rf_install("rook.version"),
        .url_scheme = Rf_install("rook.url_scheme"),
        .client_subject = Rf_install("TLS_CLIENT_SUBJECT"),
        .client_fingerprint = Rf_install("TLS_CLIENT_FINGERPRINT"),
        .server_name = Rf_install("SERVER_NAME"),
        .server_port = Rf_install("SERVER_PORT"),
        .remote_addr = Rf_install("REMOTE_ADDR"),
        .remote_port = Rf_install("REMOTE_PORT"),
        .headers = Rf_install("HEADERS"),
        .content_type = Rf_install("CONTENT_TYPE"),
        .content_length = Rf_install("CONTENT_LENGTH"),
        .input = Rf_install("rook.input"),
        .errors = Rf_install("rook.errors"),
        .httpuv_version = Rf_install("httpuv.version"),
        .body_data = Rf_install(".bodyData"),
        .request_route = Rf_install("ROUTE"),
        .call = Rf_install("call"),
        .on_headers = Rf_install("onHeaders"),
        .on_ws_open = Rf_install("onWSOpen"),
        .message_callbacks = Rf_install("messageCallbacks"),
        .close_callbacks = Rf_install("closeCallbacks"),
        .drain_callbacks = Rf_install("drainCallbacks"),
        .protocol = Rf_install("protocol"),
        .status = Rf_install("status"),
        .response_headers = Rf_install("headers"),
        .body = Rf_install("body"),
        .body_file = Rf_install("bodyFile"),
        .body_file_owned = Rf_install("bodyFileOwned"),
        .file = Rf_install("file"),
        .owned = Rf_install("owned"),
        .handle = Rf_install("handle"),
        .request = Rf_install("request"),
        .paused = Rf_install("paused"),
        .dollar = Rf_install("$"),
        .ticket = Rf_install(".ticket"),
        .promise_impl = Rf_install("promise_impl"),
        .enclosing = Rf_install(".__enclos_env__"),
        .private_fields = Rf_install("private"),
        .state = Rf_install("state"),
        .value = Rf_install("value"),
        .then = Rf_install("then"),
        .on_fulfilled = Rf_install("onFulfilled"),
        .on_rejected = Rf_install("onRejected"),
        .promise_domain = Rf_install("current_promise_domain"),
        .pull = Rf_install("pull"),
        .has_failed = Rf_install("has_failed"),
        .is_answered = Rf_install("is_answered"),
        .self = Rf_install("self"),
        .heartbeat = Rf_install("heartbeat"),
        .map = Rf_install("map"),
        .is_events = Rf_install("is_events"),
        .is_ended = Rf_install("is_ended"),
        .is_spent = Rf_install("is_spent"),
        .route = Rf_install("route"),
        .compress = Rf_install("compress"),
        .request_id = Rf_install("REQUEST_ID"),
        .origin = Rf_install("origin"),
        .req = Rf_install("req"),
        .lost = Rf_install("lost"),
        .doing = Rf_install("doing"),
        .loop = Rf_install("loop"),
        .loop_place = Rf_install("loop_place"),
        .exhausted = Rf_install(".__exhausted__."),
    };
}

static void table_init(void) {
    root = Rf_allocVector(VECSXP, 1);
    R_PreserveObject(root);
    table = Rf_allocVector(VECSXP, first_table);
    SET_VECTOR_ELT(root, 0, table);
    spare = malloc(sizeof(uint64_t) * (size_t)first_table);
    if (spare == NULL) {
        Rf_error("rookery: out of memory");
    }
    for (R_xlen_t i = first_table; i > 0; i--) {
        spare[spare_count++] = (uint64_t)i - 1;
    }
}

// Initializes symbols and objects. `shared` is an environment with R objects and closures. If the
// package is loaded again, the shared object may still be loaded, with its table of kept objects,
// but the objects are those of the new namespace. Returns whether this is the first load.
bool globals_init(SEXP ns, SEXP globals, SEXP shared) {
    bool is_first = table == NULL;
    if (is_first) {
        symbols_init();
        table_init();
    }

    // The previous namespace stays preserved, because an app may use its objects.
    objs.ns = ns;
    objs.globals = globals;
    R_PreserveObject(ns);
    R_PreserveObject(globals);
    objs.empty_string = constant_string("");
    objs.rook_version = constant_string("1.1-0");
    objs.url_scheme = constant_string("http");
    objs.url_scheme_https = constant_string("https");
    objs.no_headers = Rf_allocVector(STRSXP, 0);
    R_PreserveObject(objs.no_headers);
    Rf_setAttrib(objs.no_headers, R_NamesSymbol, PROTECT(Rf_allocVector(STRSXP, 0)));
    UNPROTECT(1);
    MARK_NOT_MUTABLE(objs.no_headers);
    objs.overflow = shared_object(shared, "overflow");
    objs.log_error = shared_object(shared, "log_error");
    objs.load_later_if_idle = shared_object(shared, "load_later_if_idle");
    objs.handle_signals = shared_object(shared, "handle_signals");
    objs.watch_interrupts = shared_object(shared, "watch_interrupts");
    objs.interrupted_observer = shared_object(shared, "interrupted_observer");
    objs.session_token = shared_object(shared, "session_token");
    objs.trace = shared_object(shared, "trace");

    return is_first;
}

// Adds the objects for requests and WebSockets before the first server is started, see prepare() in
// R/package-load.R.
void globals_prepare(SEXP shared) {
    objs.null_input = shared_object(shared, "null_input");
    objs.error_stream = shared_object(shared, "error_stream");
    objs.httpuv_version = shared_object(shared, "httpuv_version");
    MARK_NOT_MUTABLE(objs.httpuv_version);
    objs.request_classes = shared_object(shared, "request_classes");
    MARK_NOT_MUTABLE(objs.request_classes);
    objs.input_parts = shared_object(shared, "input_parts");
    objs.open_body = shared_object(shared, "open_body");
    objs.assign_body = shared_object(shared, "assign_body");
    objs.close_body = shared_object(shared, "close_body");
    objs.websocket_parts = shared_object(shared, "websocket_parts");
    objs.pushed_parts = shared_object(shared, "pushed_parts");
    objs.events_parts = shared_object(shared, "events_parts");
    objs.then = shared_object(shared, "then");
    objs.as_promise = shared_object(shared, "as_promise");
    objs.complete_error_report = shared_object(shared, "complete_error_report");
    objs.call_on_error = shared_object(shared, "call_on_error");
    objs.write_error_report = shared_object(shared, "write_error_report");
    objs.error_response = shared_object(shared, "error_response");
    objs.note_app_500 = shared_object(shared, "note_app_500");
    objs.limit_time = shared_object(shared, "limit_time");
    objs.begin_call_span = shared_object(shared, "begin_call_span");
    objs.begin_message_span = shared_object(shared, "begin_message_span");
    objs.follow_promise = shared_object(shared, "follow_promise");
    objs.end_span = shared_object(shared, "end_span");
    objs.on_body_chunk = shared_object(shared, "on_body_chunk");
    objs.body_process_queue = shared_object(shared, "body_process_queue");
    objs.on_body_end = shared_object(shared, "on_body_end");
    objs.new_source = shared_object(shared, "new_source");
    objs.start_stream = shared_object(shared, "start_stream");
    objs.await_chunk = shared_object(shared, "await_chunk");
    objs.on_stream_drained = shared_object(shared, "on_stream_drained");
    objs.on_stream_end = shared_object(shared, "on_stream_end");
}

SEXP ffi_rng_state(void) {
    GetRNGstate();
    return R_NilValue;
}

SEXP ffi_live_bytes(void) {
    return Rf_ScalarReal((double)rk_live_bytes());
}

SEXP ffi_allocations(void) {
    return Rf_ScalarReal((double)rk_allocations());
}
