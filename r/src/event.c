// The event that R's thread is handling: whether C still reads it, when its handling began, and the
// R names of the codes in it. This file depends on no other file of the shim.
#include <time.h>

#include "shim.h"

static bool is_reading;
static double start;

double monotonic_seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

void event_begin(void) {
    is_reading = true;
}

void event_set_start(double now) {
    start = now;
}

void event_release(void) {
    is_reading = false;
}

bool event_is_being_read(void) {
    return is_reading;
}

double event_start(void) {
    return start;
}

const char* stream_end_name(int32_t code) {
    static const char* const names[] = {"done", "client", "error", "slow", "timeout", "stop"};
    return names[code >= 0 && code <= RK_END_STOP ? code : RK_END_CLIENT];
}
