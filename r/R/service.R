#' Serve for a while
#'
#' Handles what has arrived, runs the callbacks of package later that are due, and waits for more. Without a call of
#' `service()`, [runServer()] or [later::run_now()] a script serves nothing; an R that idles at its prompt serves by
#' itself.
#'
#' Requests that wait are handled one after the other for up to 1 ms. `service()` returns after each message of a
#' WebSocket, after `interrupt()`, and when a callback of package later has run.
#'
#' Without `service()`, requests are handled by the event loop of package later that was current when the server was started
#' ([later::current_loop()]), and by the global loop once that loop has been destroyed. `service()`
#' handles the requests of all servers, and runs the callbacks of the loop that is current when
#' `service()` is called.
#'
#' A handler may call `service()` or [later::run_now()], and so other handlers may run nested within
#' that handler. At most 20 handlers are nested: in the innermost, `service()` waits and runs
#' callbacks, and does not handle new requests until one of the handlers has returned.
#'
#' @param timeoutMs How long to wait, in milliseconds, for something to happen. `0` or `Inf`: serve until
#'   [interrupt()] is called. `NA`: do not wait.
#' @return `TRUE`. When the server's own thread has died it is an error that says why: all servers are stopped then.
#' @examples
#' service(NA)
#' @export
service <- function(timeoutMs = if (interactive()) 100 else 1000) {
  if (!.Call(ffi_service, timeoutMs)) {
    raise_failure()
  }
  TRUE
}

# What to say of an I/O thread that has ended, whose servers are stopped here; NULL when it has been said.
failure_text <- function() {
  reason <- .Call(ffi_take_failure)
  if (is.null(reason)) {
    return(NULL)
  }
  stopAllServers()
  paste0(
    "rookery: the server's thread has ended (", reason, "). Its connections are closed, and all servers are stopped: ",
    "start them again with startServer()"
  )
}

raise_failure <- function() {
  text <- failure_text()
  if (!is.null(text)) abort(text, "rookery_service_failed")
}

# Where only the event loop runs, which has nobody to raise it to.
log_io_failure <- function() {
  text <- failure_text()
  if (!is.null(text)) cat(text, "\n", sep = "", file = stderr())
}

#' Stop serving
#'
#' Makes a running [runServer()] or `service(0)` return, after the handler that calls this.
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
#' Makes R's internal generator take over `.Random.seed` from the global environment.
#'
#' @return `NULL`, invisibly.
#' @examples
#' getRNGState()
#' @export
getRNGState <- function() {
  invisible(.Call(ffi_rng_state))
}
