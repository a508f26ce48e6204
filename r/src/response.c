// Converts the value that an app returned to the response of an exchange. Each kind of mistake has
// an error message of its own.
#include <string.h>

#include "shim.h"

// Longer bodies are lent to Rust until they are sent; shorter ones are copied (rookery-exchange).
enum { LEND_BYTES = 64 * 1024 };

// Returns value$name without partial matching, for a list, an environment, an R6 object or a
// reference class object. Not protected, because a binding may be active.
static SEXP element(SEXP value, SEXP name) {
    if (TYPEOF(value) == ENVSXP || TYPEOF(value) == S4SXP) {
        return app_field(value, name);
    }
    return TYPEOF(value) == VECSXP ? list_element(value, name) : R_NilValue;
}

// Compares without strncasecmp(), which depends on the locale.
static bool is_content_length(struct rk_bytes name) {
    static const char wanted[] = "content-length";
    if (name.len != sizeof wanted - 1) {
        return false;
    }
    for (size_t i = 0; i < name.len; i++) {
        char letter = name.start[i];
        if ((letter >= 'A' && letter <= 'Z' ? letter + ('a' - 'A') : letter) != wanted[i]) {
            return false;
        }
    }
    return true;
}

// Calls as.list(); `value` is quoted, so that it is not evaluated.
static SEXP as_list(SEXP value) {
    SEXP quoted = PROTECT(Rf_lang2(R_QuoteSymbol, value));
    SEXP call = PROTECT(Rf_lang2(Rf_install("as.list"), quoted));
    SEXP result = Rf_eval(call, R_BaseEnv);
    UNPROTECT(2);
    return result;
}

// Returns the text of a header's value, formatted as by paste() with R's default options;
// R_NilValue if it does not have length one.
static SEXP header_text(SEXP value, struct rk_bytes name) {
    bool is_plain = !Rf_isObject(value);
    if (is_plain && TYPEOF(value) == REALSXP && XLENGTH(value) == 1 && is_content_length(name)
        && R_FINITE(REAL(value)[0])) {
        // as.character(1e5) is "1e+05", which is not a valid length.
        char digits[32];
        snprintf(digits, sizeof digits, "%.0f", REAL(value)[0]);
        return Rf_mkChar(digits);
    }
    switch (is_plain ? TYPEOF(value) : ANYSXP) {
    case LGLSXP:
    case INTSXP:
    case STRSXP:
        break;
    default:
        value = sent_text(value);
    }
    if (!Rf_isVectorAtomic(value) || XLENGTH(value) != 1) {
        return R_NilValue;
    }
    if (TYPEOF(value) == STRSXP) {
        return STRING_ELT(value, 0);
    }
    PROTECT(value);
    SEXP text = Rf_asChar(value);
    UNPROTECT(1);
    return text;
}

static const char* write_header(uint32_t slot, uint64_t id, struct rk_bytes name, SEXP text) {
    struct rk_bytes value;
    PROTECT(utf8_text(text, &value));
    int status = rk_response_header(slot, id, name, value);
    UNPROTECT(1);
    switch (status) {
    case RK_BAD_NAME:
        return "a name in `headers` is empty or has characters that a header's name cannot have";
    case RK_BAD_VALUE:
        return "a value in `headers` has a line break or a control character";
    case RK_TOO_MANY:
        return "`headers` must not have more than 10,000 elements";
    default:
        return NULL;
    }
}

// Returns NULL, or a description of what is wrong with the headers.
const char* response_headers(uint32_t slot, uint64_t id, SEXP headers) {
    if (headers == R_NilValue) {
        return NULL;
    }
    if (TYPEOF(headers) == ENVSXP || TYPEOF(headers) == LISTSXP ||
        (Rf_isVectorAtomic(headers) && TYPEOF(headers) != STRSXP)) {
        headers = as_list(headers);
    }
    if (TYPEOF(headers) != VECSXP && TYPEOF(headers) != STRSXP) {
        return "`headers` must be a named list or a named character vector";
    }
    PROTECT(headers);
    R_xlen_t count = XLENGTH(headers);
    SEXP names = PROTECT(Rf_getAttrib(headers, R_NamesSymbol));
    if (count > 0 && names == R_NilValue) {
        UNPROTECT(2);
        return "`headers` must have names";
    }
    const char* problem = NULL;
    for (R_xlen_t i = 0; i < count && problem == NULL; i++) {
        struct rk_bytes name = bytes_of_char(STRING_ELT(names, i));
        SEXP text = TYPEOF(headers) == STRSXP ? STRING_ELT(headers, i)
            : header_text(VECTOR_ELT(headers, i), name);
        PROTECT(text);
        problem = text == R_NilValue ? "each of `headers` must be one value"
            : write_header(slot, id, name, text);
        UNPROTECT(1);
    }
    UNPROTECT(2);
    return problem;
}

static void write_bytes(uint32_t slot, uint64_t id, SEXP owner, const void* start, size_t len) {
    if (len <= LEND_BYTES) {
        rk_response_copy(slot, id, start, len);
        return;
    }
    uint64_t token = keep(owner);
    if (rk_response_lend(slot, id, start, len, token) != RK_OK) {
        release(token);
    }
}

// Sends a file. If it cannot be opened, the response is httpuv's error page, and a line is written
// to stderr.
static void write_file(uint32_t slot, uint64_t id, const char* path, bool is_owned,
    struct written* written) {
    if (rk_response_file(slot, id, path, is_owned) != RK_OK) {
        static const char page[] = "500 Internal Server Error\n";
        written->lacks_file = true;
        char text[ERROR_MAX];
        snprintf(text, sizeof text, "%s", rk_error());
        log_error("a response's `body$file`", R_NilValue, text);
        rk_response_begin(slot, id, 500);
        rk_response_copy(slot, id, page, sizeof page - 1);
    }
}

static bool as_flag(SEXP value) {
    return TYPEOF(value) == LGLSXP && XLENGTH(value) == 1 && LOGICAL(value)[0] == TRUE;
}

// Sends the file that a list or an environment names.
static const char* write_named_file(
    uint32_t slot, uint64_t id, SEXP value, SEXP file_name, SEXP owned_name,
    struct written* written) {
    SEXP file = PROTECT(element(value, file_name));
    const char* problem = NULL;
    if (TYPEOF(file) != STRSXP || XLENGTH(file) < 1 || STRING_ELT(file, 0) == NA_STRING) {
        problem = "`body` is a list without a path in `file`";
    } else {
        bool is_owned = as_flag(element(value, owned_name));
        write_file(slot, id, Rf_translateChar(STRING_ELT(file, 0)), is_owned, written);
    }
    UNPROTECT(1);
    return problem;
}

static const char* write_text(uint32_t slot, uint64_t id, SEXP body, struct written* written) {
    SEXP names = Rf_getAttrib(body, R_NamesSymbol);
    if (XLENGTH(body) == 0) {
        rk_response_copy(slot, id, "", 0);
        return NULL;
    }
    SEXP text = STRING_ELT(body, 0);
    if (names != R_NilValue && strcmp(CHAR(STRING_ELT(names, 0)), "file") == 0) {
        if (text == NA_STRING) {
            return "`body` is a list without a path in `file`";
        }
        write_file(slot, id, Rf_translateChar(text), false, written);
        return NULL;
    }
    if (XLENGTH(body) > 1) {
        Rf_warning("the body of a response has %ld elements: only the first is sent",
            (long)XLENGTH(body));
    }
    struct rk_bytes bytes;
    text = PROTECT(utf8_text(text, &bytes));
    write_bytes(slot, id, text, bytes.start, bytes.len);
    UNPROTECT(1);
    return NULL;
}

static const char* write_body(uint32_t slot, uint64_t id, SEXP body, SEXP value,
    struct written* written) {
    switch (TYPEOF(body)) {
    case NILSXP: {
        bool has_file = element(value, syms.body_file) != R_NilValue;
        return has_file ? write_named_file(slot, id, value, syms.body_file, syms.body_file_owned,
            written) : NULL;
    }
    case RAWSXP:
        write_bytes(slot, id, body, RAW(body), (size_t)XLENGTH(body));
        return NULL;
    case STRSXP:
        return write_text(slot, id, body, written);
    case ENVSXP:
        if (is_stream(body)) {
            return stream_set_body(slot, id, body, &written->stream);
        }
        return write_named_file(slot, id, body, syms.file, syms.owned, written);
    case VECSXP:
        return write_named_file(slot, id, body, syms.file, syms.owned, written);
    case CLOSXP:
    case BUILTINSXP:
    case SPECIALSXP:
        return stream_set_body(slot, id, body, &written->stream);
    default:
        return "`body` must be a string, a raw vector, NULL, list(file = path), a function or a "
        "stream";
    }
}

static const char* read_status(SEXP value, int* status) {
    SEXP given = element(value, syms.status);
    double number = NA_REAL;
    if ((TYPEOF(given) == INTSXP || TYPEOF(given) == REALSXP) && XLENGTH(given) == 1) {
        number = Rf_asReal(given);
    }
    // 1xx responses are sent by the server only. NaN fails both comparisons.
    if (!(number >= 200 && number < 1000)) {
        return is_receiver(value)
            ? "receive_body() can only be returned by `onHeaders`: the body was read before `call`"
                                 : "`status` must be a number from 200 to 999";
    }
    *status = (int)number;
    return NULL;
}

// The caller protects `value`.
static const char* write_parts(uint32_t slot, uint64_t id, SEXP value, struct written* written) {
    const char* problem = read_status(value, &written->status);
    if (problem == NULL) {
        rk_response_begin(slot, id, written->status);
        problem = response_headers(slot, id, PROTECT(element(value, syms.response_headers)));
        UNPROTECT(1);
    }
    if (problem == NULL) {
        problem = write_body(slot, id, PROTECT(element(value, syms.body)), value, written);
        UNPROTECT(1);
    }
    return problem;
}

static const char* write_value(uint32_t slot, uint64_t id, SEXP value, struct written* written) {
    const char* problem;
    if (is_accepted_ws(value)) {
        return "accept_ws() can only be returned by `onHeaders` for a WebSocket handshake, and "
        "not by a promise";
    }
    switch (TYPEOF(value)) {
    case NILSXP:
        return "the response is NULL, not a list with `status`, `headers` and `body`";
    case VECSXP:
    case ENVSXP:
    case S4SXP:
        return write_parts(slot, id, value, written);
    case LISTSXP:
        problem = write_parts(slot, id, PROTECT(Rf_coerceVector(value, VECSXP)), written);
        UNPROTECT(1);
        return problem;
    default:
        return "the response is not a list with `status`, `headers` and `body`";
    }
}

// Whether each response has the time that it took to write it as `render` in `Server-Timing`.
static bool times_rendering;

void response_time_rendering(bool is_timed) {
    times_rendering = is_timed;
}

const char* response_write(uint32_t slot, uint64_t id, SEXP value, struct written* written) {
    double began = times_rendering ? monotonic_seconds() : 0;
    *written = (struct written){0, false, 0};
    const char* problem = write_value(slot, id, value, written);
    if (problem == NULL && times_rendering) {
        static const char name[] = "Server-Timing";
        char text[48];
        double ms = (monotonic_seconds() - began) * 1e3;
        int len = snprintf(text, sizeof text, "render;dur=%.3f", ms);
        rk_response_header(slot, id, (struct rk_bytes){name, sizeof name - 1},
            (struct rk_bytes){text, (size_t)len});
    }
    return problem;
}

void response_text(uint32_t slot, uint64_t id, int status, const char* type, const char* text,
    size_t len) {
    static const char name[] = "Content-Type";
    rk_response_begin(slot, id, status);
    rk_response_header(
        slot, id, (struct rk_bytes){name, sizeof name - 1}, (struct rk_bytes){type, strlen(type)});
    rk_response_copy(slot, id, text, len);
}

// Sends the response, and closes the connections that R opened to read the request's body.
void response_send(uint32_t slot, uint64_t id) {
    rk_respond(slot, id);
    input_answered(slot, id);
}
