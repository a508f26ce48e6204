// The R process that serves a path: starting it, and waiting for it.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "shim.h"

extern char** environ;

// The interval of waitpid() calls, between which R's event loop runs and can be interrupted.
static const long poll_nanoseconds = 20000000;

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

// Sets the child's signals to defaults, and gives it a process group of its own, because otherwise
// Ctrl-C at the terminal would reach it twice: from the terminal and forwarded by this process.
// posix_spawn() is used because fork() would run handlers of other libraries.
static int prepare(posix_spawnattr_t* attributes, posix_spawn_file_actions_t* files) {
    sigset_t none;
    sigset_t defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    // Signals that are ignored here stay ignored in the child. SIGTERM must not be, because it
    // stops the child.
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
    // The child is not in the terminal's foreground group, so reading from the terminal would stop
    // it.
    return problem != 0 ? problem : posix_spawn_file_actions_addopen(files, 0, "/dev/null",
        O_RDONLY, 0);
}

// Returns the process id, or an error message. Signals are forwarded to the child from now on.
SEXP ffi_child_start(SEXP program, SEXP arguments) {
    char** vector = argument_vector(program, arguments);
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t files;
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_init(&files);
    pid_t pid = 0;
    // Signals are blocked, because one that arrives before forwarding begins would end this process
    // and not the child.
    sigset_t stops;
    sigset_t before;
    sigemptyset(&stops);
    sigaddset(&stops, SIGINT);
    sigaddset(&stops, SIGTERM);
    sigaddset(&stops, SIGHUP);
    sigprocmask(SIG_BLOCK, &stops, &before);
    int problem = prepare(&attributes, &files);
    if (problem == 0) {
        problem = posix_spawn(&pid, vector[0], &files, &attributes, vector, environ);
    }
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    if (problem == 0) {
        signals_pass_to((int)pid);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (problem != 0) {
        return Rf_mkString(strerror(problem));
    }
    return Rf_ScalarInteger((int)pid);
}

// Returns c(exit status, last forwarded signal) if the child ends within `seconds`, and NULL
// otherwise. If a signal ended the child, the status is 128 plus its number, as in a shell.
SEXP ffi_child_wait(SEXP pid, SEXP seconds) {
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

SEXP ffi_child_signal(SEXP pid, SEXP signal_number) {
    signals_send(Rf_asInteger(pid), Rf_asInteger(signal_number));
    return R_NilValue;
}

SEXP ffi_child_forget(void) {
    signals_pass_to(0);
    return R_NilValue;
}

// Called in the child: makes the system end this process if its parent is killed. Linux only; on
// other systems the child continues to serve.
SEXP ffi_child_follow(SEXP parent) {
    signals_have_parent(Rf_asInteger(parent));
#ifdef __linux__
    if (getppid() == (pid_t)Rf_asInteger(parent)) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != (pid_t)Rf_asInteger(parent)) {
            raise(SIGTERM);
        }
    }
#endif
    return R_NilValue;
}
