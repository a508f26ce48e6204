// What this R is in the middle of: which fork of the process it is, and whether it reads an event.
#include "shim.h"

unsigned forks;

static bool is_reading;

void event_begins(void) {
    is_reading = true;
}

void event_is_read(void) {
    is_reading = false;
}

bool event_is_being_read(void) {
    return is_reading;
}
