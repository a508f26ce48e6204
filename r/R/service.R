#' Serve for a while
#'
#' Handles what has arrived, runs the callbacks of package later that are due, and waits for more. Without a call of
#' `service()`, [runServer()] or [later::run_now()] a script serves nothing; an R that idles at its prompt serves by
#' itself.
#'
#' Requests that wait are handled one after the other for up to 5 ms. `service()` returns after each message of a
#' WebSocket, after `interrupt()`, and when a callback of package later has run.
#'
#' @param timeoutMs How long to wait, in milliseconds, for something to happen. `0` or `Inf`: serve until
#'   [interrupt()] is called. `NA`: do not wait.
#' @return `TRUE`.
#' @examples
#' service(NA)
#' @export
service <- function(timeoutMs = if (interactive()) 100 else 1000) {
  .Call(ffi_service, timeoutMs)
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
