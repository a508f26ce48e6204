# State of the session. `paused` is what interrupt() sets and a running service(0) looks at; `servers` are those
# that run, in the order of their start.
.globals <- new.env(parent = emptyenv())
.globals$paused <- FALSE
.globals$servers <- list()

# The open WebSockets of each listener: an environment per listener, by the listener's number.
.sockets <- new.env(parent = emptyenv())

.onLoad <- function(libname, pkgname) {
  shared <- new.env(parent = emptyenv())
  shared$null_input <- nullInputStream
  shared$error_stream <- stdErrStream
  shared$httpuv_version <- httpuv_version()
  shared$new_input <- new_input
  shared$forget_body <- forget_body
  shared$new_socket <- new_socket
  shared$forget_socket <- forget_socket
  shared$then <- answer_later
  shared$overflow <- overflow_condition
  shared$message <- error_page
  shared$report <- report
  shared$run_now <- later::run_now
  shared$heed <- heed
  .Call(ffi_init, topenv(), .globals, shared)
  # When R ends, the I/O thread has to end before package later's memory goes.
  reg.finalizer(.globals, function(globals) if (!isTRUE(globals$is_unloaded)) .Call(ffi_close), onexit = TRUE)
}

.onUnload <- function(libpath) {
  .Call(ffi_close)
  .globals$is_unloaded <- TRUE
  # R calls the package's code when it collects a body that lies in the server's memory, so that code stays until then.
  if (.Call(ffi_lent_blocks) > 0L) gc()
  if (.Call(ffi_lent_blocks) == 0L) library.dynam.unload("rookery", libpath)
}

# The version of httpuv whose behaviour the package has; `req$httpuv.version`.
httpuv_version <- function() {
  package_version("1.6.17.1")
}
