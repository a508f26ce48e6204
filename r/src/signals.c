// SIGINT, SIGTERM, SIGHUP and SIGALRM while serve() runs. This is the only file that installs
// handlers for them. A handler may do little: it records the signal, and sets an alarm in case that
// the app's R code does not return. Outside of serve(), SIGINT belongs to R or to its host, and
// guarded_call.c learns of interrupts from R.
//
//   stage      a signal                                  the alarm
//   WATCHING   -> ASKED: service() ends, sets the alarm  -
//              -> OVERDUE if there is no listener:
//                 interrupts R
//   ASKED      ends the process                          -> OVERDUE: interrupts R like Ctrl-C,
//                                                           sets the alarm
//   OVERDUE    SIGINT is passed to R's handler, others   ends the process by the first signal
//              end the process
//
// Several signals can belong to one request to stop. Those after the first change nothing, see
// ask_to_stop().
//
// A SIGHUP that was sent to an HTTPS server is an exception: it reloads the certificates.
//
// A worker leaves all of these signals to its supervisor: a signal to the whole process group (from
// systemd, Heroku or supervisord) means that the supervisor should shut down gracefully, and the
// supervisor decides how long the workers continue. A worker obeys a signal only if its supervisor
// has requested its end, or has died. The exception is SIGINT during Sys.sleep(), for which R
// installs a handler of its own: it interrupts the request. SIGUSR2, which would end R at once,
// does nothing, and neither does SIGUSR1 in a worker.
//
// While the program serves a path for serve(), all signals are forwarded to the program instead.
// Signals that were ignored stay ignored: by nohup, or in the background of a script.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"
// R_interrupts_pending is declared only there.
#include <R_ext/GraphicsEngine.h>

// The seconds that R has after the alarm to leave the interrupted handler; in a worker whose time
// is over, also until the alarm.
static const unsigned grace_seconds = 1;
// The time reserved for closing: service() stops this long before the alarm.
static const double closing_seconds = 0.25;

static const int stop_signals[] = {SIGINT, SIGTERM, SIGHUP};
enum { STOP_SIGNALS = sizeof stop_signals / sizeof stop_signals[0] };

enum stage { NOT_WATCHING, WATCHING, ASKED, OVERDUE };

static volatile sig_atomic_t stage;
static volatile sig_atomic_t seen;       // the first signal; 0: none
static volatile sig_atomic_t is_heeded;  // whether service() has handled the request to stop
static volatile sig_atomic_t is_reload;  // whether SIGHUP has requested a reload of certificates
static volatile sig_atomic_t listeners;  // the number of listeners of this process
static bool has_stopped_all;             // the last listener was stopped, and none started since
static volatile sig_atomic_t limit;      // seconds from the first signal to the alarm
static struct timespec seen_at;          // valid when `seen` is not 0
// Whether the time of the requests is over, because the supervisor of this worker says so.
static volatile sig_atomic_t is_over;

// The previous handlers, valid where `is_ours`.
static struct sigaction before[STOP_SIGNALS];
static bool is_ours[STOP_SIGNALS];
static struct sigaction before_alarm;

// Signals that do nothing while serve() runs, the first in any process and the second in a worker;
// and their previous handlers.
static const int idle_signals[] = {SIGUSR2, SIGUSR1};
enum { IDLE_SIGNALS = sizeof idle_signals / sizeof idle_signals[0] };
static struct sigaction before_idle[IDLE_SIGNALS];

// The process id of the supervisor, or 0; and whether the next signal is the one by which the I/O
// thread ends this process.
static volatile sig_atomic_t supervisor;
static atomic_int is_stop_signalled;
// Whether the I/O thread, which alone uses it, has sent that signal.
static bool is_ordered;
// Set while this file raises SIGINT to interrupt R.
static volatile sig_atomic_t is_interrupting;

// In a worker, its own process id, because its I/O thread sends it SIGTERM on behalf of the
// supervisor. Otherwise 0. `sides_heard` has the senders that have requested this process to stop.
enum { OF_PARENT = 1, OF_OTHERS = 2 };
static volatile sig_atomic_t parent;
static volatile sig_atomic_t sides_heard;

// The program that serves a path for serve(), to which signals are forwarded, or 0; and the last
// forwarded signal.
static volatile sig_atomic_t program;
static volatile sig_atomic_t passed_on;

static void on_signal(int signal_number, siginfo_t* info, void* context);

// R (in Sys.sleep()) and other code restore a handler by signal(), which keeps the function but not
// the flags.
static bool is_handler(const struct sigaction* action, void (*handler)(int, siginfo_t*, void*)) {
    return (action->sa_flags & SA_SIGINFO) ? action->sa_sigaction == handler
                                           : action->sa_handler == (void (*)(int))handler;
}

static bool is_plain(const struct sigaction* action, void (*handler)(int)) {
    return !(action->sa_flags & SA_SIGINFO) && action->sa_handler == handler;
}

static void die_of(int signal_number) {
    signal(signal_number, SIG_DFL);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal_number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    raise(signal_number);
}

// Returns whether the handler of the signal gets valid arguments besides the number. The arguments
// are invalid if other code has installed the handler again with signal(), as R does in
// Sys.sleep().
static bool has_info(int signal_number) {
    struct sigaction installed;
    return sigaction(signal_number, NULL, &installed) == 0 && (installed.sa_flags & SA_SIGINFO);
}

// Returns whether a process, and not the system, has sent the signal.
static bool is_sent(int signal_number, const siginfo_t* info) {
    return has_info(signal_number) && (info->si_code == SI_USER || info->si_code == SI_QUEUE);
}

// Calls the previous handler. R's handler installs itself again, so ours is restored afterwards.
static void do_as_before(int index, siginfo_t* info, void* context) {
    int number = stop_signals[index];
    const struct sigaction* action = &before[index];
    struct sigaction installed;
    sigaction(number, NULL, &installed);
    if (action->sa_flags & SA_SIGINFO) {
        bool is_valid = has_info(number);
        action->sa_sigaction(number, is_valid ? info : NULL, is_valid ? context : NULL);
    } else if (action->sa_handler == SIG_DFL) {
        die_of(number);
    } else if (action->sa_handler != SIG_IGN) {
        action->sa_handler(number);
    }
    struct sigaction now;
    sigaction(number, NULL, &now);
    if (now.sa_handler != installed.sa_handler) {
        sigaction(number, &installed, NULL);
    }
}

static int index_of(int signal_number) {
    int index = 0;
    while (stop_signals[index] != signal_number) {
        index++;
    }
    return index;
}

// Interrupts R like Ctrl-C. If that does not help, the alarm ends the process.
static void interrupt_overdue(void) {
    stage = OVERDUE;
    alarm(grace_seconds);
    signals_interrupt();
}

// Returns whether this is the first request to stop from its sender. A signal to all processes of a
// service arrives twice: directly, and from `parent`.
static bool is_first_of_side(int signal_number, const siginfo_t* info) {
    bool is_of_parent = is_sent(signal_number, info) && info->si_pid == (pid_t)parent;
    int side = is_of_parent ? OF_PARENT : OF_OTHERS;
    bool is_first = (sides_heard & side) == 0;
    sides_heard |= side;
    return is_first;
}

// Returns whether the signal comes from `parent`, but was not forwarded: the system sends it when
// the parent has died, or the I/O thread of a worker sends it. All such signals are one request to
// stop. Linux may send several, because the parent of a process is a thread: when that thread ends,
// Linux sends the signal of PR_SET_PDEATHSIG and makes another thread of the same process the
// parent, and so on.
static bool is_unforwarded(int signal_number, const siginfo_t* info) {
#ifdef __linux__
    // Signals that the parent forwards have SI_QUEUE, see signals_send().
    return parent != 0 && has_info(signal_number) && info->si_code == SI_USER &&
        info->si_pid == (pid_t)parent;
#else
    (void)signal_number;
    (void)info;
    return false;
#endif
}

static void ask_to_stop(int signal_number, const siginfo_t* info) {
    bool is_first = is_first_of_side(signal_number, info);
    bool is_same_request = (parent != 0 && is_first) || is_unforwarded(signal_number, info);
    if (stage != WATCHING) {
        if (!is_same_request) {
            die_of(signal_number);
        }
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &seen_at);
    seen = signal_number;
    if (listeners == 0) {
        // The app is still loading, so there are no requests to finish. The supervisor of a worker
        // logs why it stops the worker.
        if (supervisor == 0) {
            static const char text[] = "Stopping: nothing is being served yet.\n";
            ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
            (void)written;
        }
        interrupt_overdue();
        return;
    }
    stage = ASKED;
    if (is_over != 0) {
        alarm(grace_seconds);
    } else if (limit > 0) {
        alarm((unsigned)limit);
    }
}

// Returns whether a process has sent this SIGHUP. The SIGHUP that the system sends when a terminal
// is closed ends the process, as always.
static bool is_sent_hangup(int signal_number, const siginfo_t* info) {
    return signal_number == SIGHUP && is_sent(signal_number, info);
}

// Returns whether a worker leaves the signal to its supervisor, because a second signal would end
// the worker at once. The signal that the I/O thread sends is not left to the supervisor, and
// clears `is_stop_signalled`.
static bool leave_to_supervisor(void) {
    if (supervisor == 0 || is_interrupting || getppid() != (pid_t)supervisor) {
        return false;
    }
    return atomic_exchange(&is_stop_signalled, 0) == 0;
}

// Returns whether the signal requests a reload of the certificates of an HTTPS server.
static bool asks_for_reload(int signal_number, const siginfo_t* info) {
    return stage == WATCHING && rk_has_tls() && is_sent_hangup(signal_number, info);
}

static void on_signal(int signal_number, siginfo_t* info, void* context) {
    int saved_errno = errno;
    if (leave_to_supervisor()) {
        // The I/O thread handles requests of the supervisor.
    } else if (program > 0) {
        passed_on = signal_number;
        // SIGTERM also for SIGHUP, by which the program would reload.
        signals_send(program, SIGTERM);
    } else if (stage == NOT_WATCHING || (stage == OVERDUE && signal_number == SIGINT)) {
        // Another handler in front of this one has called it, or an interrupt is passed on to the
        // event loop.
        do_as_before(index_of(signal_number), info, context);
    } else if (asks_for_reload(signal_number, info)) {
        is_reload = 1;
    } else {
        ask_to_stop(signal_number, info);
    }
    errno = saved_errno;
}

static void do_nothing(int signal_number) {
    (void)signal_number;
}

// Returns the number of signals in `idle_signals` that apply to this process.
static int idle_count(void) {
    return supervisor != 0 ? IDLE_SIGNALS : 1;
}

// The time is up and serve() has not returned: interrupts R like Ctrl-C, and the next time ends the
// process.
static void on_alarm(int signal_number) {
    int saved_errno = errno;
    (void)signal_number;
    if (stage == OVERDUE) {
        die_of(seen);
    }
    interrupt_overdue();
    errno = saved_errno;
}

static void watch(void) {
    struct sigaction ours = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    // Signals are handled one after the other, so that no stage is skipped.
    sigemptyset(&ours.sa_mask);
    sigaddset(&ours.sa_mask, SIGALRM);
    for (int i = 0; i < STOP_SIGNALS; i++) {
        sigaddset(&ours.sa_mask, stop_signals[i]);
    }
    for (int i = 0; i < STOP_SIGNALS; i++) {
        struct sigaction now;
        sigaction(stop_signals[i], NULL, &now);
        // A handler that was installed in front of ours either calls ours, and must not be called
        // by it in turn, or has taken over the signal.
        if (is_ours[i] || is_plain(&now, SIG_IGN)) {
            continue;
        }
        before[i] = now;
        is_ours[i] = sigaction(stop_signals[i], &ours, NULL) == 0;
    }
    // No SA_RESTART, so that system calls in which R waits return.
    struct sigaction ours_alarm = {.sa_handler = on_alarm, .sa_mask = ours.sa_mask};
    sigaction(SIGALRM, &ours_alarm, &before_alarm);
    // SIG_IGN is not used, because processes that R starts would inherit it.
    struct sigaction idle = {.sa_handler = do_nothing, .sa_flags = SA_RESTART};
    sigemptyset(&idle.sa_mask);
    for (int i = 0; i < idle_count(); i++) {
        sigaction(idle_signals[i], &idle, &before_idle[i]);
    }
}

static void unwatch(void) {
    alarm(0);
    for (int i = 0; i < STOP_SIGNALS; i++) {
        struct sigaction now;
        sigaction(stop_signals[i], NULL, &now);
        // If another handler was installed in front of ours, ours stays and calls the previous one.
        if (is_ours[i] && is_handler(&now, on_signal)) {
            sigaction(stop_signals[i], &before[i], NULL);
            is_ours[i] = false;
        }
    }
    sigaction(SIGALRM, &before_alarm, NULL);
    for (int i = 0; i < idle_count(); i++) {
        struct sigaction now;
        sigaction(idle_signals[i], NULL, &now);
        if (is_plain(&now, do_nothing)) {
            sigaction(idle_signals[i], &before_idle[i], NULL);
        }
    }
}

// Interrupts R like Ctrl-C, by its own handler or that of its host.
void signals_interrupt(void) {
    struct sigaction now;
    if (stage == OVERDUE) {
        if (is_ours[0] && !is_plain(&before[0], SIG_DFL)) {
            do_as_before(0, NULL, NULL);
        } else if (signal_is_ignored(SIGINT)) {
            // R 4.5 and later does not handle an ignored SIGINT. This is what its handler would do.
            R_interrupts_pending = 1;
        }
    } else if (sigaction(SIGINT, NULL, &now) == 0 && !is_plain(&now, SIG_DFL) &&
            !is_plain(&now, SIG_IGN)) {
        is_interrupting = 1;
        raise(SIGINT);
        is_interrupting = 0;
    }
}

// Returns whether serve() runs in this process.
bool signals_are_watched(void) {
    return stage != NOT_WATCHING;
}

// Returns whether R has received an interrupt that has not interrupted R code yet.
bool interrupt_is_pending(void) {
    return R_interrupts_pending != 0;
}

// Returns whether a request to stop waits. It is cheap enough for each iteration of the event loop.
bool stop_is_requested(void) {
    return seen != 0 && is_heeded == 0;
}

// Returns whether a reload of certificates is requested; as cheap.
bool reload_is_requested(void) {
    return is_reload != 0;
}

void take_reload_request(void) {
    is_reload = 0;
}

// Returns whether a signal has begun to end serve(). Called on any thread.
static bool signals_have_begun(void) {
    return stage == ASKED || stage == OVERDUE;
}

// Marks a request to stop, and the end of all servers, as handled.
void take_stop_request(void) {
    is_heeded = is_heeded || stop_is_requested();
    has_stopped_all = false;
}

// Installs the handlers. R is interrupted `seconds` after the first signal.
SEXP ffi_signals_watch(SEXP seconds) {
    if (stage != NOT_WATCHING) {
        abort_with("rookery_bad_state", "serve() is already running in this session");
    }
    seen = 0;
    is_heeded = 0;
    sides_heard = 0;
    has_stopped_all = false;
    limit = Rf_asInteger(seconds);
    stage = WATCHING;
    watch();
    return R_NilValue;
}

SEXP ffi_signals_unwatch(void) {
    if (stage != NOT_WATCHING) {
        stage = NOT_WATCHING;
        unwatch();
    }
    return R_NilValue;
}

SEXP ffi_signals_seen(void) {
    return Rf_ScalarInteger(seen);
}

// Returns the seconds that remain to finish requests in progress; all of them if R was interrupted
// in another way, and none if the supervisor's drain is over.
SEXP ffi_signals_left(void) {
    double left = is_over != 0 ? 0 : limit - closing_seconds;
    if (seen != 0) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        left -= (double)(now.tv_sec - seen_at.tv_sec) + (double)(
            now.tv_nsec - seen_at.tv_nsec) * 1e-9;
    }
    return Rf_ScalarReal(left > 0 ? left : 0);
}

// Called when all requests are finished, or the time is up. Closing then has the grace period of an
// interrupted handler.
SEXP ffi_signals_closing(void) {
    if (seen != 0) {
        stage = OVERDUE;
        alarm(grace_seconds);
    }
    return R_NilValue;
}

// Sends a signal to the program. On Linux, SI_QUEUE tells the program that this process forwards
// the signal.
void signals_send(int pid, int signal_number) {
#ifdef __linux__
    union sigval nothing = {0};
    sigqueue((pid_t)pid, signal_number, nothing);
#else
    kill((pid_t)pid, signal_number);
#endif
}

// Forwards signals to the program, or stops with 0 when it has ended, see program.c.
// Installs the handlers unless serve() has done so.
void signals_pass_to(int pid) {
    if (pid > 0) {
        passed_on = 0;
        program = pid;
        if (stage == NOT_WATCHING) {
            watch();
        }
    } else if (program > 0) {
        program = 0;
        if (stage == NOT_WATCHING) {
            unwatch();
        }
    }
}

// Counts a listener that was started or stopped. Without listeners there are no requests to finish.
void signals_count_listener(int change) {
    listeners = listeners + change > 0 ? listeners + change : 0;
    has_stopped_all = change < 0 && listeners == 0;
}

// Returns whether an app that serve() runs has stopped all of its servers, so that nobody can reach
// it any more. A worker's supervisor handles this itself.
bool has_stopped_all_servers(void) {
    return stage == WATCHING && supervisor == 0 && has_stopped_all;
}

// Called in a forked child, to which signals have their usual meaning, because it runs no
// service().
void signals_forked(void) {
    if (stage != NOT_WATCHING || program > 0) {
        stage = NOT_WATCHING;
        program = 0;
        seen = 0;
        unwatch();
    }
    supervisor = 0;
    parent = 0;
}

// Notes that this process is a worker, and its parent its supervisor.
void signals_are_supervised(void) {
    supervisor = getppid();
    parent = getpid();
}

// Called on the I/O thread: ends the process as SIGTERM does, because the supervisor requests it or
// has died. If `is_time_over`, the supervisor has waited for the requests in progress, and R is
// interrupted after a second. R's thread gets the signal, which is blocked in all other threads.
void signals_end(int is_time_over) {
    if (is_time_over != 0) {
        is_over = 1;
        if (stage == ASKED) {
            alarm(grace_seconds);
        }
    }
    // A second signal would end serve() at once.
    if (!is_ordered && !signals_have_begun()) {
        is_ordered = true;
        is_stop_signalled = 1;
        kill(getpid(), SIGTERM);
    }
}

int signals_passed(void) {
    return passed_on;
}

bool signal_is_ignored(int signal_number) {
    struct sigaction now;
    return sigaction(signal_number, NULL, &now) == 0 && is_plain(&now, SIG_IGN);
}
