// Package later, the owner of R's event loops: scheduling tasks in it, and loading it.
//
// Loading package later, which imports rlang and Rcpp, takes half of the time to the first
// response. Until an app loads it, it has no callbacks to run, and service() waits without it. A
// process that only serves therefore does not load it. An interactive session loads it with its
// first server (R/server.R), and so does R on Windows, whose event loop has no input handlers. Any
// other R process that runs an event loop is woken through a pipe, whose input handler in R's event
// loop loads package later.
#ifndef _WIN32
#include <R_ext/eventloop.h>
#include <fcntl.h>
#include <unistd.h>
#endif

#include "shim.h"

// The delay in seconds after which sent memory is released, together with all that has been sent by
// then.
static const double RELEASE_SECONDS = 0.05;

// The function of package later that schedules `callback` in the event loop `loop`. It may be
// called on any thread, and returns 0 if there is no such loop.
typedef uint64_t (*exec_later_t)(void (*callback)(void*), void* data, double seconds, int loop);
static exec_later_t exec_later;  // NULL while package later is not loaded
static int is_closed;

static SEXP run_call;      // later::run_now(0, all = FALSE)
static SEXP current_call;  // later::current_loop()
static SEXP id_symbol;

// A callback that is scheduled at most once at a time in a loop. It is never freed, because package
// later has its address.
struct scheduled {
    enum later_task task;
    int loop;          // an index in `loops`
    int is_scheduled;  // written by any thread
};

// An event loop of package later. Servers and clients belong to the loop that was current when they
// were created.
struct loop {
    int id;       // the id in package later; read by any thread
    int users;    // the number of servers and clients
    int servers;  // read by any thread
    struct scheduled tasks_of[LATER_TASKS];
};

// The first element is the global loop. The elements are reused, because with_temp_loop() creates a
// new id each time.
static struct loop loops[LATER_LOOPS];
static int loop_count = 1;  // elements in use so far; read by any thread
static int waits_in = -1;   // the loop in which service() waits; read by any thread
static int last_served;     // the loop of the last server that was stopped; read by any thread

static void (*tasks[LATER_TASKS])(int loop);
static int is_woken;  // whether a byte was written to the pipe and not read yet

static void wake(void);

static int atomic_get(int* word) {
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static void atomic_set(int* word, int value) {
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}

bool later_is_loaded(void) {
    return __atomic_load_n(&exec_later, __ATOMIC_SEQ_CST) != NULL;
}

static void run_scheduled(void* data) {
    struct scheduled* scheduled = data;
    atomic_set(&scheduled->is_scheduled, 0);
    if (atomic_get(&is_closed) == 0) {
        tasks[scheduled->task](scheduled->loop);
    }
}

// Schedules a task in a loop, unless it is already scheduled. Called on any thread; must not use R.
static void schedule_in(exec_later_t exec, int at, enum later_task task, double seconds) {
    struct loop* loop = &loops[at];
    struct scheduled* scheduled = &loop->tasks_of[task];
    if (__atomic_exchange_n(&scheduled->is_scheduled, 1, __ATOMIC_SEQ_CST) != 0) {
        return;
    }
    int id = atomic_get(&loop->id);
    if (exec(run_scheduled, scheduled, seconds, id) == 0 && id != 0) {
        // The loop was destroyed, so its servers and clients move to the global loop.
        atomic_set(&loop->id, 0);
        exec(run_scheduled, scheduled, seconds, 0);
    }
}

// Schedules a task in the loops in which R may run next: the one in which service() waits, and
// those of servers.
static void schedule_task(exec_later_t exec, enum later_task task, double seconds) {
    bool has_servers = false;
    int waits = atomic_get(&waits_in);
    int count = atomic_get(&loop_count);
    for (int i = 0; i < count; i++) {
        if (atomic_get(&loops[i].servers) > 0) {
            has_servers = true;
            schedule_in(exec, i, task, seconds);
        }
    }
    if (waits >= 0) {
        schedule_in(exec, waits, task, seconds);
    } else if (!has_servers) {
        schedule_in(exec, atomic_get(&last_served), task, seconds);
    }
}

// Makes R's event loop take events. Called on any thread; must not use R.
void later_schedule(void) {
    if (atomic_get(&is_closed) != 0) {
        return;
    }
    exec_later_t exec = __atomic_load_n(&exec_later, __ATOMIC_SEQ_CST);
    if (exec != NULL) {
        schedule_task(exec, LATER_SERVE, 0);
    } else {
        wake();
    }
}

// Makes R's event loop release memory that the server has sent. Without package later, service()
// does so when it is idle. Called on any thread; must not use R.
void later_release(void) {
    exec_later_t exec = __atomic_load_n(&exec_later, __ATOMIC_SEQ_CST);
    if (exec != NULL && atomic_get(&is_closed) == 0) {
        schedule_task(exec, LATER_RELEASE, RELEASE_SECONDS);
    }
}

// Schedules a task in one loop if package later is loaded. Called on any thread; must not use R.
void later_schedule_in(int loop, enum later_task task) {
    exec_later_t exec = __atomic_load_n(&exec_later, __ATOMIC_SEQ_CST);
    if (exec != NULL && atomic_get(&is_closed) == 0) {
        schedule_in(exec, loop, task, 0);
    }
}

// Ends all scheduling.
void later_close(void) {
    atomic_set(&is_closed, 1);
}

static void loops_reset(void) {
    for (int i = 0; i < LATER_LOOPS; i++) {
        for (int task = 0; task < LATER_TASKS; task++) {
            loops[i].tasks_of[task].task = (enum later_task)task;
            loops[i].tasks_of[task].loop = i;
            atomic_set(&loops[i].tasks_of[task].is_scheduled, 0);
        }
    }
    atomic_set(&is_woken, 0);
    atomic_set(&waits_in, -1);
}

// Sets the function of a task. Called again when this package is loaded again, when package later
// may have been loaded again as well.
void later_init(enum later_task task, void (*run)(int loop)) {
    tasks[task] = run;
    __atomic_store_n(&exec_later, NULL, __ATOMIC_SEQ_CST);
    atomic_set(&is_closed, 0);
    loops_reset();
}

// loops ---------------------------------------------------------------------

// Returns package later's id of the current loop; 0 is the global loop. Does not jump.
int later_current(void) {
    if (!later_is_loaded()) {
        return 0;
    }
    bool failed;
    SEXP loop = PROTECT(call_quietly(current_call, &failed));
    SEXP id = !failed && TYPEOF(loop) == ENVSXP ? variable(loop, id_symbol) : NULL;
    int number = id == NULL ? 0 : Rf_asInteger(id);
    UNPROTECT(1);
    return number == NA_INTEGER ? 0 : number;
}

static bool has_scheduled(const struct loop* loop) {
    for (int task = 0; task < LATER_TASKS; task++) {
        if (loop->tasks_of[task].is_scheduled != 0) {
            return true;
        }
    }
    return false;
}

// Returns the index of an unused element, if possible one in which nothing is scheduled, or 0.
static int free_place(void) {
    int found = 0;
    for (int i = 1; i < LATER_LOOPS; i++) {
        if (loops[i].users == 0 && i != waits_in) {
            if (!has_scheduled(&loops[i])) {
                return i;
            }
            found = found == 0 ? i : found;
        }
    }
    return found;
}

// Returns the index of the loop with this id, or that of the global loop if 63 others are in use.
static int place_of(int id) {
    if (id == 0) {
        return 0;
    }
    for (int i = 1; i < loop_count; i++) {
        if (loops[i].id == id) {
            return i;
        }
    }
    int at = free_place();
    if (at != 0) {
        for (int task = 0; task < LATER_TASKS; task++) {
            atomic_set(&loops[at].tasks_of[task].is_scheduled, 0);
        }
        if (last_served == at) {
            atomic_set(&last_served, 0);
        }
        atomic_set(&loops[at].id, id);
        if (at >= loop_count) {
            atomic_set(&loop_count, at + 1);
        }
    }
    return at;
}

// Adds a user to the loop with this id, and returns the index of the loop, which is valid until
// later_loop_release(). Logs once if the global loop had to be used instead.
int later_loop_use(int id) {
    static bool is_reported;
    int at = place_of(id);
    if (at == 0 && id != 0 && !is_reported) {
        is_reported = true;
        log_error(
            "an event loop of package later", R_NilValue,
            "servers and clients already use 63 private event loops, the maximum: those in a "
            "further loop belong to "
            "the global loop, and later::run_now(loop = ) does not serve them. Stop servers that "
            "are not needed.");
    }
    loops[at].users++;
    return at;
}

void later_loop_release(int at) {
    loops[at].users--;
}

// Adds a server to the current loop, and returns the index of the loop.
int later_add_server(void) {
    int at = later_loop_use(later_current());
    atomic_set(&loops[at].servers, loops[at].servers + 1);
    return at;
}

void later_remove_server(int at) {
    atomic_set(&last_served, at);
    atomic_set(&loops[at].servers, loops[at].servers - 1);
    later_loop_release(at);
}

// Makes the current loop the one in which arriving events are scheduled, whatever loop their
// servers belong to. This lasts until later_set_wait_loop() is called with the returned index. Sets
// `*loop` to the loop for later_run(), not protected. May raise the errors of
// later::current_loop().
int later_begin_wait(SEXP* loop) {
    int outer = waits_in;
    *loop = PROTECT(Rf_eval(current_call, R_BaseEnv));
    SEXP id = variable(*loop, id_symbol);
    atomic_set(&waits_in, place_of(id == NULL ? 0 : Rf_asInteger(id)));
    UNPROTECT(1);
    return outer;
}

int later_wait_loop(void) {
    return waits_in;
}

void later_set_wait_loop(int outer) {
    atomic_set(&waits_in, outer);
}

// the pipe --------------------------------------------------------------------

#ifdef _WIN32
// Package later is loaded with the first server, so there is nothing to wake before.
static void wake(void) {
}

void later_enable_wakeup(void) {
}

void later_disable_wakeup(void) {
}

void later_forked(void) {
}
#else
static int wake_pipe[2] = {-1, -1};
static InputHandler* wake_handler;
// The number that identifies our input handler; any number that other packages do not use.
enum { WAKE_ACTIVITY = 77 };

// Wakes an R process that has not loaded package later. Called on any thread; must not use R.
static void wake(void) {
    if (wake_pipe[1] >= 0 && __atomic_exchange_n(&is_woken, 1, __ATOMIC_SEQ_CST) == 0) {
        ssize_t written = write(wake_pipe[1], "", 1);
        // If the pipe is full, R has been woken already.
        (void)written;
    }
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

// The input handler of the pipe. It loads package later, unless R code is running, during which
// package later would run no callbacks.
static void on_wake(void* data) {
    char bytes[16];
    bool failed = false;
    (void)data;
    while (read(wake_pipe[0], bytes, sizeof bytes) > 0) {
    }
    if (!later_is_loaded()) {
        SEXP call = PROTECT(Rf_lang1(objs.load_later_if_idle));
        SEXP is_reached = call_quietly(call, &failed);
        if (!failed && Rf_asLogical(is_reached) != TRUE) {
            // The I/O thread writes to the pipe again after a millisecond while events wait.
            atomic_set(&is_woken, 0);
        }
        UNPROTECT(1);
    }
    if (failed) {
        log_error("a request", R_NilValue,
            "package later cannot be loaded: requests are handled only by service()");
    }
}

// Creates the pipe by which the I/O thread wakes an R process that is not in service(). Called
// before a server listens.
void later_enable_wakeup(void) {
    if (!later_is_loaded() && wake_pipe[0] < 0) {
        if (!pipe_new(wake_pipe)) {
            abort_with("rookery_no_server", "cannot create a pipe: too many files are open");
        }
        wake_handler = addInputHandler(R_InputHandlers, wake_pipe[0], on_wake, WAKE_ACTIVITY);
    }
}

// Closes the pipe, before the package is unloaded. No thread may use the pipe any more.
void later_disable_wakeup(void) {
    if (wake_pipe[0] >= 0) {
        removeInputHandler(&R_InputHandlers, wake_handler);
        for (int i = 0; i < 2; i++) {
            close(wake_pipe[i]);
            wake_pipe[i] = -1;
        }
        atomic_set(&is_woken, 0);
    }
}

// Called in a forked child. R's event loop watches the inherited descriptors, so they are replaced
// by a new pipe. Must not use R.
void later_forked(void) {
    int ends[2];
    loops_reset();
    if (wake_pipe[0] >= 0 && pipe_new(ends)) {
        for (int i = 0; i < 2; i++) {
            dup2(ends[i], wake_pipe[i]);
            fcntl(wake_pipe[i], F_SETFD, FD_CLOEXEC);
            close(ends[i]);
        }
    }
}
#endif

// Stores a call in `*constant` and protects it from R's garbage collector. Releases the call that
// it replaces, if there is one.
static void set_call(SEXP* constant, SEXP call) {
    R_PreserveObject(call);
    if (*constant != NULL) {
        R_ReleaseObject(*constant);
    }
    *constant = call;
}

// Called when package later was loaded. Schedules the task for which the pipe was used.
SEXP ffi_later_use(SEXP run_now, SEXP current_loop) {
    SEXP zero = PROTECT(Rf_ScalarReal(0));
    SEXP no = PROTECT(Rf_ScalarLogical(FALSE));
    SEXP call = PROTECT(Rf_lang3(run_now, zero, no));
    SET_TAG(CDDR(call), Rf_install("all"));
    set_call(&run_call, call);
    set_call(&current_call, PROTECT(Rf_lang1(current_loop)));
    UNPROTECT(4);
    id_symbol = Rf_install("id");
    exec_later_t exec = (exec_later_t)R_GetCCallable("later", "execLaterNative2");
    __atomic_store_n(&exec_later, exec, __ATOMIC_SEQ_CST);
    // A thread that calls later_schedule() from here on uses package later; one that has used the
    // pipe before has set the flag.
    if (__atomic_exchange_n(&is_woken, 0, __ATOMIC_SEQ_CST) != 0) {
        schedule_task(exec, LATER_SERVE, 0);
    }
    return R_NilValue;
}

static bool is_expected;  // a handler has returned a pending promise since the last later_run()

// Makes service() call later_run() before it waits, because a callback fulfils most promises, and
// is often due at once.
void later_expect(void) {
    is_expected = true;
}

bool later_is_expected(void) {
    return is_expected;
}

// Runs one callback of the current loop. After later_begin_wait() it waits for a callback of `loop`
// for up to `seconds`. Returns whether one ran. May raise the callback's error.
bool later_run(double seconds, SEXP loop) {
    is_expected = false;
    SEXP call = run_call;
    if (seconds > 0) {
        // A new call, because a finalizer may wait as well before this one is evaluated.
        SEXP time = PROTECT(Rf_ScalarReal(seconds));
        call = Rf_lang4(CAR(run_call), time, CADDR(run_call), loop);
        SET_TAG(CDDR(call), TAG(CDDR(run_call)));
        UNPROTECT(1);
    }
    SEXP ran = Rf_eval(PROTECT(call), R_BaseEnv);
    UNPROTECT(1);
    return TYPEOF(ran) == LGLSXP && XLENGTH(ran) == 1 && LOGICAL(ran)[0] == TRUE;
}
