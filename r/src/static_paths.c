// Static paths: the site of a listener in an external pointer. R keeps the paths as they were set
// in `state`; C and Rust get the resolved ones.
#include <string.h>

#include "shim.h"

static void site_free(SEXP site) {
    rk_site_free(R_ExternalPtrAddr(site));
    R_ClearExternalPtr(site);
}

SEXP ffi_site_new(SEXP state) {
    SEXP site = PROTECT(R_MakeExternalPtr(NULL, R_NilValue, state));
    R_RegisterCFinalizerEx(site, site_free, TRUE);
    R_SetExternalPtrAddr(site, rk_site_new());
    UNPROTECT(1);
    return site;
}

SEXP ffi_site_state(SEXP site) {
    return R_ExternalPtrProtected(site);
}

static SEXP element(SEXP list, const char* name) {
    SEXP names = Rf_getAttrib(list, R_NamesSymbol);
    for (R_xlen_t i = 0; i < XLENGTH(list); i++) {
        if (strcmp(CHAR(STRING_ELT(names, i)), name) == 0) {
            return VECTOR_ELT(list, i);
        }
    }
    Rf_error("rookery: internal error: a static path without `%s`", name);
}

// Returns a string in UTF-8, or "" for character(0). The memory is R's transient memory, which is
// valid until .Call() returns.
static struct rk_bytes utf8_at(SEXP strings, R_xlen_t at) {
    const char* text = TYPEOF(strings) == STRSXP && XLENGTH(strings) > at
        ? Rf_translateCharUTF8(STRING_ELT(strings, at))
        : "";
    return (struct rk_bytes){text, strlen(text)};
}

static void add_path(void* site, SEXP keys, R_xlen_t at, SEXP options) {
    SEXP headers = element(options, "headers");
    SEXP header_names = PROTECT(Rf_getAttrib(headers, R_NamesSymbol));
    size_t count = header_names == R_NilValue ? 0 : (size_t)XLENGTH(headers);
    struct rk_bytes* lines = (struct rk_bytes*)R_alloc(count * 2 + 1, sizeof(struct rk_bytes));
    for (size_t i = 0; i < count; i++) {
        lines[2 * i] = utf8_at(header_names, (R_xlen_t)i);
        lines[2 * i + 1] = utf8_at(headers, (R_xlen_t)i);
    }
    // c("==", name, value), or nothing.
    SEXP validation = element(options, "validation");
    struct rk_static_path path = {
        .key = utf8_at(keys, at),
        .path = utf8_at(element(options, "path"), 0),
        .html_charset = utf8_at(element(options, "html_charset"), 0),
        .validation_name = utf8_at(validation, 1),
        .validation_value = utf8_at(validation, 2),
        .headers = lines,
        .header_count = count,
        .is_excluded = Rf_asLogical(element(options, "exclude")) == TRUE,
        .has_index = Rf_asLogical(element(options, "indexhtml")) == TRUE,
        .falls_through = Rf_asLogical(element(options, "fallthrough")) == TRUE,
        .is_site = Rf_asLogical(element(options, "site")) == TRUE,
    };
    UNPROTECT(1);
    if (rk_site_add(site, &path) != 0) {
        abort_with("rookery_bad_static_path", "%s", rk_error());
    }
}

// Sets all paths at once: `keys`, and a list of resolved options for each. Returns FALSE if the
// supervisor of this process has not confirmed the change in time.
SEXP ffi_site_set(SEXP site, SEXP keys, SEXP paths) {
    void* address = R_ExternalPtrAddr(site);
    for (R_xlen_t i = 0; i < XLENGTH(paths); i++) {
        add_path(address, keys, i, VECTOR_ELT(paths, i));
    }
    int published = rk_site_publish(address);
    if (published < 0) {
        abort_with("rookery_bad_static_path", "%s", rk_error());
    }
    return Rf_ScalarLogical(published == 0);
}
