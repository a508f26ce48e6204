// The R that serves a path: starting it, and waiting for it.
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

// waitpid() is asked this often: R's loop and its interrupts stay in between.
static const long poll_nanoseconds = 20000000;

// The argument vector of an R character vector; R frees it with the call that made it.
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

// Signals as a new program expects them, in a group of its own: Ctrl-C on the terminal would reach it twice otherwise,
// from the terminal and from us. posix_spawn(), for fork() would run what other libraries registered for it.
static int prepare(posix_spawnattr_t* attributes, posix_spawn_file_actions_t* files) {
    sigset_t none;
    sigset_t defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    // What is ignored here is ignored there; SIGTERM is what we stop it with.
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
    // Of another group than the terminal's: reading from it would stop the child.
    return problem != 0 ? problem : posix_spawn_file_actions_addopen(files, 0, "/dev/null", O_RDONLY, 0);
}

// The process id, or what went wrong as a string. From now on signals are passed on to the child.
SEXP ffi_child_start(SEXP program, SEXP arguments) {
    char** vector = argument_vector(program, arguments);
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t files;
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_init(&files);
    pid_t pid = 0;
    // A signal between the start and the passing on would end us and leave the child.
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

// c(exit status, last signal passed on) when the child has ended within `seconds`, NULL otherwise. A child that died
// of a signal has 128 and its number as status, as in a shell.
SEXP ffi_child_wait(SEXP pid, SEXP seconds) {
    long rounds = (long)(Rf_asReal(seconds) * 1e9) / poll_nanoseconds;
    for (long i = 0; i <= rounds; i++) {
        int status;
        pid_t ended = waitpid((pid_t)Rf_asInteger(pid), &status, WNOHANG);
        if (ended != 0 && !(ended < 0 && errno == EINTR)) {
            // Somebody else (parallel, processx) may have waited for it: then its status is not to be had.
            int code = ended < 0 ? 0 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
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
    kill((pid_t)Rf_asInteger(pid), Rf_asInteger(signal_number));
    return R_NilValue;
}

SEXP ffi_child_forget(void) {
    signals_pass_to(0);
    return R_NilValue;
}

// In the child: a parent that is killed takes it along. Linux only; elsewhere the child goes on serving.
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
