# Options about workers, which have the same names in R, in `_server.yml` and on the command line.

#' Several R processes
#'
#' Creates the value of `workers` for [serve()]: how many R processes serve a
#' path on one address, and when they are replaced. Workers need Linux.
#'
#' The same options exist on the command line
#' (`rookery serve app/ --workers 4 --max-age 12h`) and among the `options:` of
#' a `_server.yml` with `engine: rookery` (`workers: 4`, `max_age: 12h`). Times
#' are seconds, or strings such as `"30s"`, `"5min"` and `"12h"`; sizes are
#' bytes, or strings such as `"2GB"`.
#'
#' @section Lifecycle:
#' Experimental: arguments and behaviour may change in any release.
#'
#' @param workers The number of R processes (workers) that serve the app, or
#'   `"auto"` for one per processor.
#' @param ... Must be empty. The arguments that follow `...` must be given by
#'   name.
#' @eval params_of_settings("workers_config")
#' @return An object of class `rookery_workers`, for the argument `workers` of
#'   [serve()].
#' @examples
#' workers_config(4, max_memory = "2GB", worker_timeout = "5min")
#' @export
workers_config <- function(
  workers = "auto",
  ...,
  spares = NULL,
  warmup = NULL,
  max_sessions = NULL,
  max_requests = NULL,
  max_age = NULL,
  max_memory = NULL,
  worker_timeout = NULL,
  slow_log = NULL,
  start_timeout = NULL,
  start_retries = NULL,
  restart = NULL,
  drain = NULL,
  drain_sessions = NULL,
  sticky = NULL,
  embed = NULL,
  reload = NULL,
  shutdown_delay = NULL,
  fail_fast = NULL,
  surge = NULL,
  max_in_flight = NULL,
  queue_timeout = NULL
) {
  fields <- mget(setdiff(names(formals(workers_config)), "..."))
  arguments_of("workers_config()", "rookery_bad_workers", {
    if (...length() > 0) abort_dots(c(...names(), "")[[1]], names(fields)[-1])
    setting_value(workers, "workers", "`workers`", "rookery_bad_argument")
    checked_arguments("workers_config", fields[-1])
  })
  structure(Filter(Negate(is.null), fields), class = "rookery_workers")
}

#' @export
format.rookery_workers <- function(x, ...) {
  others <- x[names(x) != "workers"]
  lines <- vapply(
    names(others), function(name) paste0("  ", name, ": ", paste(others[[name]], collapse = ", ")),
    ""
  )
  c(paste0("<workers: ", x$workers, ">"), lines)
}

# Converts the argument `workers` of serve() to the form of workers_config(). Returns NULL if this
# session's own R process serves, without workers.
check_workers <- function(workers) {
  if (is.null(workers) || inherits(workers, "rookery_workers")) {
    return(workers)
  }
  setting_value(workers, "workers", "`workers`", c("rookery_bad_workers", "rookery_bad_argument"))
  workers_config(workers)
}
