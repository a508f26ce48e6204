// The C functions of a worker of a supervisor. See crates/worker-protocol and
// docs/decisions/workers/0033-worker-protocol.md. Workers exist only on Linux.
#include "shim.h"
// R_interrupts_suspended is declared only there.
#include <R_ext/GraphicsEngine.h>

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
// The supervisor has interrupted what Shiny computes between two calls of service().
static volatile sig_atomic_t is_flush_interrupted;
// The token of the frame of the observer that fails if it still runs at the time `due`; 0: none.
static uint64_t candidate;
static double due;
// An observer was made to fail since service() was called last, and whether it has to fail again.
static bool has_raised;
static bool is_repeated;

// The seconds for which an observer has run at least when it is made to fail. The observer that the
// supervisor has seen may be over, and the next one, which takes less time, is not to blame.
static const double grace_seconds = 0.25;

static void on_look(int signal_number) {
    (void)signal_number;
    if (activity_is_between()) {
        is_flush_interrupted = 1;
    } else {
        guard_defer_interrupt();
    }
}

// Makes the running observer or promise of Shiny, if any, fail in place of an interrupt of the
// supervisor. Shiny computes outside of handlers, where an interrupt of R would end the app, and it
// handles an error of an observer. The error has the class by which an app itself cancels an
// output, so the output keeps its value and the session stays open. Called where R checks for
// interrupts; R's time limits raise errors there as well. May jump.
void worker_check_interrupt(void) {
    if (R_interrupts_suspended) {
        return;
    }
    bool is_flush = is_flush_interrupted != 0;
    if (!is_flush && !guard_withdraw_interrupt()) {
        return;
    }
    // R code that is called here checks for interrupts as well.
    is_flush_interrupted = 0;
    SEXP found = R_NilValue;
    bool is_due = monotonic_seconds() >= due;
    if (is_due) {
        bool failed;
        SEXP repeated = PROTECT(Rf_ScalarLogical(is_repeated));
        SEXP call = PROTECT(Rf_lang3(objs.interrupted_observer, kept(candidate), repeated));
        found = call_quietly(call, &failed);
        UNPROTECT(2);
        PROTECT(found);
        if (TYPEOF(found) == VECSXP) {
            // The next observer has the whole time limit for itself.
            rk_task_ended();
            has_raised = true;
            is_repeated = false;
            SEXP stop = PROTECT(Rf_lang2(Rf_install("stop"), found));
            Rf_eval(stop, R_BaseEnv);
        }
        release(candidate);
        candidate = found == R_NilValue ? 0 : keep(found);
        due = monotonic_seconds() + grace_seconds;
        UNPROTECT(1);
    }
    if (is_flush) {
        is_flush_interrupted = 1;
    } else if (is_due && candidate == 0) {
        // No observer runs, so the handler is interrupted as a whole.
        guard_interrupt_handler();
    } else {
        guard_defer_interrupt();
    }
}

// Withdraws an interrupt that no observer has received. Called when service() is called again.
void worker_forget_interrupt(void) {
    is_flush_interrupted = 0;
    release(candidate);
    candidate = 0;
    has_raised = false;
    is_repeated = false;
}

// Makes the running observer fail again, because C code has taken the first failure for an
// interrupt of R. Returns whether there was such a failure.
SEXP ffi_worker_interrupts_again(void) {
    bool is_ours = has_raised;
    if (is_ours) {
        has_raised = false;
        is_repeated = true;
        is_flush_interrupted = 1;
    }
    return Rf_ScalarLogical(is_ours);
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

void worker_check_interrupt(void) {
}

void worker_forget_interrupt(void) {
}

SEXP ffi_worker_interrupts_again(void) {
    return Rf_ScalarLogical(false);
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
