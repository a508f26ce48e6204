// From what an app returned to the reply of its exchange. Every way of being wrong has a sentence of its own.
#include <string.h>

#include "shim.h"

// A longer body stays R's memory until it is sent; a shorter one is copied (rookery-exchange).
enum { LEND_BYTES = 64 * 1024 };

static SEXP element(SEXP list, const char* name) {
    SEXP names = Rf_getAttrib(list, R_NamesSymbol);
    if (TYPEOF(names) != STRSXP) {
        return R_NilValue;
    }
    for (R_xlen_t i = 0; i < XLENGTH(names); i++) {
        if (strcmp(CHAR(STRING_ELT(names, i)), name) == 0) {
            return VECTOR_ELT(list, i);
        }
    }
    return R_NilValue;
}

static struct rk_bytes char_bytes(SEXP text) {
    return (struct rk_bytes){CHAR(text), (size_t)LENGTH(text)};
}

static bool is_content_length(struct rk_bytes name) {
    return name.len == 14 && strncasecmp(name.start, "content-length", 14) == 0;
}

// The text of a header's value, as paste() makes it; R_NilValue when it is not one value.
static SEXP header_text(SEXP value, struct rk_bytes name) {
    if (Rf_isObject(value)) {
        SEXP call = PROTECT(Rf_lang2(Rf_install("as.character"), value));
        value = Rf_eval(call, R_BaseEnv);
        UNPROTECT(1);
    }
    if (!Rf_isVectorAtomic(value) || XLENGTH(value) != 1) {
        return R_NilValue;
    }
    if (TYPEOF(value) == REALSXP && is_content_length(name) && R_FINITE(REAL(value)[0])) {
        // as.character(1e5) is "1e+05", which is no length.
        char digits[32];
        snprintf(digits, sizeof digits, "%.0f", REAL(value)[0]);
        return Rf_mkChar(digits);
    }
    return TYPEOF(value) == STRSXP ? STRING_ELT(value, 0) : Rf_asChar(value);
}

static const char* write_headers(uint32_t slot, uint64_t id, SEXP headers) {
    if (headers == R_NilValue) {
        return NULL;
    }
    if (TYPEOF(headers) != VECSXP && TYPEOF(headers) != STRSXP) {
        return "`headers` must be a named list or a named character vector";
    }
    R_xlen_t count = XLENGTH(headers);
    SEXP names = PROTECT(Rf_getAttrib(headers, R_NamesSymbol));
    if (count > 0 && names == R_NilValue) {
        UNPROTECT(1);
        return "`headers` must have names";
    }
    const char* problem = NULL;
    for (R_xlen_t i = 0; i < count && problem == NULL; i++) {
        struct rk_bytes name = char_bytes(STRING_ELT(names, i));
        SEXP text = TYPEOF(headers) == STRSXP ? STRING_ELT(headers, i) : header_text(VECTOR_ELT(headers, i), name);
        PROTECT(text);
        if (text == R_NilValue) {
            problem = "each of `headers` must be one value";
        } else {
            switch (rk_reply_header(slot, id, name, char_bytes(text))) {
            case RK_BAD_NAME:
                problem = "a name in `headers` is empty or has characters that a header's name cannot have";
                break;
            case RK_BAD_VALUE:
                problem = "a value in `headers` has a line break or a control character";
                break;
            default:
                break;
            }
        }
        UNPROTECT(1);
    }
    UNPROTECT(1);
    return problem;
}

static void write_bytes(uint32_t slot, uint64_t id, SEXP owner, const void* start, size_t len) {
    if (len <= LEND_BYTES) {
        rk_reply_copy(slot, id, start, len);
        return;
    }
    uint64_t token = keep(owner);
    if (rk_reply_lend(slot, id, start, len, token) != RK_OK) {
        release(token);
    }
}

// An app's file that cannot be opened gets the page that httpuv sends, and a line on stderr.
static void write_file(uint32_t slot, uint64_t id, const char* path, bool is_owned) {
    if (rk_reply_file(slot, id, path, is_owned) != RK_OK) {
        static const char page[] = "500 Internal Server Error\n";
        report("a response's `body$file`", R_NilValue, rk_error());
        rk_reply_begin(slot, id, 500);
        rk_reply_copy(slot, id, page, sizeof page - 1);
    }
}

static bool as_flag(SEXP value) {
    return TYPEOF(value) == LGLSXP && XLENGTH(value) == 1 && LOGICAL(value)[0] == TRUE;
}

static const char* write_body(uint32_t slot, uint64_t id, SEXP body, SEXP value) {
    SEXP file = R_NilValue;
    bool is_owned = false;
    switch (TYPEOF(body)) {
    case NILSXP:
        file = element(value, "bodyFile");
        is_owned = as_flag(element(value, "bodyFileOwned"));
        if (file == R_NilValue) {
            return NULL;
        }
        break;
    case RAWSXP:
        write_bytes(slot, id, body, RAW(body), (size_t)XLENGTH(body));
        return NULL;
    case STRSXP: {
        SEXP names = Rf_getAttrib(body, R_NamesSymbol);
        if (names != R_NilValue && XLENGTH(body) > 0 && strcmp(CHAR(STRING_ELT(names, 0)), "file") == 0) {
            file = body;
            break;
        }
        if (XLENGTH(body) == 0) {
            rk_reply_copy(slot, id, "", 0);
            return NULL;
        }
        if (XLENGTH(body) > 1) {
            Rf_warning("the body of a response has %ld elements: only the first is sent", (long)XLENGTH(body));
        }
        SEXP text = STRING_ELT(body, 0);
        write_bytes(slot, id, text, CHAR(text), (size_t)LENGTH(text));
        return NULL;
    }
    case VECSXP:
        file = element(body, "file");
        is_owned = as_flag(element(body, "owned"));
        break;
    default:
        return "`body` must be a string, a raw vector, NULL or list(file = path)";
    }
    if (TYPEOF(file) != STRSXP || XLENGTH(file) < 1 || STRING_ELT(file, 0) == NA_STRING) {
        return "`body` is a list without a path in `file`";
    }
    write_file(slot, id, Rf_translateChar(STRING_ELT(file, 0)), is_owned);
    return NULL;
}

static const char* read_status(SEXP value, int* status) {
    SEXP given = element(value, "status");
    double number = NA_REAL;
    if ((TYPEOF(given) == INTSXP || TYPEOF(given) == REALSXP) && XLENGTH(given) == 1) {
        number = Rf_asReal(given);
    }
    // 1xx are the server's own; NaN fails both comparisons.
    if (!(number >= 200 && number < 1000)) {
        return "`status` must be a number from 200 to 999";
    }
    *status = (int)number;
    return NULL;
}

const char* response_write(uint32_t slot, uint64_t id, SEXP value) {
    if (value == R_NilValue) {
        return "it is NULL, not a list with `status`, `headers` and `body`";
    }
    if (TYPEOF(value) != VECSXP) {
        return "it is not a list with `status`, `headers` and `body`";
    }
    int status;
    const char* problem = read_status(value, &status);
    if (problem == NULL) {
        rk_reply_begin(slot, id, status);
        problem = write_headers(slot, id, element(value, "headers"));
    }
    if (problem == NULL) {
        problem = write_body(slot, id, element(value, "body"), value);
    }
    return problem;
}

void response_text(uint32_t slot, uint64_t id, int status, const char* type, const char* text, size_t len) {
    static const char name[] = "Content-Type";
    rk_reply_begin(slot, id, status);
    rk_reply_header(
        slot, id, (struct rk_bytes){name, sizeof name - 1}, (struct rk_bytes){type, strlen(type)});
    rk_reply_copy(slot, id, text, len);
}
