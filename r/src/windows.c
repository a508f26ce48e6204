// The functions of signals.c, program.c, stack_sampling.c and profile.c for Windows, where this
// file is compiled instead of them. Windows has no signals: R turns Ctrl-C and Ctrl-Break into an
// interrupt, which R/serve-stop.R handles. R on Windows has no hook for interrupt checks, so its
// stack is not sampled.
#include <time.h>

#include "shim.h"
// R_interrupts_pending is declared only there.
#include <R_ext/GraphicsEngine.h>

// The time reserved for closing, as in signals.c.
static const double closing_seconds = 0.25;

static bool is_watching;
static double limit;      // seconds from the request to stop to the end
static double ending_at;  // monotonic_seconds() of the request to stop; 0: none
static int listeners;
static bool has_stopped_all;  // as in signals.c

bool stop_is_requested(void) {
    return false;
}

bool signals_are_watched(void) {
    return is_watching;
}

bool reload_is_requested(void) {
    return false;
}

void take_reload_request(void) {
}

void take_stop_request(void) {
    has_stopped_all = false;
}

bool has_stopped_all_servers(void) {
    return is_watching && has_stopped_all;
}

void signals_forked(void) {
}

bool interrupt_is_pending(void) {
    return R_interrupts_pending != 0;
}

void signals_count_listener(int change) {
    listeners = listeners + change > 0 ? listeners + change : 0;
    has_stopped_all = change < 0 && listeners == 0;
}

// Interrupts R like Ctrl-C, at its next check.
void signals_interrupt(void) {
    R_interrupts_pending = 1;
}

SEXP ffi_signals_watch(SEXP seconds) {
    if (is_watching) {
        abort_with("rookery_bad_state", "serve() is already running in this session");
    }
    is_watching = true;
    has_stopped_all = false;
    limit = Rf_asReal(seconds);
    ending_at = 0;
    return R_NilValue;
}

SEXP ffi_signals_unwatch(void) {
    is_watching = false;
    return R_NilValue;
}

SEXP ffi_signals_seen(void) {
    return Rf_ScalarInteger(0);
}

// Returns the seconds that remain to finish requests in progress. The time begins with the first
// call, which follows the interrupt.
SEXP ffi_signals_left(void) {
    if (ending_at == 0) {
        ending_at = monotonic_seconds();
    }
    double left = limit - closing_seconds - (monotonic_seconds() - ending_at);
    return Rf_ScalarReal(left > 0 ? left : 0);
}

SEXP ffi_signals_closing(void) {
    return R_NilValue;
}

// program.c ------------------------------------------------------------------

// R/serve-path.R starts the program by system2() instead.
SEXP ffi_program_start(SEXP program, SEXP arguments, SEXP input) {
    (void)program;
    (void)arguments;
    (void)input;
    abort_with("rookery_unsupported", "Windows has no program that serve() controls");
    return R_NilValue;
}

SEXP ffi_program_read(SEXP reports) {
    return ffi_program_start(reports, reports, reports);
}

SEXP ffi_program_wait(SEXP pid, SEXP seconds) {
    return ffi_program_start(pid, seconds, seconds);
}

SEXP ffi_program_signal(SEXP pid, SEXP signal_number) {
    return ffi_program_start(pid, signal_number, signal_number);
}

SEXP ffi_program_forget(SEXP reports) {
    return ffi_program_start(reports, reports, reports);
}

// stack_sampling.c and profile.c ---------------------------------------------

static const uint64_t* requested;
static uint64_t handled;

void stack_sampling_init(void) {
}

void stack_sampling_close(void) {
}

void stack_sampling_watch(const uint64_t* word) {
    requested = word;
}

void stack_sampling_forked(void) {
}

// Reports that R cannot be profiled if a profile has been requested. R's thread calls this function
// with each event.
unsigned activity_begin(void) {
    uint64_t word = requested == NULL ? 0 : __atomic_load_n(requested, __ATOMIC_RELAXED);
    if (word != handled) {
        handled = word;
        profile_handle(word);
    }
    return 0;
}

void activity_end(unsigned outer) {
    (void)outer;
}

unsigned activity_current(void) {
    return 0;
}

void activity_begin_between(void) {
}

bool activity_is_between(void) {
    return false;
}

void activity_end_between(void) {
}

void profile_handle(uint64_t request) {
    struct rk_profile_request wanted;
    char path[RK_PROFILE_PATH_MAX];
    if (rk_profile_request(request, &wanted, path, sizeof path)) {
        rk_profile_set_progress(wanted.number, RK_PROFILE_UNSUPPORTED);
    }
}

SEXP profile_call(SEXP call, const char* name) {
    (void)name;
    return Rf_eval(call, R_GlobalEnv);
}

SEXP profile_call_request(SEXP call, uint32_t slot, uint64_t id) {
    (void)slot;
    (void)id;
    return profile_call(call, "");
}

void profile_forked(void) {
}
