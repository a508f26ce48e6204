// Profiles of R that are requested from outside, by `rookery profile` or the live page. R's own
// profiler takes the samples. While it does, each handler is called by a function that has the
// name of its route, so that the route is a frame of the samples.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
// The name of timer_create(2), which glibc does not define.
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif
#endif

#include "shim.h"

static uint32_t number;      // of the running profile; 0: none
static long interval;        // microseconds between samples
static bool uses_timer;      // R's profiler uses the timer of the process
static bool has_own_timer;   // it uses a timer of this thread, which has replaced that one

// Returns the interval of the timer that profilers use, in microseconds; 0 if it is off.
static long timer_interval(void) {
    struct itimerval timer;
    return getitimer(ITIMER_PROF, &timer) == 0
        ? (long)timer.it_interval.tv_sec * 1000000 + (long)timer.it_interval.tv_usec : 0;
}

#ifdef __linux__
static timer_t own_timer;
static void (*profiler)(int);  // the signal handler of R's running profiler

// Returns the current handler of the signal by which R's profiler takes samples.
static void (*current_handler(void))(int) {
    struct sigaction action;
    return sigaction(SIGPROF, NULL, &action) == 0 ? action.sa_handler : SIG_ERR;
}

// Replaces the timer of R's profiler, which counts the processor time of all threads of the
// process, by one that counts that of this thread and sends the same signal. R's profiler stays as
// it is if there is no such timer.
static void begin_own_timer(void) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGPROF};
    event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
    if (timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &own_timer) != 0) {
        return;
    }
    struct itimerspec times = {.it_interval = {interval / 1000000, interval % 1000000 * 1000}};
    times.it_value = times.it_interval;
    struct itimerval off = {0};
    if (timer_settime(own_timer, 0, &times, NULL) == 0) {
        setitimer(ITIMER_PROF, &off, NULL);
        profiler = current_handler();
        has_own_timer = true;
    } else {
        timer_delete(own_timer);
    }
}

static void end_own_timer(void) {
    if (has_own_timer) {
        timer_delete(own_timer);
        has_own_timer = false;
    }
}

// Returns whether the app has begun a profile, which sets the timer of the process, or has ended
// ours by Rprof(NULL), which replaces the signal handler.
static bool is_own_timer_replaced(void) {
    return timer_interval() != 0 || current_handler() != profiler;
}
#else
static void begin_own_timer(void) {
}

static void end_own_timer(void) {
}

static bool is_own_timer_replaced(void) {
    return false;
}
#endif

// Returns whether the app has called Rprof() while a profile runs. R's profiler is then off, or is
// that of the app.
static bool is_replaced(void) {
    if (has_own_timer) {
        return is_own_timer_replaced();
    }
    // See ProfileRequest::interval_us().
    return uses_timer && timer_interval() != interval;
}

struct start {
    const char* path;
    int progress;
};

static SEXP run_start(void* data) {
    struct start* start = data;
    SEXP path = PROTECT(Rf_mkString(start->path));
    SEXP seconds = PROTECT(Rf_ScalarReal((double)interval * 1e-6));
    SEXP call = PROTECT(Rf_lang3(Rf_install("start_profile"), path, seconds));
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

// A pair of the call of a function with the name of the last route and of the environment of the
// function, and the list from which the function
// takes the call that it evaluates. NULL: none. Most requests have the route of the one before.
static SEXP route_call;
static SEXP route_list;
static char route_name[RK_PROFILE_ROUTE_MAX];
// Whether the list has a call that its function has not taken yet. Until then, a finalizer may run
// another handler, which is called without the name of its route.
static bool is_entering;

static void forget_route(void) {
    if (route_call != NULL) {
        R_ReleaseObject(route_call);
        R_ReleaseObject(route_list);
        route_call = NULL;
    }
}

static void stop(void) {
    int progress = RK_PROFILE_COMPLETE;
    bool was_replaced = is_replaced();
    end_own_timer();
    if (was_replaced) {
        // If a profile is running, it is the app's own.
        progress = RK_PROFILE_REPLACED;
    } else if (!run_quietly(run_stop, NULL)) {
        progress = RK_PROFILE_FAILED;
    }
    rk_profile_set_progress(number, progress);
    number = 0;
    forget_route();
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
    interval = (long)wanted.interval_us;
    if (timer_interval() > 0) {
        start.progress = RK_PROFILE_OTHER;
    } else {
        run_quietly(run_start, &start);
    }
    if (start.progress == RK_PROFILE_RUNNING) {
        number = wanted.number;
        is_entering = false;
        uses_timer = timer_interval() == interval;
        if (uses_timer) {
            begin_own_timer();
        }
    }
    rk_profile_set_progress(wanted.number, start.progress);
}

// Ends the running profile if the app has begun one of its own, whose samples our timer would also
// take. Called where R code may run, while a profile is running. Does not jump.
void profile_check(void) {
    if (number != 0 && has_own_timer && is_replaced()) {
        stop();
    }
}

// Evaluates the call in the list of a route's function, in the global environment as without a
// profile: for the handler, parent.frame() is the global environment. Takes the call out of the
// list, because it refers to the request, and because the handler may run another handler. Errors
// jump over this frame only.
static SEXP call_in_global(SEXP list) {
    SEXP call = PROTECT(VECTOR_ELT(list, 0));
    SET_VECTOR_ELT(list, 0, R_NilValue);
    is_entering = false;
    SEXP value = Rf_eval(call, R_GlobalEnv);
    UNPROTECT(1);
    return value;
}

static void make_route(const char* name) {
    forget_route();
    // .Call() receives a list, because it would evaluate an argument that is a call. The list is a
    // variable, because R forbids changes of the constants in compiled code.
    SEXP list = PROTECT(Rf_allocVector(VECSXP, 1));
    SEXP list_name = Rf_install("call");
    SEXP address = PROTECT(
        R_MakeExternalPtrFn((DL_FUNC)call_in_global, Rf_install("native symbol"), R_NilValue));
    SEXP body = PROTECT(Rf_lang3(Rf_install(".Call"), address, list_name));
    SEXP definition = PROTECT(Rf_lang3(Rf_install("function"), R_NilValue, body));
    SEXP env = PROTECT(R_NewEnv(R_BaseEnv, FALSE, 0));
    SEXP function = PROTECT(Rf_eval(definition, env));
    // The function is in an environment of its own, in which no route can hide the list.
    SEXP names = PROTECT(R_NewEnv(env, FALSE, 0));
    SEXP symbol = Rf_install(name);
    Rf_defineVar(list_name, list, env);
    Rf_defineVar(symbol, function, names);
    SEXP named_call = PROTECT(Rf_lang1(symbol));
    SEXP pair = PROTECT(Rf_cons(named_call, names));
    R_PreserveObject(list);
    R_PreserveObject(pair);
    route_list = list;
    route_call = pair;
    snprintf(route_name, sizeof route_name, "%s", name);
    UNPROTECT(9);
}

// Evaluates a call of a handler. While a profile runs, a function with the name of the route makes
// the call, so that the route is a frame of the samples.
SEXP profile_call(SEXP call, const char* name) {
    if (number == 0 || is_entering) {
        return Rf_eval(call, R_GlobalEnv);
    }
    is_entering = true;
    if (route_call == NULL || strcmp(name, route_name) != 0) {
        make_route(name);
    }
    SET_VECTOR_ELT(route_list, 0, call);
    // The handler may run another one, which replaces the route.
    SEXP named_call = PROTECT(CAR(route_call)), env = PROTECT(CDR(route_call));
    SEXP value = Rf_eval(named_call, env);
    UNPROTECT(2);
    return value;
}

// Evaluates a call of the handler of a request, as profile_call().
SEXP profile_call_request(SEXP call, uint32_t slot, uint64_t id) {
    char name[RK_PROFILE_ROUTE_MAX] = "";
    if (number != 0) {
        rk_profile_route(slot, id, name, sizeof name);
    }
    return profile_call(call, name);
}

// Forgets the running profile in a forked child, in which R's profiler is off and which has no
// timers.
void profile_forked(void) {
    number = 0;
    has_own_timer = false;
}
