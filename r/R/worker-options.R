# Options about workers: they have the same names in R, in YAML and on the command line.

worker_kinds <- c(
  workers = "workers", spares = "spares", warmup = "paths", max_sessions = "count", max_requests = "count", max_age = "time",
  max_memory = "size", request_timeout = "time", kill_stuck = "time", start_timeout = "time", start_retries = "spares",
  restart = "restart", drain = "time", drain_sessions = "time",
  sticky = "sticky", name = "name", admin = "address", embed = "flag", reload = "flag", shutdown_delay = "time",
  min_ready = "count", drain_status = "status", fail_fast = "flag", retry_begun = "flag", surge = "surge", max_in_flight = "count",
  queue_timeout = "time", keep_half_closed = "flag"
)
worker_option_names <- names(worker_kinds)

worker_wants <- c(
  workers = "\"auto\", or a whole number from 1 to 1000", spares = "a whole number from 0 to 1000",
  paths = "one or more paths that begin with / and have no spaces", count = "a whole number from 1 on",
  time = "a time, such as \"30s\", \"5min\" or \"12h\", or a number of seconds",
  size = "a size with its unit, such as \"500MB\" or \"2GB\", or 0 for no limit", sticky = "\"auto\", \"cookie\" or \"none\"",
  restart = "\"always\" or \"never\"",
  name = "1 to 64 letters, digits, `-`, `_` or `.`", address = "an address such as \"127.0.0.1:9100\", or \"unix:/path/of/a/socket\"", flag = "TRUE or FALSE",
  status = "503 or 404", surge = "1 or 0"
)

# The least `max_memory`: no R process can work with less, so a smaller number is one whose unit was
# forgotten.
least_memory <- 2^20

# Checks the value of an option, NULL for one that was not given. Messages name `where` it was
# given.
check_worker_option <- function(value, name, where) {
  kind <- worker_kinds[[name]]
  if (!is.null(value) && !is_worker_value(value, kind)) {
    abort_argument(where, " must be ", worker_wants[[kind]], ", not ", describe(value), ".")
  }
}

is_worker_value <- function(value, kind) {
  if (kind == "flag") {
    return(!is.na(flag_of(value)))
  }
  is_plain <- (is.numeric(value) || is.character(value)) && !is.object(value) && length(value) > 0 && !anyNA(value)
  if (!is_plain || (length(value) > 1 && kind != "paths")) {
    return(FALSE)
  }
  number <- suppressWarnings(as.numeric(value))
  is_whole <- function(from, to) !anyNA(number) && number >= from && number <= to && number == trunc(number)
  text <- plain_text(value)
  switch(
    kind,
    workers = text == "auto" || is_whole(1, 1000),
    spares = is_whole(0, 1000),
    count = is_whole(1, 2^53),
    time = isTRUE(is.finite(amount <- read_limit(value, "seconds"))) && amount >= 0.001,
    size = text == "0" || (isTRUE(is.finite(amount <- read_limit(value, "bytes"))) && amount >= least_memory),
    paths = all(grepl("^/[!-~]*$", parts <- split_at_commas(text)) & !grepl("#", parts, fixed = TRUE)) && length(parts) > 0,
    restart = text %in% c("always", "never"),
    sticky = text %in% c("auto", "cookie", "none"),
    status = text %in% c("503", "404"),
    surge = text %in% c("1", "0"),
    name = grepl("^[A-Za-z0-9._-]{1,64}$", text),
    nzchar(text)
  )
}

# Returns `workers` of serve() as workers_config() does; NULL where no workers are requested, and this
# session's own R process serves.
check_workers <- function(workers) {
  if (is.null(workers) || inherits(workers, "rookery_workers")) {
    return(workers)
  }
  if (!is_worker_value(workers, "workers")) {
    abort(
      paste0("`workers` must be ", worker_wants[["workers"]], ", or made by workers_config(), not ", describe(workers), "."),
      c("rookery_bad_workers", "rookery_bad_argument")
    )
  }
  workers_config(workers)
}

# Returns checked options as command-line arguments.
words_of_workers <- function(fields) {
  words <- lapply(names(fields), function(name) {
    value <- fields[[name]]
    if (is.null(value)) {
      return(NULL)
    }
    if (worker_kinds[[name]] == "flag") {
      return(if (flag_of(value)) option_of(name))
    }
    unit <- if (worker_kinds[[name]] == "size" && is.numeric(value) && value > 0) "B"
    word_of(name, paste0(paste(plain_text(value), collapse = ","), unit))
  })
  unlist(words)
}
