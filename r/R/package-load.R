# State of the session. interrupt() sets `paused`, and a running service(0) checks it. `servers` has
# the running servers in the order of their start.
.globals <- new.env(parent = emptyenv())
.globals$paused <- FALSE
.globals$servers <- list()
# Identifies this session and this load of the package. A saved and restored object has a copy,
# which is a different environment.
.globals$session <- new.env(parent = emptyenv())

.onLoad <- function(libname, pkgname) {
  shared <- new.env(parent = emptyenv())
  shared$overflow <- overflow_condition
  shared$log_error <- log_error
  shared$load_later_if_idle <- load_later_if_idle
  shared$handle_signals <- handle_signals
  shared$watch_interrupts <- watch_interrupts
  shared$interrupted_observer <- interrupted_observer
  shared$session_token <- session_token
  shared$trace <- trace_of
  .Call(ffi_init, topenv(), .globals, shared)
  setHook(packageEvent("later", "onLoad"), use_later)
  if (isNamespaceLoaded("later")) use_later()
  # When R exits, the I/O thread must end before package later frees its memory.
  reg.finalizer(
    .globals, function(globals) if (!isTRUE(globals$is_unloaded)) end_session(), onexit = TRUE
  )
}

# Writes pending error reports, and ends the threads.
end_session <- function() {
  flush_all_error_reports()
  end_threads()
}

# Ends the threads. `is_ending` keeps clients that are still connecting from reporting errors.
end_threads <- function() {
  .globals$is_ending <- TRUE
  .Call(ffi_close)
}

# Passes functions of package later to C (src/later_scheduling.c), and loads the package if necessary.
use_later <- function(...) {
  if (!isTRUE(.globals$is_unloaded)) .Call(ffi_later_use, later::run_now, later::current_loop)
}

# Begins an R process that serve() or the program started for the app of a path. Loads the packages
# that rookery imports and that the libraries of this process lack, from the library of rookery. The
# app's .Rprofile may have chosen other libraries, as renv's does.
begin_app_process <- function() {
  .globals$is_app_process <- TRUE
  for (package in c("later", "promises", "R6")) {
    if (length(find.package(package, quiet = TRUE)) == 0) {
      loadNamespace(package, lib.loc = c(.libPaths(), dirname(getNamespaceInfo("rookery", "path"))))
    }
  }
}

# Calls use_later() if R is idle; returns whether R is idle.
load_later_if_idle <- function() {
  is_idle <- sys.nframe() == 1
  if (is_idle) use_later()
  is_idle
}

# Passes to C the objects that requests and WebSockets need. This is done with the first server and
# not when the package is loaded, because loading R6 would take half of the time of
# library(rookery).
prepare <- function() {
  if (!isTRUE(.globals$is_prepared)) {
    # Loads R6.
    force(R6::R6Class)
    shared <- new.env(parent = emptyenv())
    shared$null_input <- nullInputStream
    shared$error_stream <- stdErrStream
    shared$httpuv_version <- httpuv_version()
    shared$request_classes <- request_classes
    shared$input_parts <- list(input_methods(), input_classes)
    shared$open_body <- open_body
    shared$assign_body <- assign_body()
    shared$close_body <- close_body
    shared$websocket_parts <- list(
      WebSocket$public_methods, c(WebSocket$classname, "R6"), WebSocket$public_fields
    )
    shared$pushed_parts <- list(push_methods, "rookery_stream")
    shared$events_parts <- list(
      c(push_methods, event_methods), c("rookery_events", "rookery_stream")
    )
    shared$then <- respond_later
    shared$as_promise <- as_promise
    shared$complete_error_report <- complete_error_report
    shared$call_on_error <- call_on_error
    shared$write_error_report <- write_error_report
    shared$error_response <- error_response
    shared$note_app_500 <- note_app_500
    shared$limit_time <- limit_time
    shared$begin_call_span <- begin_call_span
    shared$begin_message_span <- begin_message_span
    shared$follow_promise <- follow_promise
    shared$end_span <- end_span
    shared$on_body_chunk <- on_body_chunk
    shared$body_process_queue <- body_process_queue
    shared$on_body_end <- on_body_end
    shared$new_source <- new_source
    shared$start_stream <- start_stream
    shared$await_chunk <- await_chunk
    shared$on_stream_drained <- on_stream_drained
    shared$on_stream_end <- on_stream_end
    .Call(ffi_prepare, shared)
    .globals$is_prepared <- TRUE
  }
}

# The shared object stays loaded, because R calls it when it collects a body in the server's memory,
# and because pending promises and objects of the app refer to it. A package that is loaded again
# uses the same shared object, see ffi_init().
.onUnload <- function(libpath) {
  stopAllServers()
  end_threads()
  .Call(ffi_last_events)
  flush_all_error_reports()
  .globals$is_unloaded <- TRUE
  if (identical(getOption("interrupt"), note_interrupt)) {
    options(interrupt = .globals$on_interrupt)
  }
}

# Sets options(interrupt=), which R calls before an interrupt ends the running code. C thereby
# learns that a handler of the app was interrupted. The previous value of the option is called as
# well.
watch_interrupts <- function() {
  before <- getOption("interrupt")
  if (!identical(before, note_interrupt)) {
    .globals$on_interrupt <- before
    options(interrupt = note_interrupt)
  }
}

note_interrupt <- function() {
  .Call(ffi_note_interrupt)
  before <- .globals$on_interrupt
  if (is.function(before)) {
    # The previous function may call this function in turn.
    .globals$on_interrupt <- NULL
    on.exit(.globals$on_interrupt <- before)
    before()
  }
}

# The version of httpuv with which this package is compatible; the value of `req$httpuv.version`.
httpuv_version <- function() {
  package_version("1.6.17.1")
}
