// This process as a worker of a supervisor: see crates/worker-protocol, and docs/decisions/workers/0033-worker-protocol.md.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "shim.h"

// By which the I/O thread has R's look: ignored by default, so a process that R starts does not end of it, and R has no use for it.
// SIGINT would ask serve() to stop.
static const int look_signal = SIGURG;

static pthread_t r_thread;
static atomic_bool is_to_collect;

static void on_look(int signal_number) {
    (void)signal_number;
    guard_interrupt_handler();
}

// On the I/O thread.
static void interrupt(void) {
    pthread_kill(r_thread, look_signal);
}

// On the I/O thread. R looks, where it waits, several times a second.
static void collect(void) {
    atomic_store_explicit(&is_to_collect, true, memory_order_relaxed);
}

// Gives back what nothing refers to any more: the supervisor has found that there is much, and would replace this process for it. R
// collects when it allocates, so one that has nothing to do keeps what its last request left behind; and glibc keeps what R has freed.
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
    SEXP call = PROTECT(Rf_lang1(Rf_install("interactive")));
    if (Rf_asLogical(Rf_eval(call, R_BaseEnv)) == TRUE) {
        guard_set_at_terminal();
    }
    UNPROTECT(1);
    r_thread = pthread_self();
    // No SA_RESTART: what R waits in has to come back.
    struct sigaction action = {.sa_handler = on_look};
    sigemptyset(&action.sa_mask);
    sigaction(look_signal, &action, NULL);
}

// NULL in a process that is no worker; TRUE when a server may listen on its socket, FALSE while one does, and a string that says why
// it cannot be one.
SEXP ffi_worker_state(void) {
    switch (rk_worker_state()) {
    case RK_WORKER_SOCKET_FREE:
        return Rf_ScalarLogical(TRUE);
    case RK_WORKER_SOCKET_USED:
        return Rf_ScalarLogical(FALSE);
    case RK_WORKER_FAILED:
        return Rf_mkString(rk_error());
    default:
        return R_NilValue;
    }
}

// Whether a listener has the socket.
SEXP ffi_worker_uses_socket(SEXP listener) {
    return Rf_ScalarLogical(rk_worker_uses_socket((uint32_t)Rf_asInteger(listener)));
}
