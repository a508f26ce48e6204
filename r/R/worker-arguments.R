# Options about workers, which have the same names in R, in `_server.yml` and on the command line.

# Checks the value of an option; NULL if it was not given. `where` names the source in messages.
check_worker_option <- function(value, name, where) {
  if (!is.null(value)) setting_value(value, name, where, "rookery_bad_argument")
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
