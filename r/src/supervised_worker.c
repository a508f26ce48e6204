// The C functions of a worker of a supervisor. See crates/worker-protocol and
// docs/decisions/workers/0033-worker-protocol.md. Workers exist only on Linux.
#include "shim.h"

#ifdef __linux__
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

// The signal by which the I/O thread interrupts R's thread. By default it is ignored, so it does
// not end a process that R starts, and R does not use it. SIGINT would make serve() stop.
static const int look_signal = SIGURG;

static pthread_t r_thread;
static atomic_bool is_to_collect;

static void on_look(int signal_number) {
    (void)signal_number;
    guard_interrupt_handler();
}

// Called on the I/O thread.
static void interrupt(void) {
    pthread_kill(r_thread, look_signal);
}

// Called on the I/O thread. While R waits, it checks the flag several times a second.
static void collect(void) {
    atomic_store_explicit(&is_to_collect, true, memory_order_relaxed);
}

// Collects garbage and returns free memory to the system, because the supervisor has found that
// this process uses much memory and would replace it. R collects only when it allocates, so an idle
// process keeps what its last request left, and glibc keeps memory that R has freed.
void worker_collect(void) {
    if (!atomic_load_explicit(&is_to_collect, memory_order_relaxed)) {
        return;
    }
    atomic_store_explicit(&is_to_collect, false, memory_order_relaxed);
    R_gc();
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

void worker_init(void) {
    rk_worker_join(interrupt, collect, signals_end);
    if (rk_worker_state() == RK_WORKER_NONE) {
        return;
    }
    signals_are_supervised();
    stack_sampling_watch(rk_profile_word());
    SEXP call = PROTECT(Rf_lang1(Rf_install("interactive")));
    if (Rf_asLogical(Rf_eval(call, R_BaseEnv)) == TRUE) {
        guard_set_at_terminal();
    }
    UNPROTECT(1);
    r_thread = pthread_self();
    // No SA_RESTART, so that system calls in which R waits return.
    struct sigaction action = {.sa_handler = on_look};
    sigemptyset(&action.sa_mask);
    sigaction(look_signal, &action, NULL);
}

// Returns NULL in a process that is not a worker, TRUE if a server may get the worker's
// requests, FALSE if a server gets them, and an error message if this process cannot be a worker.
SEXP ffi_worker_state(void) {
    switch (rk_worker_state()) {
    case RK_WORKER_FREE:
        return Rf_ScalarLogical(TRUE);
    case RK_WORKER_USED:
        return Rf_ScalarLogical(FALSE);
    case RK_WORKER_FAILED:
        return last_error();
    default:
        return R_NilValue;
    }
}

// Unblocks SIGINT, which the supervisor has blocked for a preloaded worker (spawn.rs), and discards
// a pending one: at a terminal, Ctrl-C also reaches this process, but is meant for another one.
static void unblock_interrupts(void) {
    sigset_t set, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    int signal_number;
    if (sigpending(&pending) == 0 && sigismember(&pending, SIGINT) == 1) {
        sigwait(&set, &signal_number);
    }
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

// Waits until the supervisor lets a preloaded worker read the app. Returns FALSE if the supervisor
// has closed the gate instead. Closes the descriptor, so that processes of the app do not inherit
// it.
SEXP ffi_worker_gate(SEXP gate) {
    int fd = Rf_asInteger(gate);
    char byte;
    ssize_t count;
    while ((count = read(fd, &byte, 1)) < 0 && errno == EINTR) {
        R_CheckUserInterrupt();
    }
    close(fd);
    unblock_interrupts();
    return Rf_ScalarLogical(count == 1);
}

// Returns whether a listener gets the worker's requests.
SEXP ffi_worker_serves(SEXP listener) {
    return Rf_ScalarLogical(rk_worker_serves((uint32_t)Rf_asInteger(listener)));
}
#else
void worker_init(void) {
}

void worker_collect(void) {
}

SEXP ffi_worker_state(void) {
    return R_NilValue;
}

SEXP ffi_worker_gate(SEXP gate) {
    (void)gate;
    return Rf_ScalarLogical(FALSE);
}

SEXP ffi_worker_serves(SEXP listener) {
    (void)listener;
    return Rf_ScalarLogical(FALSE);
}
#endif
