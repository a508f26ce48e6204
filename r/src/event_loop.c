// service(), R's event loop. It takes events one at a time from the shared queue and runs `later`
// between them; either can end its waiting. See docs/decisions/r/0054-one-queue-beside-later.md.
#ifndef _WIN32
#include <pthread.h>
#endif
#include <time.h>

#include "shim.h"

// The maximum time for which HTTP events are handled before service() returns, so that callbacks of
// `later` run within 2 ms.
static const double batch_seconds = 0.001;
// The interval at which run_now(0) is called while requests arrive. It takes 9 us, so it is not
// called more often.
static const double later_seconds = 0.001;
// The maximum time that an idle service() spends in one run_now(), because `later` checks for
// Ctrl-C only when it returns.
static const double park_seconds = 0.15;

int interrupts;

static int pumping;            // depth of run_now() calls made by service()
// rk_event_count() when the callback last left the events to service()
static uint64_t declined_at;
static double later_at;        // when run_now() was last called
static bool later_has_more;    // the last run_now() has run a callback, so more may be due

static bool has_turned_away;   // service_callback() has left events in the queue

// The running service() returns to an app that then runs code of its own, as Shiny's flush.
static bool is_flush_expected;
static uint64_t flush_span;  // the span of the message before the flush; 0: none

static bool run_batch(double start);

// Ends what belongs to the code that the app has run since the last service(). Called when
// service() is called again, and when the app has ended.
static void flush_end(void) {
    activity_end_between();
    worker_forget_interrupt();
    if (flush_span != 0) {
        rk_span_end(flush_span);
        flush_span = 0;
    }
}

// Logs, once, that the maximum depth of nested handlers is reached.
static void report_depth(void) {
    static bool is_reported;
    if (!is_reported) {
        is_reported = true;
        log_error(
            "service()", R_NilValue,
            "too many handlers are nested, each within a service() or later::run_now() of "
            "another: further requests "
            "and messages wait until one of them returns. A handler that has to wait should "
            "return a promise instead.");
    }
}

// Runs as a callback of `later` when Rust has requested it. Within a service() call, the events are
// left to service(), so that no frame lies between service() and the app. But if service() has not
// run since the last callback, the app runs an event loop of its own, and the events are handled
// here.
static void service_callback(int loop) {
    (void)loop;
    if (event_is_being_read() || guard_is_too_deep()) {
        // The I/O thread requests the callback again while events wait.
        has_turned_away = true;
        if (guard_is_too_deep()) {
            report_depth();
        }
        return;
    }
    if (pumping > 0 && declined_at != rk_event_count() + 1) {
        declined_at = rk_event_count() + 1;
        return;
    }
    int outer = pumping;
    pumping = 0;
    guard_watch_interrupts();
    run_batch(monotonic_seconds());
    pumping = outer;
    if (pumping == 0 && rk_has_failed()) {
        // No call of service() can raise the error.
        SEXP call = PROTECT(Rf_lang1(Rf_install("log_io_failure")));
        R_tryEvalSilent(call, objs.ns, NULL);
        UNPROTECT(1);
    }
    if (!rk_is_empty()) {
        later_schedule();
    }
}

// Runs as a callback of `later` when the server has sent lent memory.
static void release_callback(int loop) {
    (void)loop;
    release_returned();
}

#ifndef _WIN32
// Called in a forked child, in which requests of the parent's I/O thread have no meaning.
static void forked(void) {
    later_forked();
    forks++;
    signals_forked();
    guard_forked();
    stack_sampling_forked();
    client_forked();
    rk_forked();
}
#endif

void event_loop_init(void) {
    later_init(LATER_SERVE, service_callback);
    later_init(LATER_RELEASE, release_callback);
    rk_init(later_schedule, later_release);
#ifndef _WIN32
    static bool is_told_of_forks;
    if (!is_told_of_forks) {
        is_told_of_forks = pthread_atfork(NULL, NULL, forked) == 0;
    }
#endif
    client_init();
}

static void dispatch_event(const struct rk_event* event) {
    // A copy, because a handler may call service(), which overwrites the event.
    struct rk_event copy = *event;
    unsigned outer = activity_begin();
    switch (event->kind) {
    case RK_REQUEST:
    case RK_HANDSHAKE:
    case RK_HEAD:
        on_request(&copy);
        break;
    case RK_WS_MESSAGE:
        on_message(&copy);
        break;
    case RK_WS_CLOSED:
        on_close(&copy);
        break;
    case RK_WS_DRAINED:
        on_drain(&copy);
        break;
    case RK_STREAM_PULL:
    case RK_STREAM_DRAINED:
    case RK_STREAM_ENDED:
        on_stream_event(&copy);
        break;
    case RK_BODY_CHUNK:
    case RK_BODY_END:
        on_body_event(&copy);
        break;
    default:
        break;
    }
    activity_end(outer);
    if (copy.span != 0 && copy.kind == RK_WS_MESSAGE && is_flush_expected) {
        flush_span = copy.span;
    } else if (copy.span != 0) {
        rk_span_end(copy.span);
    }
}

// Handles one event, or HTTP events for up to `batch_seconds`. Returns false if no event
// was queued.
static bool run_batch(double start) {
    struct rk_event event;
    if (guard_is_too_deep() || !rk_next(&event)) {
        return false;
    }
    event_begin();
    // This batch may run within a handler, which goes on with its own event.
    double outer_start = event_start();
    event_set_start(start);
    int seen_interrupts = interrupts;
    guard_forget_interrupt();
    guard_begin();
    bool has_pulled = false;
    do {
        event_begin();
        has_pulled |= event.kind == RK_STREAM_PULL;
        dispatch_event(&event);
        event_release();
        // Each WebSocket message ends the batch, because Shiny flushes its reactives between calls
        // of service().
        bool is_http = event.kind == RK_REQUEST || event.kind == RK_HEAD ||
            event.kind >= RK_STREAM_PULL;
        // While `later` has callbacks (of an app that returns promises), requests and callbacks
        // alternate.
        if (!is_http || later_has_more || interrupts != seen_interrupts || guard_is_interrupted()) {
            break;
        }
        double now = monotonic_seconds();
        event_set_start(now);
        if (now - start >= batch_seconds) {
            break;
        }
    } while (rk_next(&event));
    guard_end();
    event_set_start(outer_start);
    if (has_pulled) {
        rk_streams_yield();
    }
    release_returned();
    // Waking the I/O thread costs more than sending a message. If more events wait, they are
    // handled first. If R does something else instead, the I/O thread checks its queue after a
    // millisecond by itself.
    if (rk_is_empty() || monotonic_seconds() - start >= later_seconds) {
        rk_flush();
    }
    return true;
}

struct callback {
    double seconds;
    SEXP loop;
    bool has_run;
};

static SEXP run_callback(void* data) {
    struct callback* callback = data;
    callback->has_run = later_run(callback->seconds, callback->loop);
    return R_NilValue;
}

// Runs `later` in serve(), which an error in a callback does not end. The error is reported.
static bool run_later_guarded(double seconds, SEXP loop) {
    struct callback callback = {.seconds = seconds, .loop = loop};
    struct guard guard = {.body = run_callback, .data = &callback};
    guard_begin();
    enum failure failure = guard_run(&guard);
    // The guard forgets at its end that an interrupt was the supervisor's.
    guard_propagate_interrupt(failure);
    guard_end();
    if (failure == FAILURE_NONE) {
        return callback.has_run;
    }
    SEXP caught = PROTECT(guard_caught(&guard));
    if (failure != FAILURE_INTERRUPT) {
        struct error_report report = {.stage = "callback",
            .label = "a callback of package later", .request_id = objs.empty_string};
        error_report_emit(&report, caught, caught_text(caught));
    }
    UNPROTECT(1);
    return true;
}

// Runs `later` for up to `seconds`, waiting in `loop`. Returns whether a callback ran. May raise
// the callback's error, except in serve().
static bool run_later(double seconds, SEXP loop) {
    later_has_more = false;
    if (later_is_loaded()) {
        unsigned outer = activity_begin();
        int outer_pumping = pumping++;
        // A callback that is nested too deep for another guard belongs to the guard around it.
        bool is_guarded = signals_are_watched() && !guard_is_too_deep();
        later_has_more =
            is_guarded ? run_later_guarded(seconds, loop) : later_run(seconds, loop);
        pumping = outer_pumping;
        activity_end(outer);
    }
    later_at = monotonic_seconds();
    return later_has_more;
}

// Calls handle_signals() in R/serve-stop.R for a signal that serve() handles, if the app has
// stopped all servers, and for an access log that is an R function. Not called within a handler,
// where ending would look like a failure of the handler. May jump.
static void handle_signals(void) {
    worker_collect();
    bool is_asked = stop_is_requested() || has_stopped_all_servers();
    bool is_reload = reload_is_requested();
    if ((is_asked || is_reload || log_is_read()) && !guard_is_active()) {
        if (is_asked) {
            take_stop_request();
        }
        if (is_reload) {
            take_reload_request();
        }
        SEXP stop = PROTECT(Rf_ScalarLogical(is_asked));
        SEXP reload = PROTECT(Rf_ScalarLogical(is_reload));
        SEXP call = PROTECT(Rf_lang3(objs.handle_signals, stop, reload));
        Rf_eval(call, R_BaseEnv);
        UNPROTECT(3);
    }
}

// Waits in a service() that is nested too deep for further handlers: new events are handled when
// one of the handlers has returned. Runs the callbacks of package later meanwhile. May jump.
static void pass_without_events(double deadline) {
    int seen_interrupts = interrupts;
    for (double rest = deadline - monotonic_seconds();; rest = deadline - monotonic_seconds()) {
        bool has_run = false;
        double seconds = rest < 0 ? 0 : rest < park_seconds ? rest : park_seconds;
        if (later_is_loaded()) {
            SEXP loop;
            int outer = later_begin_wait(&loop);
            PROTECT(loop);
            has_turned_away = false;
            // Our own callback that requests event handling is not an event that the caller waits
            // for.
            has_run = run_later(seconds, loop) && !has_turned_away;
            later_set_wait_loop(outer);
            UNPROTECT(1);
        } else {
            struct timespec pause = {0, (long)(seconds * 1e9)};
            nanosleep(&pause, NULL);
        }
        R_CheckUserInterrupt();
        if (has_run || interrupts != seen_interrupts || monotonic_seconds() >= deadline) {
            return;
        }
    }
}

// Waits until an event was handled or a callback has run, or for `seconds`.
static void pass(double seconds) {
    double start = monotonic_seconds();
    double deadline = start + seconds;
    int seen_interrupts = interrupts;
    if (guard_is_too_deep()) {
        report_depth();
        pass_without_events(deadline);
        return;
    }
    for (;;) {
        handle_signals();
        if (run_batch(monotonic_seconds())) {
            // Callbacks run even if the event queue is never empty.
            if (later_has_more || monotonic_seconds() - later_at >= later_seconds) {
                run_later(0, R_NilValue);
            }
            return;
        }
        double time = monotonic_seconds();
        bool is_due = later_has_more || later_is_expected() || time - later_at >= later_seconds;
        if (is_due || seconds == 0) {
            bool has_run = run_later(0, R_NilValue);
            if (run_batch(monotonic_seconds()) || has_run || interrupts != seen_interrupts) {
                return;
            }
            time = monotonic_seconds();
        }
        // Checked only when there is nothing to do; without the I/O thread, no event can arrive.
        if (time >= deadline || rk_has_failed()) {
            return;
        }
        double rest = deadline - time;
        if (rk_wait(rest < later_seconds ? rest : later_seconds)) {
            continue;
        }
        if (rk_has_failed()) {
            return;
        }
        rest = deadline - monotonic_seconds();
        if (rest > 0 && !later_is_loaded()) {
            // Package later is not loaded, so no callbacks can be due.
            rk_wait(rest < park_seconds ? rest : park_seconds);
            release_returned();
            R_CheckUserInterrupt();
        } else if (rest > 0) {
            SEXP loop;
            int outer = later_begin_wait(&loop);
            if (!rk_park()) {
                later_set_wait_loop(outer);
                continue;
            }
            PROTECT(loop);
            bool has_run = run_later(rest < park_seconds ? rest : park_seconds, loop);
            UNPROTECT(1);
            rk_resume();
            later_set_wait_loop(outer);
            R_CheckUserInterrupt();
            if (run_batch(monotonic_seconds()) || has_run || interrupts != seen_interrupts) {
                return;
            }
        }
    }
}

struct service {
    double seconds;
    bool is_forever;
    int pumping;
    int waiting;  // the value of later_wait_loop() before
    unsigned activity;
    bool was_flush_expected;
};

static SEXP run_service(void* data) {
    struct service* service = data;
    if (!service->is_forever) {
        pass(service->seconds);
        guard_check_interrupt();
        handle_signals();
        return R_NilValue;
    }
    while (Rf_asLogical(variable(objs.globals, syms.paused)) != TRUE) {
        pass(R_PosInf);
        R_CheckUserInterrupt();
        if (rk_has_failed()) {
            break;
        }
    }
    return R_NilValue;
}

// Restores the state after a value and after a jump.
static void end_service(void* data, Rboolean is_jump) {
    struct service* service = data;
    pumping = service->pumping;
    is_flush_expected = service->was_flush_expected;
    activity_end(service->activity);
    later_set_wait_loop(service->waiting);
    if (service->activity == 0 && !is_jump && signals_are_watched()) {
        activity_begin_between();
        rk_between();
    } else {
        rk_resume();
    }
    rk_flush();
}

SEXP ffi_flush_end(void) {
    flush_end();
    return R_NilValue;
}

// NA handles what has arrived without waiting. 0 and Inf serve until interrupt(). Negative values
// wait until an event was handled.
SEXP ffi_service(SEXP timeout_ms) {
    bool is_number = TYPEOF(timeout_ms) == REALSXP || TYPEOF(timeout_ms) == INTSXP;
    bool is_na = TYPEOF(timeout_ms) == LGLSXP && Rf_asLogical(timeout_ms) == NA_LOGICAL;
    if (Rf_xlength(timeout_ms) != 1 || !(is_number || is_na)) {
        abort_with("rookery_bad_argument", "`timeoutMs` must be one number of milliseconds, or NA");
    }
    if (event_is_being_read()) {
        abort_with(
            "rookery_service_failed",
            "service() cannot run in a finalizer while a request or a message is being read: "
            "call it from a callback of package later (`later::later(function() service(NA))`)");
    }
    flush_end();
    double ms = Rf_asReal(timeout_ms);
    struct service service = {
        0, false, pumping, later_wait_loop(), activity_current(), is_flush_expected};
    if (ISNAN(ms)) {
        service.seconds = 0;
    } else if (ms == 0 || ms == R_PosInf) {
        service.is_forever = true;
        Rf_defineVar(syms.paused, Rf_ScalarLogical(FALSE), objs.globals);
    } else {
        service.seconds = ms < 0 ? R_PosInf : ms / 1000;
    }
    pumping = 0;
    is_flush_expected =
        service.activity == 0 && !service.is_forever && signals_are_watched();
    guard_watch_interrupts();
    SEXP token = PROTECT(R_MakeUnwindCont());
    R_UnwindProtect(run_service, &service, end_service, &service, token);
    UNPROTECT(1);
    // FALSE: the I/O thread has ended, and ffi_take_failure() returns the reason.
    return Rf_ScalarLogical(!rk_has_failed());
}

// Returns why the I/O thread has ended; NULL if it runs, or if the reason was returned before.
SEXP ffi_take_failure(void) {
    return rk_take_failure() ? last_error() : R_NilValue;
}

// Makes the I/O thread fail, for tests.
SEXP ffi_fail_for_test(void) {
    rk_fail_for_test();
    return R_NilValue;
}

SEXP ffi_interrupt(void) {
    interrupts++;
    return R_NilValue;
}

static bool was_interrupted;

// Returns whether R's own handler has received an interrupt since ffi_close() began. serve()'s
// handlers are no longer installed then, so SIGTERM ends the process.
static int is_interrupted_again(void) {
    return !was_interrupted && interrupt_is_pending();
}

// Called before R exits, or before the package is unloaded: `later` must not be called any more.
SEXP ffi_close(void) {
    later_close();
    stack_sampling_watch(NULL);
    stack_sampling_close();
    rk_admin_stop();
    was_interrupted = interrupt_is_pending();
    rk_stop_all(is_interrupted_again);
    rk_client_stop();
    rk_output_flush();
    return R_NilValue;
}

// Runs the closing callbacks of connections that ffi_close() has ended, and closes the pipe by
// which the ended threads woke R. Called before the package is unloaded.
SEXP ffi_last_events(void) {
    while (run_batch(monotonic_seconds())) {
    }
    client_last_events();
    later_disable_wakeup();
    return R_NilValue;
}
