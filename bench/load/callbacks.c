// A thread other than R's that schedules a callback with the package later every 20 ms, as mirai
// does. The callback records its delay.
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include <R.h>
#include <R_ext/Rdynload.h>
#include <Rinternals.h>

enum { COUNT = 200 };

typedef void (*exec_later_t)(void (*callback)(void*), void* data, double seconds, int loop);
static exec_later_t exec_later;
static double scheduled[COUNT];
static double delays[COUNT];
static int finished;
static int rounds;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void callback(void* data) {
    double* at = data;
    delays[finished++] = now() - *at;
}

static void* run(void* data) {
    struct timespec pause = {0, 20 * 1000 * 1000};
    for (int i = 0; i < rounds; i++) {
        nanosleep(&pause, NULL);
        scheduled[i] = now();
        exec_later(callback, &scheduled[i], 0, 0);
    }
    return data;
}

SEXP wake_start(SEXP count) {
    exec_later = (exec_later_t)R_GetCCallable("later", "execLaterNative2");
    finished = 0;
    rounds = Rf_asInteger(count) < COUNT ? Rf_asInteger(count) : COUNT;
    pthread_t thread;
    pthread_create(&thread, NULL, run, NULL);
    pthread_detach(thread);
    return R_NilValue;
}

// Returns the delays so far, in milliseconds.
SEXP wake_delays(void) {
    SEXP result = PROTECT(Rf_allocVector(REALSXP, finished));
    for (int i = 0; i < finished; i++) {
        REAL(result)[i] = delays[i] * 1e3;
    }
    UNPROTECT(1);
    return result;
}
