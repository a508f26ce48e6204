// Profiles of R that are requested from outside, by `rookery profile` or the live page. R's own
// profiler takes the samples. While it does, each handler is called by the name of its route, so
// that the route is a frame of the samples.
#include <stdlib.h>
#include <sys/time.h>

#include "shim.h"

static uint32_t number;      // of the running profile; 0: none
static double interval;      // seconds between samples
static bool uses_timer;      // R's profiler uses the timer of the process
static SEXP names;           // the environment in which the names of routes are bound

// Returns the interval of the timer that profilers use, in seconds; 0 if it is off.
static double timer_interval(void) {
    struct itimerval timer;
    return getitimer(ITIMER_PROF, &timer) == 0
        ? (double)timer.it_interval.tv_sec + (double)timer.it_interval.tv_usec * 1e-6 : 0;
}

struct start {
    const char* path;
    int progress;
};

static SEXP run_start(void* data) {
    struct start* start = data;
    SEXP path = PROTECT(Rf_mkString(start->path));
    SEXP seconds = PROTECT(Rf_ScalarReal(interval));
    SEXP call = PROTECT(Rf_lang3(Rf_install("start_profile"), path, seconds));
    names = R_NewEnv(R_GlobalEnv, TRUE, 29);
    R_PreserveObject(names);
    start->progress = Rf_asInteger(Rf_eval(call, objs.ns));
    UNPROTECT(3);
    return R_NilValue;
}

static SEXP run_stop(void* data) {
    (void)data;
    SEXP call = PROTECT(Rf_lang1(Rf_install("stop_profile")));
    Rf_eval(call, objs.ns);
    UNPROTECT(1);
    return R_NilValue;
}

static void forget_names(void) {
    if (names != NULL) {
        R_ReleaseObject(names);
        names = NULL;
    }
}

static void stop(void) {
    int progress = RK_PROFILE_COMPLETE;
    double current = timer_interval();
    if (uses_timer && (current < interval * 0.9 || current > interval * 1.1)) {
        // The app has called Rprof(): what is running, if anything, is its own profile.
        progress = RK_PROFILE_REPLACED;
    } else if (!run_quietly(run_stop, NULL)) {
        progress = RK_PROFILE_FAILED;
    }
    forget_names();
    rk_profile_set_progress(number, progress);
    number = 0;
}

// Ends the running profile, and begins the requested one, if any. Called where R code may run. Does
// not jump.
void profile_handle(uint64_t request) {
    struct rk_profile_request wanted;
    char path[RK_PROFILE_PATH_MAX];
    if (number != 0) {
        stop();
    }
    if (!rk_profile_request(request, &wanted, path, sizeof path)) {
        return;
    }
    struct start start = {.path = path, .progress = RK_PROFILE_FAILED};
    interval = wanted.interval_ms * 1e-3;
    if (timer_interval() > 0) {
        start.progress = RK_PROFILE_OTHER;
    } else {
        run_quietly(run_start, &start);
    }
    if (start.progress == RK_PROFILE_RUNNING) {
        number = wanted.number;
        uses_timer = timer_interval() > 0;
    } else {
        forget_names();
    }
    rk_profile_set_progress(wanted.number, start.progress);
}

bool profile_is_running(void) {
    return number != 0;
}

// Makes a call of a function refer to the function by a name, and returns the environment in which
// to evaluate the call. The caller protects the environment, because the profile may end while the
// call is evaluated.
SEXP profile_name_call(SEXP call, const char* name) {
    SEXP symbol = Rf_install(name);
    Rf_defineVar(symbol, CAR(call), names);
    SETCAR(call, symbol);
    return names;
}

// Does the same for the call of the handler of a request, with the name of its route.
SEXP profile_name_request(SEXP call, uint32_t slot, uint64_t id) {
    char name[RK_PROFILE_ROUTE_MAX];
    rk_profile_route(slot, id, name, sizeof name);
    return profile_name_call(call, name);
}

// Called in a forked child, in which R's profiler is off.
void profile_forked(void) {
    number = 0;
}
