// Strings of a request that few apps read, made at the first access. No two requests have the same
// request id or trace context, and R would look up and keep each of them in its table of all
// strings, which takes a third of the time for a request object. They are therefore ALTREP strings
// (R_ext/Altrep.h): data1 is what they are made of, and data2 the string after the first access.
#include "shim.h"

#include <string.h>

#include <R_ext/Altrep.h>

// data1 is a raw vector: a struct own_id, the bytes of a text, or those of a traceparent header.
static R_altrep_class_t own_id_class, text_class, trace_id_class;
// data1 is a pair of HEADERS with NA in place of the element that is lazy, and that element.
static R_altrep_class_t headers_class;

struct own_id {
    uint64_t id;
    uint64_t process;  // differs from this process's if a fork reads the id
};

_Static_assert(sizeof(struct own_id) == 16, "own_id");

static SEXP bytes_vector(const void* bytes, size_t len) {
    SEXP vector = Rf_allocVector(RAWSXP, (R_xlen_t)len);
    memcpy(RAW(vector), bytes, len);
    return vector;
}

// Returns a request id of the server's own, which consists of the ids of the exchange and of the
// process.
SEXP own_request_id(uint64_t id) {
    struct own_id parts = {id, rk_request_process()};
    SEXP own = R_new_altrep(own_id_class, PROTECT(bytes_vector(&parts, sizeof parts)), R_NilValue);
    UNPROTECT(1);
    return own;
}

// Returns a string with a copy of these bytes.
SEXP lazy_text(struct rk_bytes bytes) {
    SEXP text = R_new_altrep(text_class, PROTECT(bytes_vector(bytes.start, bytes.len)), R_NilValue);
    UNPROTECT(1);
    return text;
}

// Returns the trace id in a lazy_text() of a traceparent header, as a string that shares its bytes.
SEXP lazy_trace_id(SEXP trace_parent) {
    return R_new_altrep(trace_id_class, R_altrep_data1(trace_parent), R_NilValue);
}

// Returns `headers`, with the string `element` in the place that is NA. Copies neither.
SEXP lazy_headers(SEXP headers, SEXP element) {
    SEXP parts = PROTECT(Rf_cons(headers, element));
    SEXP lazy = PROTECT(R_new_altrep(headers_class, parts, R_NilValue));
    // The only attribute is the names. Rf_setAttrib() would check them.
    SHALLOW_DUPLICATE_ATTRIB(lazy, headers);
    UNPROTECT(2);
    return lazy;
}

// Returns the string of a lazy string of length 1.
static SEXP made_string(SEXP lazy) {
    SEXP string = R_altrep_data2(lazy);
    if (string == R_NilValue) {
        SEXP bytes = R_altrep_data1(lazy);
        if (R_altrep_inherits(lazy, own_id_class)) {
            char text[33];
            struct own_id parts;
            memcpy(&parts, RAW(bytes), sizeof parts);
            rk_format_request_id(parts.id, parts.process, text);
            string = PROTECT(Rf_mkString(text));
        } else {
            struct rk_bytes text = {(const char*)RAW(bytes), (size_t)XLENGTH(bytes)};
            if (R_altrep_inherits(lazy, trace_id_class)) {
                text.start += 3;
                text.len = 32;
            }
            SEXP element = PROTECT(make_char(text));
            string = Rf_ScalarString(element);
            UNPROTECT(1);
            PROTECT(string);
        }
        R_set_altrep_data2(lazy, string);
        UNPROTECT(1);
    }
    return string;
}

static SEXP header_at(SEXP lazy, R_xlen_t at) {
    SEXP made = R_altrep_data2(lazy);
    if (made != R_NilValue) {
        return STRING_ELT(made, at);
    }
    SEXP parts = R_altrep_data1(lazy);
    SEXP value = STRING_ELT(CAR(parts), at);
    return value == NA_STRING ? STRING_ELT(CDR(parts), 0) : value;
}

static SEXP made_headers(SEXP lazy) {
    SEXP made = R_altrep_data2(lazy);
    if (made == R_NilValue) {
        R_xlen_t count = XLENGTH(CAR(R_altrep_data1(lazy)));
        made = PROTECT(Rf_allocVector(STRSXP, count));
        for (R_xlen_t i = 0; i < count; i++) {
            SET_STRING_ELT(made, i, header_at(lazy, i));
        }
        R_set_altrep_data2(lazy, made);
        UNPROTECT(1);
    }
    return made;
}

static SEXP made(SEXP lazy) {
    return R_altrep_inherits(lazy, headers_class) ? made_headers(lazy) : made_string(lazy);
}

static R_xlen_t text_length(SEXP lazy) {
    (void)lazy;
    return 1;
}

static R_xlen_t headers_length(SEXP lazy) {
    return XLENGTH(CAR(R_altrep_data1(lazy)));
}

static SEXP element(SEXP lazy, R_xlen_t at) {
    return STRING_ELT(made_string(lazy), at);
}

static void set_element(SEXP lazy, R_xlen_t at, SEXP value) {
    SET_STRING_ELT(made(lazy), at, value);
}

static void* pointer(SEXP lazy, Rboolean is_writable) {
    (void)is_writable;
    return (void*)STRING_PTR_RO(made(lazy));
}

static const void* pointer_or_null(SEXP lazy) {
    SEXP string = R_altrep_data2(lazy);
    return string == R_NilValue ? NULL : (const void*)STRING_PTR_RO(string);
}

static R_altrep_class_t make_class(const char* name, DllInfo* dll) {
    R_altrep_class_t class = R_make_altstring_class(name, "rookery", dll);
    R_set_altrep_Length_method(class, text_length);
    R_set_altstring_Elt_method(class, element);
    R_set_altstring_Set_elt_method(class, set_element);
    R_set_altvec_Dataptr_method(class, pointer);
    R_set_altvec_Dataptr_or_null_method(class, pointer_or_null);
    return class;
}

void lazy_strings_init(DllInfo* dll) {
    own_id_class = make_class("request_id", dll);
    text_class = make_class("text", dll);
    trace_id_class = make_class("trace_id", dll);
    headers_class = make_class("headers", dll);
    R_set_altrep_Length_method(headers_class, headers_length);
    R_set_altstring_Elt_method(headers_class, header_at);
}
