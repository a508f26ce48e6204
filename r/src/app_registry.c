// The apps of this process's listeners: which R object responds for a listener, and how.
#include <stdlib.h>
#include <string.h>

#include "shim.h"

static struct app* apps;
static size_t app_count;

// The values of the setting `rookery.error_detail` (R/error-report.R). "httpuv" is internal: it
// selects the texts that httpuv sends.
static const char* const details[] = {"none", "message", "full", "httpuv"};
enum { DETAIL_FULL = 2, DETAIL_HTTPUV = 3, DETAIL_COUNT = 4 };

static struct app* find(uint32_t listener) {
    for (size_t i = 0; i < app_count; i++) {
        if (apps[i].listener == listener) {
            return &apps[i];
        }
    }
    return NULL;
}

static bool is_true(SEXP settings, int at) {
    return Rf_asLogical(VECTOR_ELT(settings, at)) == TRUE;
}

// Registers the app of a listener. `settings` is list(has_on_headers, has_on_error, shows_id,
// detail, max_seconds, times_rendering).
void app_set(uint32_t listener, SEXP app, SEXP settings, SEXP websocket_rules) {
    int loop = later_add_server();
    response_time_rendering(is_true(settings, 5));
    struct app set = {
        .listener = listener,
        .token = keep(app),
        .websocket_rules = keep(websocket_rules),
        .has_on_headers = is_true(settings, 0),
        .keeps_req = is_true(settings, 1),
        .shows_id = is_true(settings, 2),
        .max_seconds = Rf_asReal(VECTOR_ELT(settings, 4)),
        .loop = loop,
    };
    const char* detail = CHAR(STRING_ELT(VECTOR_ELT(settings, 3), 0));
    while (set.detail < DETAIL_COUNT - 1 && strcmp(details[set.detail], detail) != 0) {
        set.detail++;
    }
    if (set.detail == DETAIL_FULL) {
        set.keeps_req = true;
    }
    // The last allocation was before, because a finalizer may start a server, which moves `apps`.
    struct app* more = realloc(apps, sizeof(struct app) * (app_count + 1));
    if (more == NULL) {
        release(set.token);
        release(set.websocket_rules);
        later_remove_server(loop);
        Rf_error("rookery: out of memory");
    }
    apps = more;
    apps[app_count++] = set;
}

bool app_find(uint32_t listener, struct app* out) {
    const struct app* app = find(listener);
    if (app != NULL) {
        *out = *app;
    }
    return app != NULL;
}

struct app_facts app_facts(uint32_t listener) {
    const struct app* app = find(listener);
    if (app == NULL) {
        return (struct app_facts){.app = R_NilValue, .detail = details[0]};
    }
    return (struct app_facts){
        .app = kept(app->token),
        .detail = details[app->detail],
        .is_httpuv = app->detail == DETAIL_HTTPUV,
    };
}

void app_remove(uint32_t listener) {
    struct app* app = find(listener);
    if (app != NULL) {
        release(app->token);
        release(app->websocket_rules);
        later_remove_server(app->loop);
        *app = apps[--app_count];
    }
}
