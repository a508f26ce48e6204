// The program `rookery` that serves a path for serve(): starting it, reading what it reports, and
// waiting for it.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"

extern char** environ;

// The interval of waitpid() calls, between which R's event loop runs and can be interrupted.
static const long poll_nanoseconds = 20000000;

// The descriptor to which the program writes its reports (crates/cli/src/process/session.rs).
enum { REPORTS = 3 };
// The lowest number of descriptors of this process that become others in the program.
enum { LOWEST_DESCRIPTOR = 10 };

// Returns the argument vector for an R character vector. R frees it after the .Call().
static char** argument_vector(SEXP program, SEXP arguments) {
    R_xlen_t count = XLENGTH(arguments);
    char** vector = (char**)R_alloc((size_t)count + 2, sizeof(char*));
    vector[0] = (char*)Rf_translateChar(STRING_ELT(program, 0));
    for (R_xlen_t i = 0; i < count; i++) {
        vector[i + 1] = (char*)Rf_translateChar(STRING_ELT(arguments, i));
    }
    vector[count + 1] = NULL;
    return vector;
}

// Moves a descriptor to a number that the program does not use, and keeps other programs from
// inheriting it. Returns -1 after a failure.
static int move_up(int fd) {
    int moved = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR);
    if (fd >= 0) {
        int problem = errno;
        close(fd);
        errno = problem;
    }
    return moved;
}

// Closes a descriptor, unless it is -1.
static void close_open(int fd) {
    if (fd >= 0) {
        close(fd);
    }
}

// Returns a descriptor from which `input` can be read: an unnamed file that only this user can
// read, because `input` may contain keys. Returns -1 after a failure.
static int open_input(SEXP input) {
    const char* folder = getenv("TMPDIR");
    const char* name = "/rookery-XXXXXX";
    if (folder == NULL || folder[0] == '\0') {
        folder = "/tmp";
    }
    char* path = R_alloc(strlen(folder) + strlen(name) + 1, 1);
    strcat(strcpy(path, folder), name);
    int fd = mkstemp(path);
    if (fd >= 0) {
        unlink(path);
    }
    fd = move_up(fd);
    const char* left = (const char*)RAW(input);
    size_t count = (size_t)XLENGTH(input);
    while (fd >= 0 && count > 0) {
        ssize_t written = write(fd, left, count);
        if (written < 0 && errno != EINTR) {
            int problem = errno;
            close(fd);
            errno = problem;
            return -1;
        }
        if (written > 0) {
            left += written;
            count -= (size_t)written;
        }
    }
    if (fd >= 0) {
        lseek(fd, 0, SEEK_SET);
    }
    return fd;
}

// Makes the pipe for the program's reports. Returns whether that was possible.
static bool open_reports(int ends[2]) {
    if (pipe(ends) != 0) {
        return false;
    }
    ends[0] = move_up(ends[0]);
    ends[1] = move_up(ends[1]);
    if (ends[0] < 0 || ends[1] < 0) {
        return false;
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return true;
}

// Sets the program's signals to defaults, and gives it a process group of its own, because
// otherwise Ctrl-C at the terminal would reach it twice: from the terminal and forwarded by this
// process. posix_spawn() is used because fork() would run handlers of other libraries.
static int prepare(
    posix_spawnattr_t* attributes, posix_spawn_file_actions_t* files, int input, int reports
) {
    sigset_t none;
    sigset_t defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    // Signals that are ignored here stay ignored in the program. SIGTERM must not be, because it
    // stops the program.
    sigaddset(&defaults, SIGTERM);
    sigaddset(&defaults, SIGPIPE);
    if (!signal_is_ignored(SIGINT)) {
        sigaddset(&defaults, SIGINT);
    }
    if (!signal_is_ignored(SIGHUP)) {
        sigaddset(&defaults, SIGHUP);
    }
    short flags = POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
    int problem = posix_spawnattr_setflags(attributes, flags);
    problem = problem != 0 ? problem : posix_spawnattr_setpgroup(attributes, 0);
    problem = problem != 0 ? problem : posix_spawnattr_setsigmask(attributes, &none);
    problem = problem != 0 ? problem : posix_spawnattr_setsigdefault(attributes, &defaults);
    problem = problem != 0 ? problem : posix_spawn_file_actions_adddup2(files, input, 0);
    return problem != 0 ? problem : posix_spawn_file_actions_adddup2(files, reports, REPORTS);
}

// Starts the program, which reads the raw vector `input` on standard input. Returns c(process id,
// descriptor of the program's reports), or an error message. Signals are forwarded to the program
// from now on.
SEXP ffi_program_start(SEXP program, SEXP arguments, SEXP input) {
    char** vector = argument_vector(program, arguments);
    int in = open_input(input);
    int reports[2] = {-1, -1};
    if (in < 0 || !open_reports(reports)) {
        char problem[256];
        snprintf(problem, sizeof problem, "%s: %s",
            in < 0 ? "a temporary file cannot be written (TMPDIR)" : "a pipe cannot be created",
                 strerror(errno));
        close_open(in);
        close_open(reports[0]);
        close_open(reports[1]);
        return Rf_mkString(problem);
    }
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t files;
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_init(&files);
    pid_t pid = 0;
    // Signals are blocked, because one that arrives before forwarding begins would end this process
    // and not the program.
    sigset_t stops;
    sigset_t before;
    sigemptyset(&stops);
    sigaddset(&stops, SIGINT);
    sigaddset(&stops, SIGTERM);
    sigaddset(&stops, SIGHUP);
    sigprocmask(SIG_BLOCK, &stops, &before);
    int problem = prepare(&attributes, &files, in, reports[1]);
    if (problem == 0) {
        problem = posix_spawn(&pid, vector[0], &files, &attributes, vector, environ);
    }
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    if (problem == 0) {
        signals_pass_to((int)pid);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(in);
    close(reports[1]);
    if (problem != 0) {
        close(reports[0]);
        return Rf_mkString(strerror(problem));
    }
    SEXP started = Rf_allocVector(INTSXP, 2);
    INTEGER(started)[0] = (int)pid;
    INTEGER(started)[1] = reports[0];
    return started;
}

// Returns what the program has reported since the last call, up to 64 KiB, as a raw vector.
SEXP ffi_program_read(SEXP reports) {
    char bytes[1 << 16];
    ssize_t count = read(Rf_asInteger(reports), bytes, sizeof bytes);
    SEXP result = Rf_allocVector(RAWSXP, count > 0 ? count : 0);
    if (count > 0) {
        memcpy(RAW(result), bytes, (size_t)count);
    }
    return result;
}

// Returns c(exit status, last forwarded signal) if the program ends within `seconds`, and NULL
// otherwise. If a signal ended the program, the status is 128 plus its number, as in a shell.
SEXP ffi_program_wait(SEXP pid, SEXP seconds) {
    long rounds = (long)(Rf_asReal(seconds) * 1e9) / poll_nanoseconds;
    for (long i = 0; i <= rounds; i++) {
        int status;
        pid_t ended = waitpid((pid_t)Rf_asInteger(pid), &status, WNOHANG);
        if (ended != 0 && !(ended < 0 && errno == EINTR)) {
            // Other code (parallel, processx) may have called wait(), so that the status is
            // unknown.
            int code = ended < 0 ? 0 : WIFEXITED(status) ? WEXITSTATUS(status)
                : 128 + WTERMSIG(status);
            SEXP result = PROTECT(Rf_allocVector(INTSXP, 2));
            INTEGER(result)[0] = code;
            INTEGER(result)[1] = signals_passed();
            UNPROTECT(1);
            return result;
        }
        struct timespec pause = {0, poll_nanoseconds};
        nanosleep(&pause, NULL);
        R_CheckUserInterrupt();
    }
    return R_NilValue;
}

SEXP ffi_program_signal(SEXP pid, SEXP signal_number) {
    signals_send(Rf_asInteger(pid), Rf_asInteger(signal_number));
    return R_NilValue;
}

// Ends the forwarding of signals and the reading of reports.
SEXP ffi_program_forget(SEXP reports) {
    signals_pass_to(0);
    close(Rf_asInteger(reports));
    return R_NilValue;
}
