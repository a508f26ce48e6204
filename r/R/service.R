#' Serve for a while
#'
#' Handles the requests and messages that have arrived, runs due callbacks of
#' package later, and waits for more. A script has to call `service()`,
#' [runServer()] or [later::run_now()] to serve anything. An R session that is
#' idle at its prompt serves by itself.
#'
#' Waiting requests are handled one after the other for up to 1 ms. `service()`
#' returns after each WebSocket message, after `interrupt()`, and after a
#' callback of package later has run.
#'
#' Without `service()`, requests are handled by the event loop of package later
#' that was current when the server was started ([later::current_loop()]), and
#' by the global loop once that loop has been destroyed. `service()` handles the
#' requests of all servers, and runs the callbacks of the loop that is current
#' when `service()` is called.
#'
#' A handler may call `service()` or [later::run_now()], so that other handlers
#' run nested within it. At most 20 handlers are nested. In the innermost one,
#' `service()` waits and runs callbacks, but handles no new requests until one
#' of the handlers has returned.
#'
#' @param timeoutMs The maximum time in milliseconds to wait for an event such
#'   as a request. `0` or `Inf` serves until [interrupt()] is called, and `NA`
#'   does not wait.
#' @return `TRUE`. If the server's I/O thread has ended unexpectedly, all
#'   servers are stopped, and an error with the reason is raised.
#' @examples
#' service(NA)
#' @export
service <- function(timeoutMs = if (interactive()) 100 else 1000) {
  if (!.Call(ffi_service, timeoutMs)) {
    raise_failure()
  }
  TRUE
}

# Stops the servers if the I/O thread has ended unexpectedly, and returns the error message; NULL if
# it was returned before.
failure_text <- function() {
  reason <- .Call(ffi_take_failure)
  if (is.null(reason)) {
    return(NULL)
  }
  stopAllServers()
  paste0(
    "rookery: the server's thread has ended (", reason,
    "). Its connections are closed, and all servers are stopped: ",
    "start them again with startServer()"
  )
}

raise_failure <- function() {
  text <- failure_text()
  if (!is.null(text)) abort(text, "rookery_service_failed")
}

# Logs the failure of the I/O thread when only the event loop runs and no caller could handle an
# error.
log_io_failure <- function() {
  text <- failure_text()
  if (!is.null(text)) cat(text, "\n", sep = "", file = stderr())
}

#' Stop serving
#'
#' Makes a running [runServer()] or `service(0)` return after the current
#' handler.
#'
#' @return `TRUE`, invisibly.
#' @examples
#' interrupt()
#' @export
interrupt <- function() {
  .Call(ffi_interrupt)
  invisible(.globals$paused <- TRUE)
}

#' Read the state of R's random number generator
#'
#' Makes R's internal generator read `.Random.seed` from the global environment.
#'
#' @return `NULL`, invisibly.
#' @examples
#' getRNGState()
#' @export
getRNGState <- function() {
  invisible(.Call(ffi_rng_state))
}
