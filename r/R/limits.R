# The limits of a server.

#' Limits of the servers of a process
#'
#' `server_limits()` collects limits on what clients may send and on how long
#' operations may take. Pass the result as `limits =` to [startServer()] or
#' [serve()]. The limits apply to all servers of the R process together, for
#' example `max_connections` to the sum of their connections. Each limit can
#' also be set as an R option, as described for [rookery_options()]. Limits that
#' are not given have their defaults.
#'
#' @details
#' Sizes are numbers of bytes, or strings with a unit: `"10 MB"` is ten million
#' bytes, `"10 MiB"` and `"10M"` are 10 * 1024^2 bytes. Times are numbers of
#' seconds, or strings such as `"500 ms"`, `"30 s"`, `"2 min"` and `"1 h"`.
#' `Inf` or `"Inf"` means no limit.
#'
#' All servers of a process have the limits of the first one. Starting a server
#' with other limits while a server runs is an error, or a warning if these
#' limits are set by R options or in the environment.
#'
#' @param ... Must be empty. Any other name of a limit is an error, whose message
#'   suggests a similar one.
#' @eval params_of_settings("server_limits")
#' @return A list of class `rookery_limits` with the given limits, in bytes and
#'   seconds.
#' @examples
#' server_limits(max_body_size = "10 MB", request_timeout = "30 s", max_connections = 500)
#' @seealso [rookery_options()] for the limits in force and where each was set.
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
  given <- Filter(Negate(is.null), fields)
  arguments_of("server_limits()", "rookery_bad_limit", {
    if (...length() > 0) abort_dots(c(...names(), "")[[1]], names(fields))
    given <- checked_arguments("server_limits", given)
  })
  structure(given, class = "rookery_limits")
}

# Checks the argument `limits` of a server: NULL, a list, or the value of server_limits().
check_limits <- function(limits) {
  if (is.null(limits) || inherits(limits, "rookery_limits")) {
    return(limits)
  }
  if (!is.list(limits) || (length(limits) > 0 && is.null(names(limits)))) {
    abort_argument(
      "`limits` must be the value of server_limits() or a named list, not ", describe(limits), ".",
      class = "rookery_bad_limit"
    )
  }
  do.call(server_limits, limits)
}

# ---- values ----

# Formats a limit in a form that server_limits() accepts.
format_limit <- function(value, name) {
  given <- paste(setting_lines(name, value), collapse = "\n")
  cli_read(text_of("settings", name, given))[[paste0("shown:", name)]]
}

#' @export
format.rookery_limits <- function(x, ...) {
  if (length(x) == 0) {
    return("<rookery_limits: all defaults>")
  }
  values <- vapply(names(x), function(name) format_limit(x[[name]], name), "")
  c("<rookery_limits>", paste0("  ", format(names(x)), "  ", values), "  all others are defaults")
}

# ---- in force ----

# Sets the limits of the process from all sources in which they may be given, as setting_of() finds
# them.
apply_limits <- function(limits) {
  found <- resolve_settings(limit_names(), unclass(check_limits(limits)))
  values <- vapply(found, function(it) if (it$origin == "default") NaN else it$value, numeric(1))
  is_set <- .Call(ffi_limits_set, values)
  if (is_set) {
    .globals$limits <- found
    return(invisible())
  }
  is_same <- identical(lapply(.globals$limits, `[[`, "value"), lapply(found, `[[`, "value"))
  if (!is_same && is_asked_for(found)) {
    abort(
      paste0(
        "All servers of a process have the same limits, and a server with other limits runs or ",
        "has just been stopped.\n",
        "Give these limits to the first server, or stop all servers, call service(NA), and start ",
        "the server again."
      ),
      "rookery_bad_limit",
      argument = "limits"
    )
  }
  warn_of_other_limits(found)
}

# Returns whether limits were meant for this server. An option may have been set for another server,
# or after a server was started.
is_asked_for <- function(found) {
  any(vapply(found, `[[`, "", "origin") %in% c("argument", "command line", "_server.yml"))
}

# Warns about limits that are set, in the environment or as options, and that this server does not
# have.
warn_of_other_limits <- function(found) {
  in_force <- .globals$limits[names(found)]
  is_other <- vapply(found, `[[`, "", "origin") != "default" &
    !mapply(function(one, other) identical(one$value, other$value), found, in_force)
  for (name in names(found)[is_other]) {
    warn(
      paste0(
        found[[name]]$where, " has no effect on this server, whose `", name, "` is ",
        in_force[[name]]$shown, ": all servers of a process have the limits of ",
        "the first one. Stop all servers and call service(NA) before you start the server."
      ),
      "rookery_bad_limit"
    )
  }
}

# Returns the seconds after which R code for a request is interrupted; 0 if it is not interrupted.
interrupt_after <- function() {
  seconds <- .globals$limits$request_timeout$value
  if (isTRUE(setting_of("interrupt_requests")$value) && is.finite(seconds)) seconds else 0
}

# Limits the time of R code from now on. Called by src/invocation.c.
limit_time <- function(seconds) {
  setTimeLimit(elapsed = seconds, transient = FALSE)
}
