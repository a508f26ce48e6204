// SIGINT, SIGTERM and SIGHUP while serve() runs: the first asks service() to end gracefully, a second one ends the
// process at once. What may be done in a signal handler is little: it notes the signal, and sets an alarm for the
// case that R is in a handler of the app's that does not come back.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"

// After the alarm R has this long to leave a handler that it was interrupted in.
static const unsigned grace_seconds = 1;
// What closing takes, of the seconds given: service() stops this long before the alarm.
static const double closing_seconds = 0.25;

static const int stop_signals[] = {SIGINT, SIGTERM, SIGHUP};
enum { STOP_SIGNALS = sizeof stop_signals / sizeof stop_signals[0] };

static struct sigaction saved[STOP_SIGNALS];
static struct sigaction saved_alarm;
static bool is_watching_stop;
static volatile sig_atomic_t seen;       // the first signal; 0: none
static volatile sig_atomic_t is_heeded;  // service() has been told
static volatile sig_atomic_t alarms;
static volatile sig_atomic_t limit;      // seconds from the first signal to the alarm
static struct timespec seen_at;          // valid when `seen` is not 0

// The child of serve_in_child(): while there is one, signals are its.
static volatile sig_atomic_t child;
static volatile sig_atomic_t passed_on;

static void die_of(int signal_number) {
    signal(signal_number, SIG_DFL);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal_number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    raise(signal_number);
}

// R's handler of SIGINT, as it was before serve().
static void interrupt_r(siginfo_t* info, void* context) {
    const struct sigaction* r = &saved[0];
    if (r->sa_flags & SA_SIGINFO) {
        r->sa_sigaction(SIGINT, info, context);
    } else if (r->sa_handler != SIG_IGN && r->sa_handler != SIG_DFL) {
        r->sa_handler(SIGINT);
    }
}

static void on_stop(int signal_number, siginfo_t* info, void* context) {
    int saved_errno = errno;
    if (child > 0) {
        passed_on = signal_number;
        // Ctrl-C as well: R puts a handler of its own in place of the child's while it is in Sys.sleep().
        kill((pid_t)child, SIGTERM);
    } else if (signal_number == SIGINT && alarms > 0) {
        // guard.c's, after the interrupt of on_alarm(): the loop is to be left as well.
        interrupt_r(info, context);
    } else if (seen != 0) {
        die_of(signal_number);
    } else {
        clock_gettime(CLOCK_MONOTONIC, &seen_at);
        seen = signal_number;
        if (limit > 0) {
            alarm((unsigned)limit);
        }
    }
    errno = saved_errno;
}

// Time is up and serve() has not returned: R is interrupted as by Ctrl-C; if that does not help the process ends.
static void on_alarm(int signal_number, siginfo_t* info, void* context) {
    int saved_errno = errno;
    (void)signal_number;
    if (alarms++ > 0) {
        die_of(seen);
    }
    alarm(grace_seconds);
    interrupt_r(info, context);
    errno = saved_errno;
}

static void watch(void) {
    // First, so that guard.c takes its place behind ours and does not look for one again.
    watch_sigint();
    struct sigaction ours = {.sa_sigaction = on_stop, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigemptyset(&ours.sa_mask);
    for (int i = 0; i < STOP_SIGNALS; i++) {
        sigaddset(&ours.sa_mask, stop_signals[i]);
    }
    for (int i = 0; i < STOP_SIGNALS; i++) {
        sigaction(stop_signals[i], &ours, &saved[i]);
    }
    struct sigaction ours_alarm = {.sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO};
    sigemptyset(&ours_alarm.sa_mask);
    sigaction(SIGALRM, &ours_alarm, &saved_alarm);
    is_watching_stop = true;
}

static void unwatch(void) {
    if (!is_watching_stop) {
        return;
    }
    alarm(0);
    is_watching_stop = false;
    for (int i = 0; i < STOP_SIGNALS; i++) {
        struct sigaction now;
        sigaction(stop_signals[i], NULL, &now);
        // R's handler of SIGINT puts itself in place when it has run: then that is where it belongs.
        if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_stop) {
            sigaction(stop_signals[i], &saved[i], NULL);
        }
    }
    sigaction(SIGALRM, &saved_alarm, NULL);
}

// Whether a signal waits to be heeded. Cheap: for every turn of a loop.
bool stop_is_asked(void) {
    return seen != 0 && is_heeded == 0;
}

// The same, and it is heeded with that.
bool stop_take(void) {
    bool is_asked = stop_is_asked();
    is_heeded = is_heeded || is_asked;
    return is_asked;
}

// From now on the signals are serve()'s; `seconds` after the first one R is interrupted.
SEXP ffi_signals_watch(SEXP seconds) {
    if (is_watching_stop) {
        Rf_error("serve() runs already in this session");
    }
    seen = 0;
    is_heeded = 0;
    alarms = 0;
    limit = Rf_asInteger(seconds);
    watch();
    return R_NilValue;
}

SEXP ffi_signals_unwatch(void) {
    unwatch();
    return R_NilValue;
}

SEXP ffi_signals_seen(void) {
    return Rf_ScalarInteger(seen);
}

// Seconds that are left to finish what is in hand; all of them when R was interrupted otherwise.
SEXP ffi_signals_left(void) {
    double left = limit - closing_seconds;
    if (seen != 0) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        left -= (double)(now.tv_sec - seen_at.tv_sec) + (double)(now.tv_nsec - seen_at.tv_nsec) * 1e-9;
    }
    return Rf_ScalarReal(left > 0 ? left : 0);
}

// What was in hand is finished, or time is up: closing has the grace of an interrupted handler, and no longer.
SEXP ffi_signals_closing(void) {
    if (seen != 0) {
        alarms = 1;
        alarm(grace_seconds);
    }
    return R_NilValue;
}

// The child's turn: see child.c.
void signals_pass_to(int pid) {
    passed_on = 0;
    child = pid;
    if (pid > 0 && !is_watching_stop) {
        watch();
    } else if (pid == 0) {
        unwatch();
    }
}

int signals_passed(void) {
    return passed_on;
}
