# Options about workers: they have the same names in R, in YAML and on the command line.

worker_option_names <- c(
  "workers", "spares", "warmup", "max_sessions", "max_requests", "max_age", "max_memory", "request_timeout", "worker_timeout", "start_timeout",
  "start_retries", "restart", "drain", "drain_sessions", "sticky", "cookie_suffix", "admin", "embed", "reload", "shutdown_delay", "min_ready", "drain_status",
  "fail_fast", "retry_safe_methods", "surge", "max_in_flight", "queue_timeout", "keep_half_closed"
)
worker_flags <- c("embed", "reload", "fail_fast", "retry_safe_methods", "keep_half_closed")

renamed_worker_options <- c(kill_stuck = "worker_timeout", name = "cookie_suffix", retry_begun = "retry_safe_methods")

# Checks the value of an option, NULL for one that was not given. Messages name `where` it was
# given.
check_worker_option <- function(value, name, where) {
  if (!is.null(value)) setting_value(value, name, where, "rookery_bad_argument")
}

# Returns `workers` of serve() as workers_config() does; NULL where no workers are requested, and this
# session's own R process serves.
check_workers <- function(workers) {
  if (is.null(workers) || inherits(workers, "rookery_workers")) {
    return(workers)
  }
  setting_value(workers, "workers", "`workers`", c("rookery_bad_workers", "rookery_bad_argument"))
  workers_config(workers)
}

# Returns checked options as lines for the program.
lines_of_workers <- function(fields) {
  lines <- lapply(names(fields), function(name) {
    if (name %in% worker_flags) line_of_flag(name, fields[[name]]) else lines_of(name, fields[[name]])
  })
  unlist(lines)
}
