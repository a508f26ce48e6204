// The access log, as R/access-log.R opens and reads it.
#include <errno.h>
#include <string.h>
#ifdef _WIN32
#include <io.h>
#else
#include <fcntl.h>
#include <unistd.h>
#endif

#include "shim.h"

static bool is_read;

bool log_is_read(void) {
    return is_read;
}

static enum rk_log_format format_of(const char* name) {
    if (strcmp(name, "json") == 0) {
        return RK_LOG_JSON;
    }
    if (strcmp(name, "combined") == 0) {
        return RK_LOG_COMBINED;
    }
    if (strcmp(name, "fields") == 0) {
        return RK_LOG_FIELDS;
    }
    return strcmp(name, "terminal") == 0 ? RK_LOG_TERMINAL : RK_LOG_COMMON;
}

// Returns a new descriptor for the log, because R or the app may redirect or close stdout; -1 after
// a failure.
static int log_output(void) {
#ifdef _WIN32
    return _dup(1);
#else
    return fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
#endif
}

// Opens the log: a path names a file to append to, "" stands for stdout, and NA for ffi_log_next().
// Returns NULL, or an error message.
SEXP ffi_log_open(SEXP path, SEXP format) {
    SEXP name = STRING_ELT(path, 0);
    bool is_called = name == NA_STRING;
    const char* file = is_called || LENGTH(name) == 0 ? NULL : Rf_translateChar(name);
    int fd = -1;
    if (!is_called && file == NULL) {
        fd = log_output();
        if (fd < 0) {
            return Rf_mkString(strerror(errno));
        }
    }
    if (rk_log_open(file, fd, format_of(CHAR(STRING_ELT(format, 0)))) != RK_OK) {
        return last_error();
    }
    is_read = is_called;
    return R_NilValue;
}

// Begins or ends the conversion of what R prints to JSON objects. Returns NULL, or an error
// message.
SEXP ffi_output_json(SEXP is_on) {
    return rk_output_json(Rf_asLogical(is_on)) == RK_OK ? R_NilValue : Rf_mkString(rk_error());
}

// Returns the next record as a line of fields, which log_record() in R/access-log.R reads, or NULL
// if no record is queued.
SEXP ffi_log_next(void) {
    struct rk_bytes line;
    if (!rk_log_next(&line)) {
        return R_NilValue;
    }
    // No request head is as long as INT_MAX.
    return Rf_ScalarString(Rf_mkCharLenCE(line.start, (int)line.len, CE_UTF8));
}

// Returns the number of records that were dropped since the last call because R did not read them
// in time.
SEXP ffi_log_lost(void) {
    return Rf_ScalarReal((double)rk_log_lost());
}

SEXP ffi_log_close(void) {
    is_read = false;
    rk_log_close();
    return R_NilValue;
}
