// Strings of a request. If a string equals the previous one in the same place, the same R object is
// used: a client sends the same headers with each request, and comparing takes a tenth of the time
// of making a string.
#include "shim.h"

#include <limits.h>
#include <string.h>

// The number of `symbol` indices in rookery.h: the known names, and then the interned names
// (header_names.rs).
enum { SYMBOL_COUNT = 64 + 4096 };

// Longer values are not cached, which limits the full cache to about 1 MiB.
enum { CACHED_BYTES = 256 };

// The last string of each field and of each header name, with its bytes: R's functions for them
// would take longer than the comparison.
static struct {
    SEXP string;
    struct rk_bytes bytes;
} last_strings[FIELD_COUNT + SYMBOL_COUNT];
static SEXP cache;  // VECSXP of these strings, which protects them
static SEXP names[SYMBOL_COUNT];     // R never collects symbols
static SEXP name_chars;              // VECSXP of lower-case names, each a STRSXP

static bool session_is_utf8;

// Returns whether strings without an encoding mark are in UTF-8, according to l10n_info().
static bool is_utf8_session(void) {
    SEXP call = PROTECT(Rf_lang1(Rf_install("l10n_info")));
    SEXP info = PROTECT(Rf_eval(call, R_BaseEnv));
    SEXP names = Rf_getAttrib(info, R_NamesSymbol);
    bool is_utf8 = false;
    for (R_xlen_t i = 0; i < Rf_xlength(names); i++) {
        if (strcmp(CHAR(STRING_ELT(names, i)), "UTF-8") == 0) {
            is_utf8 = Rf_asLogical(VECTOR_ELT(info, i)) == TRUE;
        }
    }
    UNPROTECT(2);
    return is_utf8;
}

void strings_init(void) {
    session_is_utf8 = is_utf8_session();
    cache = Rf_allocVector(VECSXP, FIELD_COUNT + SYMBOL_COUNT);
    R_PreserveObject(cache);
    name_chars = Rf_allocVector(VECSXP, SYMBOL_COUNT);
    R_PreserveObject(name_chars);
}

struct rk_bytes bytes_of_char(SEXP text) {
    return (struct rk_bytes){CHAR(text), (size_t)LENGTH(text)};
}

static bool is_ascii(struct rk_bytes bytes) {
    unsigned char seen = 0;
    for (size_t i = 0; i < bytes.len; i++) {
        seen |= (unsigned char)bytes.start[i];
    }
    return seen < 0x80;
}

// Returns whether R's strings can hold these bytes, which must have no NUL and less than 2 GiB.
bool fits_string(struct rk_bytes bytes) {
    return bytes.len <= INT_MAX && memchr(bytes.start, 0, bytes.len) == NULL;
}

SEXP make_char(struct rk_bytes bytes) {
    if (bytes.len == 0) {
        return R_BlankString;
    }
    if (bytes.len > INT_MAX) {
        abort_with("rookery_bad_argument", "a text of %.0f bytes is longer than R's strings can be",
            (double)bytes.len);
    }
    bool is_utf8 = !is_ascii(bytes) && rk_is_utf8(bytes.start, bytes.len);
    return Rf_mkCharLenCE(bytes.start, (int)bytes.len, is_utf8 ? CE_UTF8 : CE_NATIVE);
}

// Stores the UTF-8 bytes of a string in `*bytes`; returns the object that holds them, which the
// caller protects. ASCII, UTF-8 and strings marked as bytes are not copied. A string without an
// encoding mark is taken to be in the session's encoding. If that is not UTF-8 but the bytes are
// valid UTF-8, they are taken as UTF-8, because a C locale says nothing about the data that a
// program has read.
SEXP utf8_text(SEXP text, struct rk_bytes* bytes) {
    *bytes = (struct rk_bytes){CHAR(text), (size_t)LENGTH(text)};
    cetype_t encoding = Rf_getCharCE(text);
    bool is_foreign = encoding == CE_LATIN1
        || (encoding == CE_NATIVE && !session_is_utf8 && !rk_is_utf8(bytes->start, bytes->len));
    if (!is_foreign || text == NA_STRING) {
        return text;
    }
    const void* before = vmaxget();
    text = Rf_mkCharCE(Rf_translateCharUTF8(text), CE_UTF8);
    vmaxset(before);
    *bytes = (struct rk_bytes){CHAR(text), (size_t)LENGTH(text)};
    return text;
}

// Returns the text that is sent for a value, by the R function sent_text().
SEXP sent_text(SEXP value) {
    // Quoted, so that a symbol or a call is not evaluated.
    SEXP quoted = PROTECT(Rf_lang2(R_QuoteSymbol, value));
    SEXP call = PROTECT(Rf_lang2(Rf_install("sent_text"), quoted));
    SEXP text = Rf_eval(call, objs.ns);
    UNPROTECT(2);
    return text;
}

SEXP make_string(struct rk_bytes bytes) {
    return bytes.len == 0 ? objs.empty_string : Rf_ScalarString(make_char(bytes));
}

static SEXP cached_string(R_xlen_t index, struct rk_bytes bytes, bool* was_cached) {
    const struct rk_bytes* last = &last_strings[index].bytes;
    if (last_strings[index].string != NULL && last->len == bytes.len &&
            memcmp(last->start, bytes.start, bytes.len) == 0) {
        return last_strings[index].string;
    }
    *was_cached = false;
    SEXP string = make_string(bytes);
    MARK_NOT_MUTABLE(string);
    if (bytes.len <= CACHED_BYTES) {
        SET_VECTOR_ELT(cache, index, string);
        last_strings[index].string = string;
        last_strings[index].bytes = bytes_of_char(STRING_ELT(string, 0));
    }
    return string;
}

SEXP field_string(enum field field, struct rk_bytes bytes) {
    bool was_cached = true;
    return cached_string((R_xlen_t)field, bytes, &was_cached);
}

SEXP header_string(const struct rk_header* header, bool* was_cached) {
    if (header->symbol < 0) {
        *was_cached = false;
        return make_string(header->value);
    }
    return cached_string(FIELD_COUNT + header->symbol, header->value, was_cached);
}

// Returns the symbol of a header's CGI name, or NULL for a name that is not interned.
SEXP header_symbol(const struct rk_header* header) {
    if (header->symbol < 0) {
        return NULL;
    }
    SEXP* name = &names[header->symbol];
    if (*name == NULL) {
        *name = Rf_installTrChar(PROTECT(make_char(header->cgi)));
        UNPROTECT(1);
    }
    return *name;
}

// Returns the lower-case name for HEADERS.
SEXP header_name(const struct rk_header* header) {
    if (header->symbol < 0) {
        return make_char(header->name);
    }
    SEXP known = VECTOR_ELT(name_chars, header->symbol);
    if (known == R_NilValue) {
        known = Rf_ScalarString(PROTECT(make_char(header->name)));
        SET_VECTOR_ELT(name_chars, header->symbol, known);
        UNPROTECT(1);
    }
    return STRING_ELT(known, 0);
}
