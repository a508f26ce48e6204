// The Rook environment of a request: a plain environment with ordinary bindings, whose values are
// copies. Only headers whose names are not interned are no bindings.
#include <string.h>

#include "shim.h"

// HEADERS of the last request, reused if all headers besides traceparent are equal.
enum { LAST_MAX = 256 };
static SEXP last_headers;
static int32_t last_symbols[LAST_MAX];
static size_t last_count = SIZE_MAX;

// Which parts of the headers are equal to those of the last request.
struct sameness {
    bool values;
    bool names;
};

// Indices in KNOWN_HEADERS of rookery-exchange.
enum { KNOWN_CONTENT_TYPE = 6, KNOWN_CONTENT_LENGTH = 7, KNOWN_X_REQUEST_ID = 28,
    KNOWN_TRACEPARENT = 42 };

// True if the id of the last request may come from a header or from the supervisor.
static bool is_id_external;

// HTTP_TRACEPARENT of the last request, which protects the string; NULL if the request has none.
// The string is lazy and left out of `last_headers`, because no two requests have the same.
static SEXP trace_parent;

// Stores the `count` headers whose names are not interned in an attribute, and gives the request
// the class whose methods find them there, see R/unbound-headers.R. R frees these names with the
// request.
static void attach_unbound(SEXP req, const struct rk_event* event, R_xlen_t count) {
    SEXP values = PROTECT(Rf_allocVector(STRSXP, count));
    SEXP names = PROTECT(Rf_allocVector(STRSXP, count));
    R_xlen_t at = 0;
    for (size_t i = 0; i < event->header_count; i++) {
        const struct rk_header* header = &event->headers[i];
        if (header->symbol < 0 && header->cgi.len > 0) {
            SET_STRING_ELT(values, at, make_char(header->value));
            SET_STRING_ELT(names, at, make_char(header->cgi));
            at++;
        }
    }
    Rf_setAttrib(values, R_NamesSymbol, names);
    Rf_setAttrib(req, Rf_install("unbound_headers"), values);
    Rf_setAttrib(req, R_ClassSymbol, objs.request_classes);
    UNPROTECT(2);
}

// Sets the HTTP_* bindings, and those of the body's headers.
static struct sameness bind_headers(SEXP req, const struct rk_event* event) {
    struct sameness is_same = {.values = event->header_count == last_count};
    is_same.names = is_same.values;
    is_id_external = event->has_supervisor_request_id != 0;
    trace_parent = NULL;
    R_xlen_t unbound = 0;
    for (size_t i = 0; i < event->header_count; i++) {
        const struct rk_header* header = &event->headers[i];
        bool was_cached = true;
        bool is_trace = header->symbol == KNOWN_TRACEPARENT;
        SEXP value = PROTECT(is_trace ? lazy_text(header->value)
            : header_string(header, &was_cached));
        SEXP name = header_symbol(header);
        if (name != NULL) {
            Rf_defineVar(name, value, req);
        } else if (header->cgi.len > 0) {
            unbound++;
        }
        switch (header->symbol) {
        case KNOWN_CONTENT_TYPE:
            Rf_defineVar(syms.content_type, value, req);
            break;
        case KNOWN_CONTENT_LENGTH:
            Rf_defineVar(syms.content_length, value, req);
            break;
        case KNOWN_TRACEPARENT:
            trace_parent = value;
            is_id_external = true;
            break;
        case KNOWN_X_REQUEST_ID:
            is_id_external = true;
            break;
        default:
            break;
        }
        is_same.names = is_same.names && header->symbol == last_symbols[i];
        is_same.values = is_same.values && is_same.names && was_cached;
        UNPROTECT(1);
    }
    if (unbound > 0) {
        attach_unbound(req, event, unbound);
    }
    return is_same;
}

static SEXP headers_vector(const struct rk_event* event, bool has_last_names) {
    R_xlen_t count = (R_xlen_t)event->header_count;
    SEXP values = PROTECT(Rf_allocVector(STRSXP, count));
    SEXP names = PROTECT(has_last_names ? Rf_getAttrib(last_headers, R_NamesSymbol)
        : Rf_allocVector(STRSXP, count));
    bool is_cacheable = event->header_count <= LAST_MAX;
    for (R_xlen_t i = 0; i < count; i++) {
        const struct rk_header* header = &event->headers[i];
        bool was_cached = true;
        SEXP value = header->symbol == KNOWN_TRACEPARENT ? NA_STRING
            : STRING_ELT(header_string(header, &was_cached), 0);
        SET_STRING_ELT(values, i, value);
        if (!has_last_names) {
            SET_STRING_ELT(names, i, header_name(header));
        }
        // A value that is too long for the cache would never compare as equal.
        is_cacheable = is_cacheable && was_cached;
        if (i < LAST_MAX) {
            last_symbols[i] = header->symbol;
        }
    }
    Rf_setAttrib(values, R_NamesSymbol, names);
    MARK_NOT_MUTABLE(values);
    if (last_headers != NULL) {
        R_ReleaseObject(last_headers);
        last_headers = NULL;
    }
    last_count = SIZE_MAX;
    if (is_cacheable) {
        R_PreserveObject(values);
        last_headers = values;
        last_count = event->header_count;
    }
    UNPROTECT(2);
    return values;
}

static void bind_field(SEXP req, SEXP name, enum field field, struct rk_bytes bytes) {
    Rf_defineVar(name, PROTECT(field_string(field, bytes)), req);
    UNPROTECT(1);
}

// Returns the environment for the bindings of a request. If there are few, a list of them is
// cheaper than a hash table, in which the time for a binding does not depend on their number.
static SEXP new_frame(const struct rk_event* event) {
    enum { LISTED_HEADERS = 24, OTHER_BINDINGS = 24 };
    bool is_listed = event->header_count <= LISTED_HEADERS;
    // R enlarges a table that is more than 0.85 full.
    int size = is_listed ? 0 : (int)(event->header_count + OTHER_BINDINGS) * 2;
    return R_NewEnv(R_EmptyEnv, !is_listed, size);
}

SEXP request_new(const struct rk_event* event) {
    SEXP req = PROTECT(new_frame(event));
    struct sameness is_same = bind_headers(req, event);
    SEXP headers;
    if (event->header_count == 0) {
        headers = objs.no_headers;
    } else {
        headers = is_same.values ? last_headers : headers_vector(event, is_same.names);
    }
    PROTECT(headers);
    if (trace_parent != NULL) {
        headers = lazy_headers(headers, trace_parent);
    }
    Rf_defineVar(syms.headers, headers, req);
    Rf_defineVar(syms.script_name, objs.empty_string, req);
    Rf_defineVar(syms.rook_version, objs.rook_version, req);
    Rf_defineVar(syms.url_scheme, event->is_https ? objs.url_scheme_https : objs.url_scheme, req);
    if (event->has_client_certificate) {
        tls_bind_client(req, event);
    }
    Rf_defineVar(syms.errors, objs.error_stream, req);
    Rf_defineVar(syms.httpuv_version, objs.httpuv_version, req);
    if (event->body_len == 0) {
        Rf_defineVar(syms.input, objs.null_input, req);
    } else {
        input_bind(req, event);
    }
    bind_field(req, syms.server_name, FIELD_LOCAL_ADDR, event->local_addr);
    bind_field(req, syms.server_port, FIELD_LOCAL_PORT, event->local_port);
    bind_field(req, syms.remote_addr, FIELD_REMOTE_ADDR, event->remote_addr);
    bind_field(req, syms.remote_port, FIELD_REMOTE_PORT, event->remote_port);
    bind_field(req, syms.query_string, FIELD_QUERY, event->query);
    bind_field(req, syms.path_info, FIELD_PATH, event->path);
    bind_field(req, syms.method, FIELD_METHOD, event->method);
    UNPROTECT(2);
    return req;
}

// Sets REQUEST_ID of the request that request_new() has just made.
void request_bind_id(SEXP req, const struct rk_event* event) {
    SEXP id;
    if (event->has_trace_request_id && trace_parent != NULL) {
        id = PROTECT(lazy_trace_id(trace_parent));
    } else if (is_id_external) {
        char text[129];
        rk_request_id(event->slot, event->id, text, sizeof text);
        id = PROTECT(lazy_text((struct rk_bytes){text, strlen(text)}));
    } else {
        id = PROTECT(own_request_id(event->id));
    }
    Rf_defineVar(syms.request_id, id, req);
    UNPROTECT(1);
}

// Sets HTTP_TRACEPARENT again in a request for which onHeaders was called before, because the
// context is that of another span.
void request_bind_trace(SEXP req, const struct rk_event* event) {
    for (size_t i = 0; i < event->header_count; i++) {
        const struct rk_header* header = &event->headers[i];
        if (header->symbol == KNOWN_TRACEPARENT) {
            SEXP value = PROTECT(lazy_text(header->value));
            Rf_defineVar(header_symbol(header), value, req);
            UNPROTECT(1);
        }
    }
}

// Passes on the route that the app has set as `req$ROUTE`, by which the request is counted. Any
// other value than a string is ignored, and so is a string that is marked as bytes, which R cannot
// translate.
void request_report_route(SEXP req, const struct rk_event* event) {
    if (!event->is_route_used) {
        return;
    }
    SEXP route = variable(req, syms.request_route);
    if (route == NULL || TYPEOF(route) != STRSXP || XLENGTH(route) != 1 ||
        STRING_ELT(route, 0) == NA_STRING || Rf_getCharCE(STRING_ELT(route, 0)) == CE_BYTES) {
        return;
    }
    const void* vmax = vmaxget();
    const char* text = Rf_translateCharUTF8(STRING_ELT(route, 0));
    rk_set_route(event->slot, event->id, (struct rk_bytes){text, strlen(text)});
    vmaxset(vmax);
}

// Returns whether httpuv sets a binding again when a WebSocket is opened, even if onHeaders has
// changed it: all of its own bindings except those about the body.
static bool is_set_again(SEXP name) {
    return name != syms.content_type && name != syms.content_length && name != syms.input &&
        name != syms.errors &&
           name != syms.httpuv_version;
}

// Copies the bindings for request_restore(), because the event is invalid after R code has run.
SEXP request_save(SEXP req) {
    SEXP call = PROTECT(Rf_lang2(Rf_install("as.list.environment"), req));
    SEXP saved = Rf_eval(call, R_BaseEnv);
    UNPROTECT(1);
    return saved;
}

void request_restore(SEXP req, SEXP saved) {
    SEXP names = PROTECT(Rf_getAttrib(saved, R_NamesSymbol));
    for (R_xlen_t i = 0; i < XLENGTH(saved); i++) {
        SEXP name = Rf_installTrChar(STRING_ELT(names, i));
        if (is_set_again(name)) {
            Rf_defineVar(name, VECTOR_ELT(saved, i), req);
        }
    }
    UNPROTECT(1);
}
