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

static SEXP log_string(struct rk_bytes bytes) {
    // No request head is as long as INT_MAX.
    return Rf_ScalarString(Rf_mkCharLenCE(bytes.start, (int)bytes.len, CE_UTF8));
}

// Returns the fields of the next record as a list, or NULL if no record is queued.
SEXP ffi_log_next(void) {
    struct rk_log_record record;
    if (!rk_log_next(&record)) {
        return R_NilValue;
    }
    const char* names[] = {"time", "remote", "method", "path", "query", "status", "bytes",
        "seconds",
                           "request_id", "aborted", "route", "queue_seconds", "r_seconds", ""};
    SEXP line = PROTECT(Rf_mkNamed(VECSXP, names));
    SEXP time = PROTECT(Rf_ScalarReal(record.time));
    SEXP classes = PROTECT(Rf_allocVector(STRSXP, 2));
    SET_STRING_ELT(classes, 0, Rf_mkChar("POSIXct"));
    SET_STRING_ELT(classes, 1, Rf_mkChar("POSIXt"));
    Rf_classgets(time, classes);
    SET_VECTOR_ELT(line, 0, time);
    SET_VECTOR_ELT(line, 1, log_string(record.remote));
    SET_VECTOR_ELT(line, 2, log_string(record.method));
    SET_VECTOR_ELT(line, 3, log_string(record.path));
    SET_VECTOR_ELT(line, 4, log_string(record.query));
    SET_VECTOR_ELT(line, 5, Rf_ScalarInteger(record.status));
    SET_VECTOR_ELT(line, 6, Rf_ScalarReal((double)record.bytes));
    SET_VECTOR_ELT(line, 7, Rf_ScalarReal(record.seconds));
    SET_VECTOR_ELT(line, 8, log_string(record.request_id));
    SET_VECTOR_ELT(line, 9, record.aborted < 0 ? Rf_ScalarString(NA_STRING)
        : Rf_mkString(stream_end_name(record.aborted)));
    SET_VECTOR_ELT(line, 10, log_string(record.route));
    SET_VECTOR_ELT(line, 11, Rf_ScalarReal(R_IsNaN(record.queue_seconds) ? NA_REAL
        : record.queue_seconds));
    SET_VECTOR_ELT(line, 12, Rf_ScalarReal(R_IsNaN(record.r_seconds) ? NA_REAL
        : record.r_seconds));
    UNPROTECT(3);
    return line;
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
