/* Converts the list that the handler returned into the bytes of a response, and checks it. */
#include "bare_epoll.h"
#include <string.h>
#include <time.h>

void buffer_reserve(struct buffer *buffer, size_t extra) {
    if (buffer->capacity - buffer->length >= extra) {
        return;
    }
    size_t capacity = buffer->capacity == 0 ? 16384 : buffer->capacity;
    while (capacity - buffer->length < extra) {
        capacity *= 2;
    }
    char *data = realloc(buffer->data, capacity);
    if (data == NULL) {
        Rf_error("out of memory");
    }
    buffer->data = data;
    buffer->capacity = capacity;
}

void buffer_append(struct buffer *buffer, const char *data, size_t length) {
    buffer_reserve(buffer, length);
    memcpy(buffer->data + buffer->length, data, length);
    buffer->length += length;
}

static const char *reason(int status) {
    switch (status) {
    case 200: return "OK";
    case 201: return "Created";
    case 204: return "No Content";
    case 302: return "Found";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 404: return "Not Found";
    case 500: return "Internal Server Error";
    default: return "Status";
    }
}

static void append_status(struct buffer *out, int status) {
    static time_t made_at;
    static char date[64];
    static int date_length;
    time_t now = time(NULL);
    if (now != made_at) {
        struct tm parts;
        gmtime_r(&now, &parts);
        date_length = (int)strftime(date, sizeof date, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n",
            &parts);
        made_at = now;
    }
    if (status == 200) {
        buffer_append(out, "HTTP/1.1 200 OK\r\n", 17);
    } else {
        char line[64];
        buffer_append(out, line, (size_t)snprintf(line, sizeof line, "HTTP/1.1 %d %s\r\n", status,
            reason(status)));
    }
    buffer_append(out, date, (size_t)date_length);
}

static void append_length(struct buffer *out, size_t length) {
    char digits[24], *p = digits + sizeof digits;
    do {
        *--p = (char)('0' + length % 10);
        length /= 10;
    } while (length > 0);
    buffer_append(out, "Content-Length: ", 16);
    buffer_append(out, p, (size_t)(digits + sizeof digits - p));
    buffer_append(out, "\r\n\r\n", 4);
}

static void append_headers(struct buffer *out, SEXP headers) {
    if (headers == R_NilValue) {
        return;
    }
    SEXP names = Rf_getAttrib(headers, R_NamesSymbol);
    if (TYPEOF(headers) != VECSXP || (Rf_xlength(headers) > 0 && names == R_NilValue)) {
        Rf_error("headers must be a named list");
    }
    for (R_xlen_t i = 0; i < Rf_xlength(headers); i++) {
        SEXP value = VECTOR_ELT(headers, i);
        if (TYPEOF(value) != STRSXP) {
            value = Rf_coerceVector(value, STRSXP);
        }
        if (Rf_xlength(value) != 1) {
            Rf_error("a header must be one string");
        }
        PROTECT(value);
        SEXP name_string = STRING_ELT(names, i), value_string = STRING_ELT(value, 0);
        const char *name = CHAR(name_string), *text = CHAR(value_string);
        size_t name_length = (size_t)LENGTH(name_string);
        size_t text_length = (size_t)LENGTH(value_string);
        if (name_length == 0 || strpbrk(name, "\r\n: ") != NULL || strpbrk(text, "\r\n") != NULL) {
            Rf_error("a header holds a byte that it must not");
        }
        buffer_append(out, name, name_length);
        buffer_append(out, ": ", 2);
        buffer_append(out, text, text_length);
        buffer_append(out, "\r\n", 2);
        UNPROTECT(1);
    }
}

static void append_chunk(struct buffer *out, const char *data, size_t length) {
    char line[24];
    buffer_append(out, line, (size_t)snprintf(line, sizeof line, "%zX\r\n", length));
    buffer_append(out, data, length);
    buffer_append(out, "\r\n", 2);
}

/* Writes one part of a streamed body as a chunk; NULL is the last. */
void reply_write_piece(SEXP piece, struct buffer *out) {
    if (TYPEOF(piece) == RAWSXP && Rf_xlength(piece) > 0) {
        append_chunk(out, (const char *)RAW(piece), (size_t)Rf_xlength(piece));
    } else if (piece == R_NilValue) {
        buffer_append(out, "0\r\n\r\n", 5);
    } else {
        Rf_error("a piece must be bytes or NULL");
    }
}

SEXP reply_write(SEXP reply, bool keep_alive, struct buffer *out) {
    SEXP status = R_NilValue, headers = R_NilValue, body = R_NilValue;
    if (TYPEOF(reply) != VECSXP) {
        Rf_error("the handler must return a list");
    }
    SEXP names = Rf_getAttrib(reply, R_NamesSymbol);
    for (R_xlen_t i = 0; i < Rf_xlength(names); i++) {
        const char *name = CHAR(STRING_ELT(names, i));
        if (strcmp(name, "status") == 0) {
            status = VECTOR_ELT(reply, i);
        } else if (strcmp(name, "headers") == 0) {
            headers = VECTOR_ELT(reply, i);
        } else if (strcmp(name, "body") == 0) {
            body = VECTOR_ELT(reply, i);
        }
    }
    const char *data = "";
    size_t length = 0;
    if (TYPEOF(body) == RAWSXP) {
        data = (const char *)RAW(body);
        length = (size_t)Rf_xlength(body);
    } else if (TYPEOF(body) == STRSXP && Rf_xlength(body) == 1) {
        data = CHAR(STRING_ELT(body, 0));
        length = (size_t)LENGTH(STRING_ELT(body, 0));
    } else if (body != R_NilValue && !Rf_isFunction(body)) {
        Rf_error("the body must be a string, a raw vector, a function or NULL");
    }
    int code = Rf_asInteger(status);
    if (code < 200 || code > 999) {
        Rf_error("the status must be a number from 200 to 999");
    }
    append_status(out, code);
    append_headers(out, headers);
    if (!keep_alive) {
        buffer_append(out, "Connection: close\r\n", 19);
    }
    if (Rf_isFunction(body)) {
        buffer_append(out, "Transfer-Encoding: chunked\r\n\r\n", 30);
        return body;
    }
    append_length(out, length);
    buffer_append(out, data, length);
    return NULL;
}

void reply_write_error(int status, struct buffer *out) {
    append_status(out, status);
    buffer_append(out, "Connection: close\r\n", 19);
    append_length(out, 0);
}
