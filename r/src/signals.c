// SIGINT, SIGTERM and SIGHUP while serve() runs, and SIGALRM: the one file that handles signals. What may be done in a
// handler is little: it notes the signal, and sets an alarm for the case that R is in a handler of the app's that does
// not come back. Outside of serve() SIGINT is R's or the host's, and guarded_call.c learns of interrupts from R.
//
//   stage      a signal                                     the alarm
//   WATCHING   ASKED: service() is to end, alarm is set     -
//              OVERDUE, R is interrupted, while there is no listener
//   ASKED      the process ends of it                       OVERDUE: R is interrupted as by Ctrl-C, alarm is set
//   OVERDUE    SIGINT is R's, others end the process        the process ends of the first signal
//
// A SIGHUP that was sent to a server of HTTPS is none of these: it has certificates read anew.
//
// A worker leaves all of them to its supervisor: a signal to the whole process group (from systemd,
// Heroku or supervisord) means that the supervisor should end in order, and the supervisor decides
// how long the workers go on. A worker obeys a signal only once its supervisor has told the worker
// to end, or has died. The exception is SIGINT during Sys.sleep(), in which R has a handler of its
// own: the request is interrupted. SIGUSR2, of which R would end at once, does nothing, and in a worker neither
// does SIGUSR1.
//
// While a child serves (serve() of a path), all of them are passed on to it instead. A signal that is ignored stays
// ignored: by nohup, or in the background of a script.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"
// R_interrupts_pending is declared there, and nowhere else.
#include <R_ext/GraphicsEngine.h>

// After the alarm R has this long to leave a handler that it was interrupted in.
static const unsigned grace_seconds = 1;
// What closing takes, of the seconds given: service() stops this long before the alarm.
static const double closing_seconds = 0.25;

static const int stop_signals[] = {SIGINT, SIGTERM, SIGHUP};
enum { STOP_SIGNALS = sizeof stop_signals / sizeof stop_signals[0] };

enum stage { NOT_WATCHING, WATCHING, ASKED, OVERDUE };

static volatile sig_atomic_t stage;
static volatile sig_atomic_t seen;       // the first signal; 0: none
static volatile sig_atomic_t is_heeded;  // service() has been told
static volatile sig_atomic_t is_reload;  // SIGHUP has asked for certificates to be read anew
static volatile sig_atomic_t listeners;  // how many listeners this process has
static volatile sig_atomic_t limit;      // seconds from the first signal to the alarm
static struct timespec seen_at;          // valid when `seen` is not 0

// What was there before us, valid where `is_ours`.
static struct sigaction before[STOP_SIGNALS];
static bool is_ours[STOP_SIGNALS];
static struct sigaction before_alarm;
static bool is_interrupt_blocked;

// Signals that do nothing while serve() runs, the first of them in any process and the second in a worker; and what was there before us.
static const int idle_signals[] = {SIGUSR2, SIGUSR1};
enum { IDLE_SIGNALS = sizeof idle_signals / sizeof idle_signals[0] };
static struct sigaction before_idle[IDLE_SIGNALS];

// The process id of the supervisor, in a worker; else 0. And whether the next signal is the one by which the I/O thread ends this process.
static volatile sig_atomic_t supervisor;
static atomic_int is_told_to_end;
// While a SIGINT is our own, which interrupts R.
static volatile sig_atomic_t is_interrupting;

// The R session that has started this process to serve a path, which passes signals on; else 0. And the sides that have asked
// this process to stop.
enum { OF_PARENT = 1, OF_OTHERS = 2 };
static volatile sig_atomic_t parent;
static volatile sig_atomic_t sides_heard;

// The child of serve_in_child(): while there is one, signals are its.
static volatile sig_atomic_t child;
static volatile sig_atomic_t passed_on;

static void on_signal(int signal_number, siginfo_t* info, void* context);

// R (in Sys.sleep()) and others put a handler back by signal(): the same function, but not the same flags.
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

// Does what was done before us. R's handler puts itself in place of the one that is installed: that one is put back.
static void do_as_before(int index, siginfo_t* info, void* context) {
    int number = stop_signals[index];
    const struct sigaction* action = &before[index];
    struct sigaction installed;
    sigaction(number, NULL, &installed);
    if (action->sa_flags & SA_SIGINFO) {
        // Installed by signal() we are given no such arguments, whatever lies in their place.
        bool has_info = (installed.sa_flags & SA_SIGINFO) != 0;
        action->sa_sigaction(number, has_info ? info : NULL, has_info ? context : NULL);
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

// Interrupts R as Ctrl-C does; the process ends where that does not help.
static void interrupt_overdue(void) {
    stage = OVERDUE;
    alarm(grace_seconds);
    signals_interrupt();
}

// Returns whether the signal asks to stop for the first time from its side. One that is sent to all processes of a service
// comes twice where an R session has started this one: directly, and passed on by that session.
static bool is_first_of_side(int signal_number, const siginfo_t* info) {
    struct sigaction installed;
    bool has_info = sigaction(signal_number, NULL, &installed) == 0 && (installed.sa_flags & SA_SIGINFO);
    bool is_of_parent = has_info && info->si_code == SI_USER && info->si_pid == (pid_t)parent;
    int side = is_of_parent ? OF_PARENT : OF_OTHERS;
    bool is_first = (sides_heard & side) == 0;
    sides_heard |= side;
    return is_first;
}

static void ask_to_stop(int signal_number, const siginfo_t* info) {
    bool is_first = is_first_of_side(signal_number, info);
    if (stage != WATCHING && parent != 0 && is_first) {
        return;
    }
    if (stage != WATCHING) {
        die_of(signal_number);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &seen_at);
    seen = signal_number;
    if (listeners == 0) {
        // The app is loading still: there is nothing to finish.
        static const char text[] = "Stopping: nothing is being served yet.\n";
        ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
        (void)written;
        interrupt_overdue();
        return;
    }
    stage = ASKED;
    if (limit > 0) {
        alarm((unsigned)limit);
    }
}

// A SIGHUP that somebody has sent. The one that the system sends when the terminal has gone ends what runs in it, as always.
static bool is_sent_hangup(int signal_number, const siginfo_t* info) {
    struct sigaction installed;
    if (signal_number != SIGHUP) {
        return false;
    }
    // Installed by signal() we are given no such arguments.
    bool has_info = sigaction(signal_number, NULL, &installed) == 0 && (installed.sa_flags & SA_SIGINFO);
    return has_info && (info->si_code == SI_USER || info->si_code == SI_QUEUE);
}

// Whether a worker leaves the signal to its supervisor. Also one that has been told to end: a second signal would end it at once.
static bool is_left_to_supervisor(void) {
    if (supervisor == 0 || is_interrupting || getppid() != (pid_t)supervisor) {
        return false;
    }
    return atomic_exchange(&is_told_to_end, 0) == 0;
}

// Where certificates are served: read them anew.
static bool asks_for_reload(int signal_number, const siginfo_t* info) {
    return stage == WATCHING && rk_has_tls() && is_sent_hangup(signal_number, info);
}

static void on_signal(int signal_number, siginfo_t* info, void* context) {
    int saved_errno = errno;
    if (is_left_to_supervisor()) {
        // The supervisor's are the I/O thread's to hear.
    } else if (child > 0) {
        passed_on = signal_number;
        // Ctrl-C as well: R puts a handler of its own in place of the child's while it is in Sys.sleep().
        kill((pid_t)child, SIGTERM);
    } else if (stage == NOT_WATCHING || (stage == OVERDUE && signal_number == SIGINT)) {
        // Somebody put a handler in front of ours and has kept it; or an interrupted handler is passed on to the loop.
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

// How many of the signals that do nothing are ours to ignore.
static int idle_count(void) {
    return supervisor != 0 ? IDLE_SIGNALS : 1;
}

// Time is up and serve() has not returned: R is interrupted as by Ctrl-C; if that does not help the process ends.
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
    // One after the other, so that no stage is passed over.
    sigemptyset(&ours.sa_mask);
    sigaddset(&ours.sa_mask, SIGALRM);
    for (int i = 0; i < STOP_SIGNALS; i++) {
        sigaddset(&ours.sa_mask, stop_signals[i]);
    }
    for (int i = 0; i < STOP_SIGNALS; i++) {
        struct sigaction now;
        sigaction(stop_signals[i], NULL, &now);
        // One that has been put in front of ours since either calls ours, and calling it in turn would never end, or has
        // taken the signal over.
        if (is_ours[i] || is_plain(&now, SIG_IGN)) {
            continue;
        }
        before[i] = now;
        is_ours[i] = sigaction(stop_signals[i], &ours, NULL) == 0;
    }
    // No SA_RESTART: what R waits in has to come back.
    struct sigaction ours_alarm = {.sa_handler = on_alarm, .sa_mask = ours.sa_mask};
    sigaction(SIGALRM, &ours_alarm, &before_alarm);
    // Not ignored, which programs that R starts would inherit.
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
        // Behind one that has been put in front of it, ours stays, and does what was done before.
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

// R is interrupted, as it would be by Ctrl-C were we not there: by its own handler, or a host's.
void signals_interrupt(void) {
    struct sigaction now;
    if (stage == OVERDUE || is_interrupt_blocked) {
        if (is_ours[0] && !is_plain(&before[0], SIG_DFL)) {
            do_as_before(0, NULL, NULL);
        } else if (signal_is_ignored(SIGINT)) {
            // R 4.5 and later leaves an ignored SIGINT alone: this is what its handler would do.
            R_interrupts_pending = 1;
        }
    } else if (sigaction(SIGINT, NULL, &now) == 0 && !is_plain(&now, SIG_DFL) && !is_plain(&now, SIG_IGN)) {
        is_interrupting = 1;
        raise(SIGINT);
        is_interrupting = 0;
    }
}

// Whether a signal waits to be heeded. Cheap: for every turn of a loop.
bool stop_is_requested(void) {
    return seen != 0 && is_heeded == 0;
}

// Whether certificates are to be read anew. As cheap.
bool reload_is_requested(void) {
    return is_reload != 0;
}

void take_reload_request(void) {
    is_reload = 0;
}

// Whether serve() ends already, of a signal. On any thread.
bool signals_have_begun(void) {
    return stage == ASKED || stage == OVERDUE;
}

// The same as stop_is_requested(), and it is heeded with that.
bool take_stop_request(void) {
    bool is_asked = stop_is_requested();
    is_heeded = is_heeded || is_asked;
    return is_asked;
}

// From now on the signals are serve()'s; `seconds` after the first one R is interrupted.
SEXP ffi_signals_watch(SEXP seconds) {
    if (stage != NOT_WATCHING) {
        abort_with("rookery_bad_state", "serve() runs already in this session");
    }
    seen = 0;
    is_heeded = 0;
    sides_heard = 0;
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
        stage = OVERDUE;
        alarm(grace_seconds);
    }
    return R_NilValue;
}

// The child's turn, and 0 when it has ended: see child_process.c. In a serve() that watches already they are watched.
void signals_pass_to(int pid) {
    if (pid > 0) {
        passed_on = 0;
        child = pid;
        if (stage == NOT_WATCHING) {
            watch();
        }
    } else if (child > 0) {
        child = 0;
        if (stage == NOT_WATCHING) {
            unwatch();
        }
    }
}

// Counts a listener that has been started or stopped: without any there is nothing to finish.
void signals_count_listener(int change) {
    listeners = listeners + change > 0 ? listeners + change : 0;
}

// From now on `pid` is the R session that passes its signals on to this process.
void signals_have_parent(int pid) {
    parent = pid;
}

// In a forked child: whoever sends it a signal means it, and no service() runs in it.
void signals_forked(void) {
    if (stage != NOT_WATCHING || child > 0) {
        stage = NOT_WATCHING;
        child = 0;
        seen = 0;
        unwatch();
    }
    supervisor = 0;
    parent = 0;
}

// From now on this process is a worker, and its parent its supervisor.
void signals_are_supervised(void) {
    supervisor = getppid();
}

// On the I/O thread: ends the process as SIGTERM does, at the word of the supervisor, or since it has gone. R's thread takes the signal,
// which is blocked in all of ours. A second one would end serve() at once.
void signals_end(void) {
    if (!signals_have_begun()) {
        is_told_to_end = 1;
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

// R handles SIGINT also where it was started to ignore it. Who knows of that says so here, before serve() watches. The
// signal is blocked, for Sys.sleep() would handle it again.
SEXP ffi_signals_ignore_interrupt(void) {
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    is_interrupt_blocked = pthread_sigmask(SIG_BLOCK, &interrupt, NULL) == 0;
    return R_NilValue;
}
