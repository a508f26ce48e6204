# State of the session. `paused` is what interrupt() sets and a running service(0) looks at; `servers` are those
# that run, in the order of their start.
.globals <- new.env(parent = emptyenv())
.globals$paused <- FALSE
.globals$servers <- list()
# Of this session and this load of the package: what was saved and restored has a copy of it, which is another one.
.globals$session <- new.env(parent = emptyenv())

.onLoad <- function(libname, pkgname) {
  shared <- new.env(parent = emptyenv())
  shared$overflow <- overflow_condition
  shared$report <- report
  shared$reach_later <- reach_later
  shared$heed <- heed
  shared$hear_interrupts <- hear_interrupts
  shared$trace <- trace_of
  .Call(ffi_init, topenv(), .globals, shared)
  setHook(packageEvent("later", "onLoad"), use_later)
  if (isNamespaceLoaded("later")) use_later()
  # When R ends, the I/O thread has to end before package later's memory goes.
  reg.finalizer(.globals, function(globals) if (!isTRUE(globals$is_unloaded)) end_session(), onexit = TRUE)
}

# Writes what has not been logged yet, and ends the threads.
end_session <- function() {
  flush_all_faults()
  end_threads()
}

# Ends the threads. Clients that are connecting then have not failed.
end_threads <- function() {
  .globals$is_ending <- TRUE
  .Call(ffi_close)
}

# Tells C of package later, which is loaded for it if it is not: see src/later.c.
use_later <- function(...) {
  if (!isTRUE(.globals$is_unloaded)) .Call(ffi_later_use, later::run_now, later::current_loop)
}

# The same, if R idles; whether it does.
reach_later <- function() {
  is_idle <- sys.nframe() == 1
  if (is_idle) use_later()
  is_idle
}

# What C needs for requests and WebSockets, and what prints a server: with the first server, and not when the package is
# loaded, where R6's generators would be half of the time that a line in .Rprofile takes.
prepare <- function() {
  if (!isTRUE(.globals$is_prepared)) {
    loadNamespace("R6")
    shared <- new.env(parent = emptyenv())
    shared$null_input <- nullInputStream
    shared$error_stream <- stdErrStream
    shared$httpuv_version <- httpuv_version()
    shared$request_frame <- request_frame()
    shared$stream_parts <- list(stream_methods(), stream_classes)
    shared$open_body <- open_body
    shared$bind_body <- bind_body
    shared$close_body <- close_body
    shared$socket_parts <- list(WebSocket$public_methods, c(WebSocket$classname, "R6"), WebSocket$public_fields)
    shared$pushed_parts <- list(push_methods, "rookery_stream")
    shared$events_parts <- list(c(push_methods, event_methods), c("rookery_events", "rookery_stream"))
    shared$then <- answer_later
    shared$complete_fault <- complete_fault
    shared$ask_on_error <- ask_on_error
    shared$tell_fault <- tell_fault
    shared$failure_response <- failure_response
    shared$note_own <- note_own
    shared$limit_time <- limit_time
    shared$body_came <- body_came
    shared$body_next <- body_next
    shared$body_over <- body_over
    shared$new_source <- new_source
    shared$begin_stream <- begin_stream
    shared$take_later <- take_later
    shared$drained <- drained
    shared$depart <- depart
    .Call(ffi_prepare, shared)
    .globals$is_prepared <- TRUE
  }
}

# The shared object stays loaded: R calls it when it collects a body that lies in the server's memory, and so do promises
# that are not settled and objects that the app holds. Loaded again, the package finds it, see ffi_init().
.onUnload <- function(libpath) {
  stopAllServers()
  end_threads()
  .Call(ffi_last_events)
  flush_all_faults()
  .globals$is_unloaded <- TRUE
  if (identical(getOption("interrupt"), note_interrupt)) {
    options(interrupt = .globals$on_interrupt)
  }
}

# R calls options(interrupt=) before an interrupt that nothing handles leaves what runs: so C knows why a handler of the
# app's did not come back. What was set there is called as well.
hear_interrupts <- function() {
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
    # It may call what it was put in front of: this function.
    .globals$on_interrupt <- NULL
    on.exit(.globals$on_interrupt <- before)
    before()
  }
}

# The version of httpuv whose behaviour the package has; `req$httpuv.version`.
httpuv_version <- function() {
  package_version("1.6.17.1")
}
