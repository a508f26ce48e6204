# The R functions of a worker of `rookery serve`. src/supervised_worker.c has what the supervisor passed
# to this process.

# Returns whether a server for `app` gets the worker's requests, which the first server with an app
# does. A server without an app is usually one that looks for a free port (as Shiny and probe()
# do) and would respond with 404. Further servers listen on the port that they were given.
takes_worker_requests <- function(app) {
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

# Returns whether this process is the only worker. Its supervisor then shows what is served.
is_only_worker <- function() {
  is_worker() && identical(Sys.getenv("ROOKERY_WORKER_COUNT"), "1")
}

# Returns "worker 2"; logs, status and metrics use the same number, which starts at 0.
worker_name <- function() {
  paste("worker", Sys.getenv("ROOKERY_WORKER", "?"))
}

# Returns whether the app keeps state for each client between requests, so that clients need session
# affinity. Shiny does.
keeps_clients <- function() {
  isNamespaceLoaded("shiny") && isTRUE(shiny::isRunning())
}

# Returns the TLS configuration for a worker that accepts connections itself, which is the
# supervisor's. The `tls` argument of the app is not used, with a message because it may have been
# intended.
tls_of_supervisor <- function(tls) {
  own <- .globals$tls$tls
  if (!is.null(tls) && !identical(tls, own)) {
    cat(
      "rookery: this is ", worker_name(), ", and `tls` is ignored: `rookery serve` handles HTTPS\n",
      sep = "", file = stderr()
    )
  }
  own
}
