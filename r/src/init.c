// Registration of the entry points.
#include <R_ext/Visibility.h>
#include <string.h>

#include "shim.h"

// Called by .onLoad(), see globals_init(). Each file initializes its own state here.
static SEXP ffi_init(SEXP ns, SEXP globals, SEXP shared) {
    if (globals_init(ns, globals, shared)) {
        strings_init();
        guard_init();
        rk_output_init();
    }
    event_loop_init();
    worker_init();
    return R_NilValue;
}

// Called by prepare() in R/package-load.R before the first server is started, see
// globals_prepare().
static SEXP ffi_prepare(SEXP shared) {
    globals_prepare(shared);
    websocket_object_init();
    stream_object_init();
    input_init();
    stack_sampling_init();
    return R_NilValue;
}

#define ENTRY(name, arguments) {#name, (DL_FUNC)&name, arguments}

static const R_CallMethodDef entries[] = {
    ENTRY(ffi_init, 3),
    ENTRY(ffi_prepare, 1),
    ENTRY(ffi_listen_tcp, 3),
    ENTRY(ffi_listen_unix, 3),
    ENTRY(ffi_tls_new, 1),
    ENTRY(ffi_tls_reload, 1),
    ENTRY(ffi_tls_development_certificate, 1),
    ENTRY(ffi_limits_set, 1),
    ENTRY(ffi_stop, 1),
    ENTRY(ffi_drain, 1),
    ENTRY(ffi_connections, 1),
    ENTRY(ffi_worker_gate, 1),
    ENTRY(ffi_worker_state, 0),
    ENTRY(ffi_worker_serves, 1),
    ENTRY(ffi_worker_interrupts_again, 0),
    ENTRY(ffi_admin_start, 2),
    ENTRY(ffi_admin_set_state, 2),
    ENTRY(ffi_admin_stop, 0),
    ENTRY(ffi_shares_errors, 0),
    ENTRY(ffi_share_error, 1),
    ENTRY(ffi_span_error, 1),
    ENTRY(ffi_site_new, 1),
    ENTRY(ffi_site_set, 3),
    ENTRY(ffi_site_state, 1),
    ENTRY(ffi_service, 1),
    ENTRY(ffi_flush_end, 0),
    ENTRY(ffi_later_use, 2),
    ENTRY(ffi_interrupt, 0),
    ENTRY(ffi_spans_in_r, 1),
    ENTRY(ffi_take_failure, 0),
    ENTRY(ffi_fail_for_test, 0),
    ENTRY(ffi_close, 0),
    ENTRY(ffi_last_events, 0),
    ENTRY(ffi_respond, 3),
    ENTRY(ffi_reject, 3),
    ENTRY(ffi_promise_attach, 3),
    ENTRY(ffi_body_read, 3),
    ENTRY(ffi_body_open, 1),
    ENTRY(ffi_body_opened, 2),
    ENTRY(ffi_input_read, 2),
    ENTRY(ffi_input_tell, 1),
    ENTRY(ffi_input_seek, 2),
    ENTRY(ffi_lent_blocks, 0),
    ENTRY(ffi_ws_add, 3),
    ENTRY(ffi_ws_remove, 3),
    ENTRY(ffi_ws_send, 2),
    ENTRY(ffi_ws_queued_bytes, 1),
    ENTRY(ffi_ws_ping, 1),
    ENTRY(ffi_ws_close, 3),
    ENTRY(ffi_websockets, 1),
    ENTRY(ffi_rng_state, 0),
    ENTRY(ffi_live_bytes, 0),
    ENTRY(ffi_allocations, 0),
    ENTRY(ffi_receive_consumed, 2),
    ENTRY(ffi_receive_fail, 3),
    ENTRY(ffi_receive_respond, 2),
    ENTRY(ffi_receive_is_waiting, 1),
    ENTRY(ffi_receive_drop, 1),
    ENTRY(ffi_stream_object, 4),
    ENTRY(ffi_stream_on_fulfilled, 2),
    ENTRY(ffi_stream_fail, 2),
    ENTRY(ffi_stream_on_collected, 2),
    ENTRY(ffi_stream_write, 2),
    ENTRY(ffi_stream_write_fast, 2),
    ENTRY(ffi_stream_command, 2),
    ENTRY(ffi_stream_state, 1),
    ENTRY(ffi_handle_number, 1),
    ENTRY(ffi_client_check, 1),
    ENTRY(ffi_client_loop, 0),
    ENTRY(ffi_client_open, 2),
    ENTRY(ffi_client_send, 2),
    ENTRY(ffi_client_close, 3),
    ENTRY(ffi_client_abandon, 1),
    ENTRY(ffi_client_queued_bytes, 1),
    ENTRY(ffi_refuse, 2),
    ENTRY(ffi_signals_watch, 1),
    ENTRY(ffi_signals_unwatch, 0),
    ENTRY(ffi_signals_seen, 0),
    ENTRY(ffi_signals_left, 0),
    ENTRY(ffi_signals_closing, 0),
    ENTRY(ffi_note_interrupt, 0),
    ENTRY(ffi_program_start, 3),
    ENTRY(ffi_program_read, 1),
    ENTRY(ffi_program_wait, 2),
    ENTRY(ffi_program_signal, 2),
    ENTRY(ffi_program_forget, 1),
    ENTRY(ffi_log_open, 2),
    ENTRY(ffi_output_json, 1),
    ENTRY(ffi_log_next, 0),
    ENTRY(ffi_log_lost, 0),
    ENTRY(ffi_log_close, 0),
    ENTRY(ffi_ip_family, 1),
    ENTRY(ffi_base64, 1),
    ENTRY(ffi_is_secret_name, 1),
    ENTRY(ffi_text, 3),
    ENTRY(ffi_uri_encode, 2),
    ENTRY(ffi_uri_decode, 2),
    {NULL, NULL, 0},
};

attribute_visible void R_init_rookery(DllInfo* dll) {
#ifdef ROOKERY_VERSION
    // The interface between this C code and the core is the same only within one version.
    if (strcmp(rk_version(), ROOKERY_VERSION) != 0) {
        Rf_error("rookery " ROOKERY_VERSION " has found the library of rookery %s in its place: "
            "restart R, and if that does not help, remove other librookery files from the folders "
            "in LD_LIBRARY_PATH, or install rookery again", rk_version());
    }
#endif
    R_registerRoutines(dll, NULL, entries, NULL, NULL);
    R_useDynamicSymbols(dll, FALSE);
    R_forceSymbols(dll, TRUE);
    body_init(dll);
    chunk_init(dll);
    lazy_strings_init(dll);
}
