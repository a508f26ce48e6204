# The R functions of a worker of `rookery serve`. src/supervised_worker.c has what the supervisor passed
# to this process.

# Returns whether a server for `app` gets the worker's requests, which the first server with an app
# does. A server without an app is usually one that looks for a free port (as Shiny and probe()
# do) and would respond with 404. Further servers listen on the port that they were given.
takes_worker_requests <- function(app) {
  state <- if (has_app(app)) .Call(ffi_worker_state)
  if (is.character(state)) {
    abort(state, "rookery_no_server", reason = state)
  }
  isTRUE(state)
}

has_app <- function(app) {
  !is.null(app) && !(is.list(app) && length(app) == 0)
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

# Logs that the argument `tls` of the app has no effect in this worker.
ignore_tls <- function(tls) {
  if (!is.null(tls)) {
    cat(
      "rookery: this is ", worker_name(), ", and `tls` is ignored: `rookery serve` handles HTTPS\n",
      sep = "", file = stderr()
    )
  }
}

# The settings that only R applies, or that also apply to further servers of a worker.
settings_of_worker <- c(
  "ws_origins", "ws_compression", "interrupt_requests", "error_detail", "reconnect", "spool_dir"
)

# Logs the settings that the app's code has set and that have no effect, because `rookery serve`
# accepts the connections of this worker.
report_settings_without_effect <- function(limits) {
  limits <- check_limits(limits)
  limit_names <- limit_names()
  for (name in setdiff(c(setting_names(), limit_names), settings_of_worker)) {
    found <- setting_of(name, limits[[name]])
    if (found$origin %in% c("argument", "option")) {
      key <- if (name %in% limit_names) paste0("limits.", name) else name
      cat(
        "rookery: ", found$where, " has no effect in ", worker_name(), ", because `rookery serve` ",
        "accepts the connections: set `", key, "` in `_server.yml`\n",
        sep = "", file = stderr()
      )
    }
  }
}
