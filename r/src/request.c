// The Rook environment of a request: a plain, writable environment with ordinary bindings whose values are copies.
#include "shim.h"

// HEADERS of the last request, reused when no header differs.
enum { LAST_MAX = 64 };
static SEXP last_headers;
static int32_t last_symbols[LAST_MAX];
static size_t last_count = SIZE_MAX;

// What of the headers equals the last request's.
struct sameness {
    bool values;
    bool names;
};

// Assigns the HTTP_* bindings.
static struct sameness bind_headers(SEXP req, const struct rk_event* event) {
    struct sameness is_same = {.values = event->header_count == last_count};
    is_same.names = is_same.values;
    for (size_t i = 0; i < event->header_count; i++) {
        const struct rk_header* header = &event->headers[i];
        bool was_cached = true;
        SEXP value = PROTECT(header_string(header, &was_cached));
        SEXP name = header_symbol(header);
        if (name != NULL) {
            Rf_defineVar(name, value, req);
        }
        is_same.names = is_same.names && header->symbol == last_symbols[i] && !header_is_ambiguous(header);
        is_same.values = is_same.values && is_same.names && was_cached;
        UNPROTECT(1);
    }
    return is_same;
}

static SEXP headers_vector(const struct rk_event* event, bool has_last_names) {
    R_xlen_t count = (R_xlen_t)event->header_count;
    SEXP values = PROTECT(Rf_allocVector(STRSXP, count));
    SEXP names = PROTECT(has_last_names ? Rf_getAttrib(last_headers, R_NamesSymbol) : Rf_allocVector(STRSXP, count));
    bool is_cacheable = event->header_count <= LAST_MAX;
    for (R_xlen_t i = 0; i < count; i++) {
        const struct rk_header* header = &event->headers[i];
        bool was_cached = true;
        SET_STRING_ELT(values, i, STRING_ELT(header_string(header, &was_cached), 0));
        if (!has_last_names) {
            SET_STRING_ELT(names, i, header_name(header));
        }
        // A value too long to be remembered would never compare as equal.
        is_cacheable = is_cacheable && was_cached && !header_is_ambiguous(header);
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

static const struct rk_header* find_header(const struct rk_event* event, int32_t symbol) {
    for (size_t i = 0; i < event->header_count; i++) {
        if (event->headers[i].symbol == symbol) {
            return &event->headers[i];
        }
    }
    return NULL;
}

// Indices in rookery-exchange's KNOWN_HEADERS.
enum { KNOWN_CONTENT_TYPE = 6, KNOWN_CONTENT_LENGTH = 7 };

static void bind_copy(SEXP req, SEXP name, const struct rk_event* event, int32_t symbol) {
    const struct rk_header* header = find_header(event, symbol);
    if (header != NULL) {
        bool was_cached;
        Rf_defineVar(name, PROTECT(header_string(header, &was_cached)), req);
        UNPROTECT(1);
    }
}

static void bind_field(SEXP req, SEXP name, enum field field, struct rk_bytes bytes) {
    Rf_defineVar(name, PROTECT(field_string(field, bytes)), req);
    UNPROTECT(1);
}

SEXP request_new(const struct rk_event* event) {
    SEXP req = PROTECT(event->body_len > 0 ? input_request(event) : R_NewEnv(R_EmptyEnv, FALSE, 0));
    struct sameness is_same = bind_headers(req, event);
    SEXP headers;
    if (event->header_count == 0) {
        headers = objs.no_headers;
    } else {
        headers = is_same.values ? last_headers : headers_vector(event, is_same.names);
    }
    Rf_defineVar(syms.headers, PROTECT(headers), req);
    bind_copy(req, syms.content_type, event, KNOWN_CONTENT_TYPE);
    bind_copy(req, syms.content_length, event, KNOWN_CONTENT_LENGTH);
    Rf_defineVar(syms.script_name, objs.empty_string, req);
    Rf_defineVar(syms.rook_version, objs.rook_version, req);
    Rf_defineVar(syms.url_scheme, event->is_https ? objs.url_scheme_https : objs.url_scheme, req);
    if (event->has_client) {
        tls_bind_client(req, event);
    }
    Rf_defineVar(syms.errors, objs.error_stream, req);
    Rf_defineVar(syms.httpuv_version, objs.httpuv_version, req);
    if (event->body_len == 0) {
        Rf_defineVar(syms.input, objs.null_input, req);
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

// The bindings that httpuv sets once more when a WebSocket is opened, whatever onHeaders did to them: of its own parts, all
// but those that depend on the body.
static bool is_set_again(SEXP name) {
    return name != syms.content_type && name != syms.content_length && name != syms.input && name != syms.errors &&
           name != syms.httpuv_version;
}

// What request_restore() needs. A copy: what an event lends is gone once R code has run.
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
