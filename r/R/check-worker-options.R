# Options about workers: they have the same names in R, in YAML and on the command line.

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
