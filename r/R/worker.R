# This R process as a worker of `rookery serve`: src/worker.c knows what its supervisor has given it.

# Whether a server for `app` is to listen on the socket of this worker: the first one that has an app. One without is somebody who looks
# for a free port (Shiny and probe() do so), and would answer requests with 404 meanwhile; a second one gets the port that it asks for.
takes_worker_socket <- function(app) {
  has_app <- !is.null(app) && !(is.list(app) && length(app) == 0)
  state <- if (has_app) .Call(ffi_worker_state)
  if (is.character(state)) {
    abort(state, "rookery_no_server", reason = state)
  }
  isTRUE(state)
}

is_worker <- function() {
  !is.null(.Call(ffi_worker_state))
}

# Returns whether this process is the only worker: what it serves is then said by its supervisor alone.
is_only_worker <- function() {
  is_worker() && identical(Sys.getenv("ROOKERY_WORKER_COUNT"), "1")
}

# "worker 2": the number that logs, status and metrics have, from 0.
worker_name <- function() {
  paste("worker", Sys.getenv("ROOKERY_WORKER", "?"))
}

# Whether the app keeps something for each client between its requests, so that they have to come to the same R: Shiny's sessions.
keeps_clients <- function() {
  isNamespaceLoaded("shiny") && isTRUE(shiny::isRunning())
}

# Returns what HTTPS is spoken with by a worker that accepts connections itself: what its supervisor has been given. What the app
# asks for is not used, which is said because it may have been meant.
tls_of_supervisor <- function(tls) {
  own <- .globals$tls$tls
  if (!is.null(tls) && !identical(tls, own)) {
    cat(
      "rookery: this is ", worker_name(), ", and `tls` is not used: HTTPS is for `rookery serve` to speak\n",
      sep = "", file = stderr()
    )
  }
  own
}
