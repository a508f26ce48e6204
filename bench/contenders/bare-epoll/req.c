/* The Rook environment of one request: every binding that httpuv makes, with ordinary values.
 *
 * Strings that do not change are made once: constants for the process, the client's address for the
 * connection, and names of headers at their first use. Values of the request are copied, which
 * cannot be avoided. */
#include "bare_epoll.h"
#include <stdlib.h>
#include <string.h>

struct name {
    char *lower;
    uint32_t length;
    uint32_t hash;
    SEXP symbol; /* HTTP_ACCEPT */
    SEXP string; /* "accept", a CHARSXP */
};

#define NAME_SLOTS 8192 /* twice MAX_NAMES, so that probing always ends at an empty slot */
static struct name names[NAME_SLOTS];
static int name_count;
static SEXP name_strings; /* keeps the CHARSXPs of `names` alive */

static SEXP sym_method, sym_script, sym_path, sym_query, sym_version, sym_scheme, sym_server_name;
static SEXP sym_server_port, sym_remote_addr, sym_remote_port, sym_headers, sym_input, sym_errors;
static SEXP sym_httpuv, sym_type, sym_length;
static SEXP str_empty, str_version, str_http, str_get, str_post, str_server_name, str_server_port;
static SEXP val_null_input, val_errors, val_httpuv, fun_input, no_headers;

static SEXP constant(const char *text) {
    SEXP string = Rf_mkString(text);
    R_PreserveObject(string);
    MARK_NOT_MUTABLE(string);
    return string;
}

void req_init(SEXP constants, const char *server_name, int server_port) {
    char port[16];
    snprintf(port, sizeof port, "%d", server_port);
    name_strings = Rf_allocVector(STRSXP, MAX_NAMES);
    R_PreserveObject(name_strings);
    R_PreserveObject(constants);
    val_null_input = VECTOR_ELT(constants, 0);
    val_errors = VECTOR_ELT(constants, 1);
    val_httpuv = VECTOR_ELT(constants, 2);
    fun_input = VECTOR_ELT(constants, 3);
    MARK_NOT_MUTABLE(val_httpuv);
    no_headers = Rf_allocVector(STRSXP, 0);
    R_PreserveObject(no_headers);
    Rf_setAttrib(no_headers, R_NamesSymbol, Rf_allocVector(STRSXP, 0));
    MARK_NOT_MUTABLE(no_headers);
    str_empty = constant("");
    str_version = constant("1.1-0");
    str_http = constant("http");
    str_get = constant("GET");
    str_post = constant("POST");
    str_server_name = constant(server_name);
    str_server_port = constant(port);
    sym_method = Rf_install("REQUEST_METHOD");
    sym_script = Rf_install("SCRIPT_NAME");
    sym_path = Rf_install("PATH_INFO");
    sym_query = Rf_install("QUERY_STRING");
    sym_version = Rf_install("rook.version");
    sym_scheme = Rf_install("rook.url_scheme");
    sym_server_name = Rf_install("SERVER_NAME");
    sym_server_port = Rf_install("SERVER_PORT");
    sym_remote_addr = Rf_install("REMOTE_ADDR");
    sym_remote_port = Rf_install("REMOTE_PORT");
    sym_headers = Rf_install("HEADERS");
    sym_input = Rf_install("rook.input");
    sym_errors = Rf_install("rook.errors");
    sym_httpuv = Rf_install("httpuv.version");
    sym_type = Rf_install("CONTENT_TYPE");
    sym_length = Rf_install("CONTENT_LENGTH");
}

static const struct name *name_of(struct span lower) {
    uint32_t hash = 2166136261u;
    for (uint32_t i = 0; i < lower.length; i++) {
        hash = (hash ^ (unsigned char)lower.start[i]) * 16777619u;
    }
    uint32_t slot = hash % NAME_SLOTS;
    while (names[slot].lower != NULL) {
        if (names[slot].hash == hash && names[slot].length == lower.length &&
            memcmp(names[slot].lower, lower.start, lower.length) == 0) {
            return &names[slot];
        }
        slot = (slot + 1) % NAME_SLOTS;
    }
    if (name_count == MAX_NAMES || lower.length > 9900) {
        return NULL;
    }
    char *cgi = malloc(lower.length + 6);
    char *copy = malloc(lower.length);
    if (cgi == NULL || copy == NULL) {
        Rf_error("out of memory");
    }
    memcpy(copy, lower.start, lower.length);
    memcpy(cgi, "HTTP_", 5);
    for (uint32_t i = 0; i < lower.length; i++) {
        char c = lower.start[i];
        cgi[5 + i] = c == '-' ? '_' : c >= 'a' && c <= 'z' ? (char)(c - 32) : c;
    }
    cgi[5 + lower.length] = 0;
    SEXP string = Rf_mkCharLenCE(lower.start, (int)lower.length, CE_NATIVE);
    SET_STRING_ELT(name_strings, name_count++, string);
    names[slot] = (struct name){copy, lower.length, hash, Rf_install(cgi), string};
    free(cgi);
    return &names[slot];
}

static void define_span(SEXP env, SEXP symbol, struct span span) {
    SEXP value = span.length == 0 ? str_empty
        : Rf_ScalarString(Rf_mkCharLenCE(span.start, (int)span.length, CE_NATIVE));
    PROTECT(value);
    Rf_defineVar(symbol, value, env);
    UNPROTECT(1);
}

static int compare_names(const struct header *a, const struct header *b) {
    uint32_t shorter = a->name.length < b->name.length ? a->name.length : b->name.length;
    int order = memcmp(a->name.start, b->name.start, shorter);
    return order != 0 ? order : (int)a->name.length - (int)b->name.length;
}

static int compare_headers(const void *a, const void *b) {
    const struct header *left = *(const struct header *const *)a;
    const struct header *right = *(const struct header *const *)b;
    int order = compare_names(left, right);
    return order != 0 ? order : left < right ? -1 : 1; /* equal names keep their order */
}

static void sort_headers(const struct header **order, int count) {
    if (count > 24) {
        qsort(order, (size_t)count, sizeof *order, compare_headers);
        return;
    }
    for (int i = 1; i < count; i++) {
        const struct header *moving = order[i];
        int j = i;
        for (; j > 0 && compare_names(order[j - 1], moving) > 0; j--) {
            order[j] = order[j - 1];
        }
        order[j] = moving;
    }
}

/* Returns the values of a name that occurs more than once, joined by a comma without a space, as
 * httpuv does. */
static SEXP join_values(const struct header **from, int count) {
    size_t total = 0;
    for (int i = 0; i < count; i++) {
        total += from[i]->value.length + 1;
    }
    char *joined = R_alloc(total, 1);
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        if (i > 0 && at > 0 && from[i]->value.length > 0) {
            joined[at++] = ',';
        }
        memcpy(joined + at, from[i]->value.start, from[i]->value.length);
        at += from[i]->value.length;
    }
    return Rf_mkCharLenCE(joined, (int)at, CE_NATIVE);
}

static void define_headers(SEXP env, const struct request *request) {
    const struct header *order[MAX_HEADERS];
    int count = request->header_count, distinct = 0;
    for (int i = 0; i < count; i++) {
        order[i] = &request->headers[i];
    }
    sort_headers(order, count);
    for (int i = 0; i < count; i++) {
        distinct += i == 0 || compare_names(order[i - 1], order[i]) != 0;
    }
    SEXP values = PROTECT(Rf_allocVector(STRSXP, distinct));
    SEXP value_names = PROTECT(Rf_allocVector(STRSXP, distinct));
    for (int i = 0, at = 0; i < count; at++) {
        int same = 1;
        while (i + same < count && compare_names(order[i], order[i + same]) == 0) {
            same++;
        }
        SEXP value = same == 1
                         ? Rf_mkCharLenCE(order[i]->value.start, (int)order[i]->value.length,
                             CE_NATIVE)
                         : join_values(order + i, same);
        SET_STRING_ELT(values, at, value);
        const struct name *name = name_of(order[i]->name);
        if (name == NULL) {
            SET_STRING_ELT(value_names, at, Rf_mkCharLenCE(order[i]->name.start,
                (int)order[i]->name.length, CE_NATIVE));
        } else {
            SET_STRING_ELT(value_names, at, name->string);
            SEXP string = PROTECT(Rf_ScalarString(value));
            Rf_defineVar(name->symbol, string, env);
            if (name->length == 12 && memcmp(name->lower, "content-type", 12) == 0) {
                Rf_defineVar(sym_type, string, env);
            } else if (name->length == 14 && memcmp(name->lower, "content-length", 14) == 0) {
                Rf_defineVar(sym_length, string, env);
            }
            UNPROTECT(1);
        }
        i += same;
    }
    Rf_setAttrib(values, R_NamesSymbol, value_names);
    Rf_defineVar(sym_headers, values, env);
    UNPROTECT(2);
}

SEXP req_build(const struct request *request, const struct peer *peer) {
    /* An unhashed frame is cheaper to make and to read up to some 30 bindings; with 200 headers it
     * is quadratic. */
    SEXP env = PROTECT(R_NewEnv(R_EmptyEnv, request->header_count > 24,
        request->header_count * 2 + 32));
    if (request->method.length == 3 && memcmp(request->method.start, "GET", 3) == 0) {
        Rf_defineVar(sym_method, str_get, env);
    } else if (request->method.length == 4 && memcmp(request->method.start, "POST", 4) == 0) {
        Rf_defineVar(sym_method, str_post, env);
    } else {
        define_span(env, sym_method, request->method);
    }
    Rf_defineVar(sym_script, str_empty, env);
    define_span(env, sym_path, request->path);
    define_span(env, sym_query, request->query);
    Rf_defineVar(sym_version, str_version, env);
    Rf_defineVar(sym_scheme, str_http, env);
    Rf_defineVar(sym_server_name, str_server_name, env);
    Rf_defineVar(sym_server_port, str_server_port, env);
    Rf_defineVar(sym_remote_addr, peer->address, env);
    Rf_defineVar(sym_remote_port, peer->port, env);
    if (request->header_count == 0) {
        Rf_defineVar(sym_headers, no_headers, env);
    } else {
        define_headers(env, request);
    }
    if (request->body.length == 0) {
        Rf_defineVar(sym_input, val_null_input, env);
    } else {
        SEXP raw = PROTECT(Rf_allocVector(RAWSXP, request->body.length));
        memcpy(RAW(raw), request->body.start, request->body.length);
        SEXP call = PROTECT(Rf_lang2(fun_input, raw));
        SEXP input = PROTECT(Rf_eval(call, R_GlobalEnv));
        Rf_defineVar(sym_input, input, env);
        UNPROTECT(3);
    }
    Rf_defineVar(sym_errors, val_errors, env);
    Rf_defineVar(sym_httpuv, val_httpuv, env);
    UNPROTECT(1);
    return env;
}
