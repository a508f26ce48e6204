// Package later, R's event loop: asked for what it has once it is loaded, and loaded when R has to be reached.
//
// To load it takes half of the time to a first answer (it imports rlang and Rcpp). Until somebody does it has nothing to run, and a
// service() waits by itself. So an R that serves does without; one at its prompt gets it with its first server (R/globals.R); and any
// other with an event loop is reached by a bell: a pipe that R's event loop watches, and whose handler loads it.
#include <R_ext/eventloop.h>
#include <fcntl.h>
#include <unistd.h>

#include "shim.h"

// Of package later: runs `callback` from R's event loop; may be called on any thread.
typedef void (*exec_later_t)(void (*callback)(void*), void* data, double seconds, int loop);
static exec_later_t exec_later;  // NULL: it is not loaded
static void (*callback)(void*);
static int is_scheduled;
static int is_closed;

static SEXP run_call;   // later::run_now(0, all = FALSE)
static SEXP wait_call;  // the same with room for the time

static int bell[2] = {-1, -1};
// Which of R's handlers it is: any number that no other package has.
enum { BELL_ACTIVITY = 77 };

bool later_is_loaded(void) {
    return __atomic_load_n(&exec_later, __ATOMIC_SEQ_CST) != NULL;
}

// Has R's event loop run the callback. On any thread; no R here.
void later_schedule(void) {
    if (__atomic_load_n(&is_closed, __ATOMIC_SEQ_CST) != 0 ||
        __atomic_exchange_n(&is_scheduled, 1, __ATOMIC_SEQ_CST) != 0) {
        return;
    }
    exec_later_t exec = __atomic_load_n(&exec_later, __ATOMIC_SEQ_CST);
    if (exec != NULL) {
        exec(callback, NULL, 0, 0);
    } else if (bell[1] >= 0) {
        ssize_t written = write(bell[1], "", 1);
        // A pipe that is full has rung.
        (void)written;
    }
}

// Has it run another one, if `later` is loaded. On any thread; no R here.
void later_soon(void (*other)(void*)) {
    exec_later_t exec = __atomic_load_n(&exec_later, __ATOMIC_SEQ_CST);
    if (exec != NULL && __atomic_load_n(&is_closed, __ATOMIC_SEQ_CST) == 0) {
        exec(other, NULL, 0, 0);
    }
}

// The callback has come.
void later_has_run(void) {
    __atomic_store_n(&is_scheduled, 0, __ATOMIC_SEQ_CST);
}

// Nothing is to be scheduled any more.
void later_close(void) {
    __atomic_store_n(&is_closed, 1, __ATOMIC_SEQ_CST);
}

// Also when this package is loaded again: `later` may have been, too.
void later_init(void (*run)(void*)) {
    callback = run;
    __atomic_store_n(&exec_later, NULL, __ATOMIC_SEQ_CST);
    __atomic_store_n(&is_scheduled, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&is_closed, 0, __ATOMIC_SEQ_CST);
}

static bool pipe_new(int ends[2]) {
    if (pipe(ends) != 0) {
        return false;
    }
    for (int i = 0; i < 2; i++) {
        fcntl(ends[i], F_SETFD, FD_CLOEXEC);
        fcntl(ends[i], F_SETFL, O_NONBLOCK);
    }
    return true;
}

// R's event loop has seen the bell: `later` is loaded, unless a function of R's is running, in which it would run nothing.
static void rung(void* data) {
    char bytes[16];
    bool failed = false;
    (void)data;
    while (read(bell[0], bytes, sizeof bytes) > 0) {
    }
    if (!later_is_loaded()) {
        SEXP call = PROTECT(Rf_lang1(objs.reach_later));
        SEXP is_reached = call_quietly(call, &failed);
        if (!failed && Rf_asLogical(is_reached) != TRUE) {
            // The I/O thread rings again in a millisecond while something waits.
            later_has_run();
        }
        UNPROTECT(1);
    }
    if (failed) {
        report("a request", R_NilValue, "package later cannot be loaded: requests are handled by service() alone");
    }
}

// Before a server listens: the I/O thread can reach an R that does not serve.
void later_reachable(void) {
    if (!later_is_loaded() && bell[0] < 0) {
        if (!pipe_new(bell)) {
            Rf_error("rookery: a pipe cannot be made: too many files are open");
        }
        addInputHandler(R_InputHandlers, bell[0], rung, BELL_ACTIVITY);
    }
}

// In a forked child, whose R watches the descriptors that it inherited: they are a bell of its own. No R here.
void later_forked(void) {
    int ends[2];
    is_scheduled = 0;
    if (bell[0] >= 0 && pipe_new(ends)) {
        for (int i = 0; i < 2; i++) {
            dup2(ends[i], bell[i]);
            fcntl(bell[i], F_SETFD, FD_CLOEXEC);
            close(ends[i]);
        }
    }
}

static SEXP run_now_call(SEXP run_now, SEXP before) {
    SEXP zero = PROTECT(Rf_ScalarReal(0));
    SEXP no = PROTECT(Rf_ScalarLogical(FALSE));
    SEXP call = Rf_lang3(run_now, zero, no);
    R_PreserveObject(call);
    SET_TAG(CDDR(call), Rf_install("all"));
    if (before != NULL) {
        R_ReleaseObject(before);
    }
    UNPROTECT(2);
    return call;
}

// `later` is loaded: what was asked of the bell is asked of it.
SEXP ffi_later_use(SEXP run_now) {
    run_call = run_now_call(run_now, run_call);
    wait_call = run_now_call(run_now, wait_call);
    exec_later_t exec = (exec_later_t)R_GetCCallable("later", "execLaterNative2");
    __atomic_store_n(&exec_later, exec, __ATOMIC_SEQ_CST);
    // Whoever asks from here on sees it; whoever asked before is seen here.
    if (__atomic_load_n(&is_scheduled, __ATOMIC_SEQ_CST) != 0) {
        exec(callback, NULL, 0, 0);
    }
    return R_NilValue;
}

// Runs one callback of later's, for which it waits for up to `seconds`; whether there was one. May raise what that raised.
bool later_run(double seconds) {
    SEXP call = run_call;
    if (seconds > 0) {
        // In place: this call is not evaluated again before it returns with the value read.
        SETCADR(wait_call, PROTECT(Rf_ScalarReal(seconds)));
        call = wait_call;
        UNPROTECT(1);
    }
    SEXP ran = Rf_eval(call, R_BaseEnv);
    return TYPEOF(ran) == LGLSXP && XLENGTH(ran) == 1 && LOGICAL(ran)[0] == TRUE;
}
