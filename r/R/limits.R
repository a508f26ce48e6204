# The limits of a server: their names and defaults are the Rust core's (crates/server/src/config/named.rs).

#' Limits of a server
#'
#' What clients may do, and how long things may take. `server_limits()` checks values and gives them names; servers take them as `limits =`,
#' see [startServer()] and [serve()], and as options, see [rookery_options()]. What is not given is as by default.
#'
#' @details
#' Sizes are numbers of bytes, or strings with a unit: `"10 MB"` is ten million bytes, `"10 MiB"`
#' and `"10M"` are 10 * 1024^2 bytes. Times are seconds, or strings such as
#' `"500 ms"`, `"30 s"`, `"2 min"`, `"1 h"`. `Inf`, or `"Inf"`, is no limit. Rates are bytes a second, `0` asks for none.
#'
#' All servers of a process have one set of limits: that of the first. A server that asks for others while one runs is an error.
#'
#' @eval section_of_settings(
#'   "Further limits", "These are given by name as well, `server_limits(body_buffer_size = \"4 MB\")`.", further_limits(c("stable", "advanced"))
#' )
#' @eval section_of_settings(
#'   "Internal limits",
#'   "They are given by name and may change in any release. The shares of `max_client_memory` are at most 100 percent in all.",
#'   further_limits("internal")
#' )
#'
#' @param ... Further limits by name, see below. The former names of limits are deprecated, see the vignette *From httpuv to
#'   Rookery*. Any other name is an error.
#' @eval params_of_settings("server_limits", further_limits(c("stable", "advanced", "internal"))$name)
#' @return A list of class `rookery_limits` of what was given, in bytes and seconds.
#' @examples
#' server_limits(max_body_size = "10 MB", request_timeout = "30 s", max_connections = 500)
#' @seealso [rookery_options()] for what is in force, and where it came from.
#' @export
server_limits <- function(
  ...,
  max_body_size = NULL,
  request_timeout = NULL,
  idle_timeout = NULL,
  max_connections = NULL,
  max_header_size = NULL,
  header_timeout = NULL,
  max_connections_per_ip = NULL,
  max_queued_requests = NULL,
  max_client_memory = NULL,
  ws_max_message_size = NULL
) {
  fields <- mget(setdiff(names(formals(server_limits)), "..."))
  dots <- list(...)
  if (length(dots) > 0 && !all(nzchar(names(dots) %||% ""))) {
    abort_limit("Each limit must have a name: server_limits(max_body_size = \"10 MB\").", argument = "...")
  }
  given <- Filter(Negate(is.null), c(fields, dots))
  given <- rename_deprecated(given, renamed_limits(), function(name) paste0("`", name, "` of server_limits()"))
  known <- limit_table()$name
  unknown <- setdiff(names(given), known)
  if (length(unknown) > 0) {
    abort_limit("`", unknown[[1]], "` is no limit.", did_you_mean(unknown[[1]], known), argument = unknown[[1]])
  }
  if (anyDuplicated(names(given)) > 0) {
    abort_limit("`", names(given)[duplicated(names(given))][[1]], "` is given twice.")
  }
  limits <- lapply(names(given), function(name) limit_value(given[[name]], name))
  structure(limits, names = names(given), class = "rookery_limits")
}

abort_limit <- function(..., argument = NULL) {
  abort_argument(..., argument = argument, class = "rookery_bad_limit")
}

# ---- names ----

# The former names of limits, and the names that they have now.
renamed_limits <- function() {
  renamed_settings(setting_table[setting_table$is_limit, ])
}

# Returns the names of limits for those of the core (crates/server/src/config/named.rs), which has former names.
limit_name <- function(core) {
  renamed <- core %in% names(renamed_limits())
  core[renamed] <- renamed_limits()[core[renamed]]
  core
}

# `limits =` of a server: NULL, a list, or what server_limits() made.
check_limits <- function(limits) {
  if (is.null(limits) || inherits(limits, "rookery_limits")) {
    return(limits)
  }
  if (!is.list(limits) || (length(limits) > 0 && is.null(names(limits)))) {
    abort_limit("`limits` must be made by server_limits(), or be a list with names, not ", describe(limits), ".")
  }
  do.call(server_limits, limits)
}

# ---- values ----

limit_kinds <- c("count", "bytes", "seconds", "rate", "percent")

# A data frame of name, kind, the least and the default.
limit_table <- function() {
  if (is.null(.globals$limit_table)) {
    parts <- .Call(ffi_limits)
    .globals$limit_table <- data.frame(
      name = limit_name(parts[[1]]), kind = limit_kinds[parts[[2]] + 1L], least = parts[[3]], default = parts[[4]], stringsAsFactors = FALSE
    )
  }
  .globals$limit_table
}

# The number that a value of a limit's stands for; `where` it was found, for what is said of it.
limit_value <- function(value, name, where = paste0("`", name, "`")) {
  setting_value(value, name, where, c("rookery_bad_limit", "rookery_bad_argument"))
}

# As a person reads it, and as server_limits() takes it.
format_limit <- function(value, kind) {
  if (is.nan(value)) {
    return("a quarter of what there is")
  }
  if (is.infinite(value)) {
    return("Inf")
  }
  in_units <- function(units) {
    # The largest that leaves a short number.
    fits <- vapply(units, function(unit) value >= unit && abs(value / unit * 100 - round(value / unit * 100)) < 1e-9, NA)
    if (value == 0 || !any(fits)) return(NULL)
    unit <- names(units)[fits][[1]]
    paste(format(value / units[[unit]], scientific = FALSE), unit)
  }
  plain <- format(value, scientific = FALSE, trim = TRUE, digits = 15)
  binary <- c(TiB = 1024^4, GiB = 1024^3, MiB = 1024^2, KiB = 1024)
  decimal <- c(TB = 1e12, GB = 1e9, MB = 1e6, KB = 1e3)
  switch(
    kind,
    bytes = if (value %% 1024 == 0) in_units(binary) %||% plain else in_units(decimal) %||% plain,
    seconds = in_units(c(h = 3600, min = 60, s = 1, ms = 0.001)) %||% paste(plain, "s"),
    rate = paste(plain, "bytes/s"),
    percent = paste(plain, "%"),
    plain
  )
}

#' @export
format.rookery_limits <- function(x, ...) {
  table <- limit_table()
  if (length(x) == 0) {
    return("<rookery_limits: all as by default>")
  }
  values <- vapply(names(x), function(name) format_limit(x[[name]], table$kind[table$name == name]), "")
  c("<rookery_limits>", paste0("  ", format(names(x)), "  ", values), "  all others as by default")
}

#' @export
print.rookery_limits <- function(x, ...) {
  cat(format(x), sep = "\n")
  invisible(x)
}

# ---- in force ----

# Sets the limits of the process, from all places that they may be given in: see setting_of().
apply_limits <- function(limits) {
  limits <- check_limits(limits)
  table <- limit_table()
  found <- lapply(table$name, function(name) setting_of(name, limits[[name]]))
  values <- vapply(found, function(it) if (it$origin == "default") NaN else it$value, numeric(1))
  check_shares(ifelse(is.nan(values), table$default, values), table)
  is_set <- .Call(ffi_limits_set, values)
  if (is_set) {
    .globals$limits <- set_names(found, table$name)
  } else if (is_asked_for(found) && !identical(lapply(.globals$limits, `[[`, "value"), set_names(lapply(found, `[[`, "value"), table$name))) {
    abort(
      paste0(
        "The servers of a process share their limits, and one runs, or has just been stopped, with others.\n",
        "Give the first one these limits, or stop all of them, run service(NA), and start anew."
      ),
      "rookery_bad_limit",
      argument = "limits"
    )
  }
}

# Whether some are meant for this server: an option may be another one's, or come too late.
is_asked_for <- function(found) {
  any(vapply(found, `[[`, "", "origin") %in% c("argument", "command line", "_server.yml"))
}

check_shares <- function(values, table) {
  total <- sum(values[startsWith(table$name, "share_")])
  if (total > 100) {
    abort(paste0("The shares of `max_client_memory` are ", total, " % in all: they must be 100 % at most."), "rookery_bad_limit", argument = "limits")
  }
}

# Seconds that a request may take in R, if R is to be interrupted after them; 0: as many as it takes.
interrupt_after <- function() {
  seconds <- .globals$limits$request_timeout$value
  if (isTRUE(setting_of("interrupt_requests")$value) && is.finite(seconds)) seconds else 0
}

# See src/invocation.c.
limit_time <- function(seconds) {
  setTimeLimit(elapsed = seconds, transient = FALSE)
}
