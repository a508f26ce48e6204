// The functions on R's stack, which the live page, `rookery status` and the slow log show while a
// request takes long, and the place at which R's thread begins and ends profiles.
//
// R calls R_PolledEvents wherever it checks for interrupts: at points at which R code may run
// (package tcltk runs its event handlers there). The hook reads the stack of its own thread, so no
// other thread reads R's memory. C code that does not check for interrupts cannot be sampled.
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "shim.h"
#include <R_ext/eventloop.h>

// The time after which an activity is sampled for the first time, and the time between samples.
static const int64_t first_ns = 250 * 1000 * 1000;
static const int64_t interval_ns = 500 * 1000 * 1000;
// The number of calls that a sample names.
enum { MOST_CALLS = 8 };
// The number of calls, from the innermost, among which the label of one of Shiny's functions is
// looked for.
enum { MOST_LOOKED_AT = 300 };
// The interval at which R checks for interrupts while it sleeps or waits for a socket, in
// microseconds.
enum { WAIT_USEC = 250 * 1000 };

// The number of the current activity (an event, or a call of run_now()); 0: none.
static unsigned activity;
static unsigned activities;
static unsigned between;  // the activity between two calls of service(); 0: none
static unsigned timed;  // the activity that `due` belongs to
static int64_t due;     // when the stack is sampled next
static bool is_waiting_changed;
static bool is_looking;

static void (*previous)(void);
static bool is_hooked;  // R calls on_interrupt_check(), or another package's hook does
static SEXP nframe_call;  // sys.nframe()
static SEXP frame_call;   // sys.call(<number>)

// The word by which profiles are requested, see profile.c.
static const _Atomic uint64_t no_profile;
static const _Atomic uint64_t* requested = &no_profile;
static uint64_t handled;

// Returns the time of a clock that has the resolution of the kernel's ticks and takes 5 ns to read.
static int64_t coarse_ns(void) {
    struct timespec time;
#ifdef CLOCK_MONOTONIC_COARSE
    clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
#else
    clock_gettime(CLOCK_MONOTONIC, &time);
#endif
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

struct sample {
    char text[RK_STACK_MAX];
    size_t len;
    char place[64];  // file#line, or empty
    char session[20];  // the session of Shiny for which R computes, or empty
};

static void append(struct sample* sample, const char* text) {
    size_t len = strlen(text);
    // A name that does not fit is left out as a whole, and so are all that follow.
    if (sample->len + len < sizeof sample->text) {
        for (size_t i = 0; i < len; i++) {
            // A label of Shiny may consist of several lines.
            unsigned char byte = (unsigned char)text[i];
            sample->text[sample->len++] = byte < ' ' ? ' ' : (char)byte;
        }
    } else {
        sample->len = sizeof sample->text;
    }
}

// Appends the name of the function that a call names, as Rprof() writes it, or `nameless`. Never
// appends arguments.
static void append_name(struct sample* sample, SEXP function, const char* nameless) {
    if (TYPEOF(function) == SYMSXP) {
        append(sample, CHAR(PRINTNAME(function)));
        return;
    }
    if (TYPEOF(function) == LANGSXP && Rf_length(function) == 3 &&
            TYPEOF(CAR(function)) == SYMSXP && TYPEOF(CADR(function)) == SYMSXP &&
            TYPEOF(CADDR(function)) == SYMSXP) {
        const char* operator = CHAR(PRINTNAME(CAR(function)));
        if (strcmp(operator, "::") == 0 || strcmp(operator, ":::") == 0 ||
                strcmp(operator, "$") == 0) {
            append(sample, CHAR(PRINTNAME(CADR(function))));
            append(sample, operator);
            append(sample, CHAR(PRINTNAME(CADDR(function))));
            return;
        }
    }
    append(sample, nameless);
}

// Notes the place of a call, unless that of an inner call is known.
static void note_place(struct sample* sample, SEXP call) {
    SEXP srcref = Rf_getAttrib(call, Rf_install("srcref"));
    if (sample->place[0] != '\0' || TYPEOF(srcref) != INTSXP || XLENGTH(srcref) < 4) {
        return;
    }
    SEXP srcfile = Rf_getAttrib(srcref, Rf_install("srcfile"));
    SEXP name = TYPEOF(srcfile) == ENVSXP ? variable(srcfile, Rf_install("filename")) : NULL;
    if (name == NULL || TYPEOF(name) != STRSXP || XLENGTH(name) != 1) {
        return;
    }
    const char* path = CHAR(STRING_ELT(name, 0));
    const char* slash = strrchr(path, '/');
    const char* file = slash == NULL ? path : slash + 1;
    // Code that was not read from a file has no name, or one such as <text>.
    if (file[0] != '\0' && file[0] != '<') {
        snprintf(sample->place, sizeof sample->place, ", %.48s#%d", file, INTEGER(srcref)[0]);
    }
}

// Notes the beginning of the token of Shiny's session. The whole token would give access to it.
static void note_session(struct sample* sample) {
    SEXP call = PROTECT(Rf_lang1(objs.session_token));
    SEXP token = Rf_eval(call, R_BaseEnv);
    if (TYPEOF(token) == STRSXP && XLENGTH(token) == 1 && XLENGTH(STRING_ELT(token, 0)) > 0) {
        snprintf(sample->session, sizeof sample->session, ", session %.8s",
            CHAR(STRING_ELT(token, 0)));
    }
    UNPROTECT(1);
}

// Returns the kind of function that an event loop calls if the call is that of an event loop, and
// NULL otherwise. The calls outside of an event loop do not belong to the running handler.
static const char* callee_of_loop(SEXP call) {
    const char* name =
        TYPEOF(call) == LANGSXP && TYPEOF(CAR(call)) == SYMSXP ? CHAR(PRINTNAME(CAR(call))) : "";
    if (strcmp(name, "service") == 0) {
        return "handler";
    }
    return strcmp(name, "run_now") == 0 || strcmp(name, "execCallbacks") == 0 ? "callback" : NULL;
}

// What Shiny computes by a call, according to the name that Shiny gives to the called function.
enum computed { NOT_LABELLED, REACTIVE, OBSERVER };

// Returns what Shiny computes by a call. An observer, such as `<observer:output$plot>` or
// `<observer:observeEvent(input$go)>`, may compute several reactives, such as `<reactive:total>`.
static enum computed computed_by(SEXP call) {
    const char* name =
        TYPEOF(call) == LANGSXP && TYPEOF(CAR(call)) == SYMSXP ? CHAR(PRINTNAME(CAR(call))) : "";
    return strncmp(name, "<observer", 9) == 0 ? OBSERVER
        : strncmp(name, "<reactive", 9) == 0 ? REACTIVE : NOT_LABELLED;
}

static SEXP call_at(int at) {
    INTEGER(CADR(frame_call))[0] = -at;
    return Rf_eval(frame_call, R_BaseEnv);
}

static SEXP read_stack(void* data) {
    struct sample* sample = data;
    int frames = Rf_asInteger(Rf_eval(nframe_call, R_BaseEnv));
    SEXP call = R_NilValue, outer;
    PROTECT_INDEX at_call, at_outer;
    PROTECT_WITH_INDEX(call = frames > 0 ? call_at(0) : R_NilValue, &at_call);
    PROTECT_WITH_INDEX(outer = R_NilValue, &at_outer);
    bool has_label = false;
    for (int at = 0; at < MOST_LOOKED_AT; at++) {
        if (TYPEOF(call) != LANGSXP || callee_of_loop(call) != NULL) {
            break;
        }
        REPROTECT(outer = at + 1 < frames ? call_at(at + 1) : R_NilValue, at_outer);
        enum computed computed = computed_by(call);
        // Between a label and the next one are calls of Shiny.
        if (computed != NOT_LABELLED || (at < MOST_CALLS && !has_label)) {
            const char* nameless = callee_of_loop(outer);
            if (at > 0) {
                append(sample, " < ");
            }
            append_name(sample, CAR(call), nameless == NULL ? "<anonymous>" : nameless);
            note_place(sample, call);
        }
        has_label |= computed != NOT_LABELLED;
        if (computed == OBSERVER) {
            note_session(sample);
            break;
        }
        REPROTECT(call = outer, at_call);
    }
    UNPROTECT(2);
    return R_NilValue;
}

// Reads the stack of this thread and publishes it. Errors, such as an overflow of a stack that the
// app has nearly filled, are dropped.
static void sample_stack(void) {
    struct sample sample = {.len = 0};
    if (run_quietly(read_stack, &sample) && sample.len > 0) {
        size_t len = sample.len < sizeof sample.text ? sample.len : sizeof sample.text;
        // The last name may have been cut off; its separator is removed.
        while (len > 0 && strchr(" <", sample.text[len - 1]) != NULL) {
            len--;
        }
        char end[sizeof sample.place + sizeof sample.session];
        int end_len = snprintf(end, sizeof end, "%s%s", sample.place, sample.session);
        rk_stack_sampled((struct rk_bytes){sample.text, len},
            (struct rk_bytes){end, (size_t)end_len});
    }
}

// Does what is due: begins or ends a profile, and samples the stack.
static void look(uint64_t request) {
    // Code that is run here may check for interrupts, which is this hook again.
    is_looking = true;
    if (request != handled) {
        handled = request;
        profile_handle(request);
    }
    profile_check();
    if (activity != 0) {
        int64_t now = coarse_ns();
        if (activity != timed) {
            timed = activity;
            due = now + first_ns;
        } else if (now >= due) {
            sample_stack();
            due = coarse_ns() + interval_ns;
        }
    }
    is_looking = false;
}

static void on_interrupt_check(void) {
    uint64_t request = atomic_load_explicit(requested, memory_order_relaxed);
    if ((activity != 0 || request != handled) && !is_looking) {
        look(request);
    }
    if (previous != NULL) {
        previous();
    }
    worker_check_interrupt();
}

// Installs the hook. Called before the first server is started.
void stack_sampling_init(void) {
    if (nframe_call == NULL) {
        nframe_call = Rf_lang1(PROTECT(Rf_eval(Rf_install("sys.nframe"), R_BaseEnv)));
        R_PreserveObject(nframe_call);
        SEXP number = PROTECT(Rf_allocVector(INTSXP, 1));
        frame_call = Rf_lang2(PROTECT(Rf_eval(Rf_install("sys.call"), R_BaseEnv)), number);
        R_PreserveObject(frame_call);
        UNPROTECT(3);
    }
    // A hook that another one calls is not installed again: they would call each other endlessly.
    if (!is_hooked) {
        previous = R_PolledEvents;
        R_PolledEvents = on_interrupt_check;
        is_hooked = true;
    }
}

// Removes the hook, unless another hook calls it, in which case the shared object stays loaded.
void stack_sampling_close(void) {
    if (R_PolledEvents == on_interrupt_check) {
        R_PolledEvents = previous;
        is_hooked = false;
    }
}

// Sets the word by which profiles are requested, or NULL if nobody can request one. Ends the
// running profile, because nobody can do so any more, and the numbers of profiles begin again.
void stack_sampling_watch(const uint64_t* word) {
    requested = word == NULL ? &no_profile : (const _Atomic uint64_t*)word;
    if (handled != 0) {
        handled = 0;
        profile_handle(0);
    }
}

// Ends the activity and the profile in a forked child, whose parent goes on with both.
void stack_sampling_forked(void) {
    activity = 0;
    requested = &no_profile;
    handled = 0;
    profile_forked();
}

// Begins an activity, and returns the one that it interrupts, for activity_end().
unsigned activity_begin(void) {
    unsigned outer = activity;
    activities = activities == UINT_MAX ? 1 : activities + 1;
    activity = activities;
    if (R_wait_usec == 0) {
        // While R sleeps, it checks for interrupts only at the end unless this is set.
        R_wait_usec = WAIT_USEC;
        is_waiting_changed = true;
    }
    return outer;
}

void activity_end(unsigned outer) {
    activity = outer;
    if (outer == 0 && is_waiting_changed) {
        is_waiting_changed = false;
        if (R_wait_usec == WAIT_USEC) {
            R_wait_usec = 0;
        }
    }
}

unsigned activity_current(void) {
    return activity;
}

// Begins the activity of what a served app does between two calls of service(), where Shiny
// computes its outputs and observers.
void activity_begin_between(void) {
    activity_begin();
    between = activity;
}

// Returns whether what runs now belongs to the activity that activity_begin_between() has begun.
// May be called in a signal handler.
bool activity_is_between(void) {
    return between != 0 && activity == between;
}

// Ends the activity that activity_begin_between() has begun, if any. An activity within it, such as
// a callback that calls service(), goes on and returns to it.
void activity_end_between(void) {
    if (between != 0 && activity == between) {
        activity_end(0);
        between = 0;
    }
}
