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
#' @section Requests:
#' * `head_bytes`, `header_lines`: of a request's head; past that 431. More than 24,576 lines are never taken.
#' * `stream_head_bytes`: of a head over HTTP/2, with 32 for each line; past that 431. `streams`: requests of one of its connections at a time.
#' * `body_bytes`: of its body; past that 413. No limit by default, as with httpuv.
#' * `body_memory`: of a body that is kept in memory; a longer one lies in a file.
#' * `disk_reserve`, `disk_share`: what such a file must leave free, in bytes, and at most one part of so many of its file system; past that 507.
#' * `handshake_time`: for TLS, and `handshakes` at once; `head_time`: for a head, 408 past that.
#' * `head_rate`, `head_grace`: how fast a head has to come, and how long it may stand still; `body_rate`, and `reply_rate` at which a reply has to be
#'   read.
#' * `idle_time`: how long a connection may be idle, and a body or a reply make no progress.
#' * `request_time`: how long the app may take to answer; past that 504. No limit by default. R goes on with what it does, unless the option
#'   `rookery.interrupt_requests` is `TRUE`: then what it does for the request ends with R's error of [setTimeLimit()].
#' * `queue_requests`: that wait for R; past that 503.
#'
#' @section Connections and memory:
#' * `connections`, and `per_address` for one client's.
#' * `memory`: all that clients can make the server hold; by default a quarter of what the process may use. It is split into shares in percent, which
#'   are 100 at most in all: `share_connections`, `share_requests`, `share_messages`, `share_waiting`, `share_queues`, `share_replies`,
#'   `share_compressors`. `pool_bytes` is kept for reuse.
#' * `stop_time`: how long `$stop()` waits for replies that are on their way.
#'
#' @section WebSockets and streams:
#' * `message_bytes`: of one message; past that it is closed with code 1009. `message_rate`, `stall_time`: how fast one has to come and to be read, and
#'   how long its client may stand still.
#' * `socket_queue`, `stream_queue`: bytes that may wait to be sent to one client of a WebSocket, or of a response in pieces.
#' * `queue_messages`, `queue_bytes`: messages that wait for R; past that no more are read.
#' * `ping_time`: how often a silent WebSocket is sent a ping; `pong_time`: how long it may be silent after one; `close_time`: for the answer to a close.
#' * `kept_windows`: WebSockets at once whose compressed messages may refer back to earlier ones, see `wsCompression` in [startServer()].
#'
#' @param ... Nothing: a limit with a name that there is none of is an error.
#' @param head_bytes,header_lines,body_bytes,body_memory,disk_reserve,disk_share,handshake_time,handshakes,head_time,head_rate,head_grace See below.
#' @param stream_head_bytes,streams See below.
#' @param body_rate,reply_rate,idle_time,request_time,connections,per_address,message_bytes,socket_queue,message_rate,stall_time See below.
#' @param ping_time,pong_time,kept_windows,close_time,memory,share_connections,share_requests,share_messages,share_waiting,share_queues,share_replies See below.
#' @param share_compressors,pool_bytes,stop_time,queue_requests,queue_messages,queue_bytes,stream_queue See below.
#' @return A list of class `rookery_limits` of what was given, in bytes and seconds.
#' @examples
#' server_limits(body_bytes = "10 MB", request_time = "30 s", connections = 500)
#' @seealso [rookery_options()] for what is in force, and where it came from.
#' @export
server_limits <- function(..., head_bytes = NULL, header_lines = NULL, stream_head_bytes = NULL, streams = NULL, body_bytes = NULL,
                          body_memory = NULL, disk_reserve = NULL,
                          disk_share = NULL, handshake_time = NULL, handshakes = NULL, head_time = NULL, head_rate = NULL, head_grace = NULL,
                          body_rate = NULL, reply_rate = NULL, idle_time = NULL, request_time = NULL, connections = NULL,
                          per_address = NULL, message_bytes = NULL, socket_queue = NULL, message_rate = NULL, stall_time = NULL,
                          ping_time = NULL, pong_time = NULL, kept_windows = NULL, close_time = NULL, memory = NULL,
                          share_connections = NULL, share_requests = NULL,
                          share_messages = NULL, share_waiting = NULL, share_queues = NULL, share_replies = NULL,
                          share_compressors = NULL, pool_bytes = NULL, stop_time = NULL, queue_requests = NULL,
                          queue_messages = NULL, queue_bytes = NULL, stream_queue = NULL) {
  known <- setdiff(names(formals(server_limits)), "...")
  if (...length() > 0) {
    name <- c(...names(), "")[[1]]
    if (!nzchar(name)) {
      abort_argument("Each limit must have a name: server_limits(body_bytes = \"10 MB\").", argument = "...", class = "rookery_bad_limit")
    }
    abort_argument("`", name, "` is no limit.", did_you_mean(name, known), class = "rookery_bad_limit")
  }
  given <- Filter(Negate(is.null), mget(known))
  limits <- lapply(names(given), function(name) limit_value(given[[name]], name))
  structure(limits, names = names(given), class = "rookery_limits")
}

# `limits =` of a server: NULL, a list, or what server_limits() made.
check_limits <- function(limits) {
  if (is.null(limits) || inherits(limits, "rookery_limits")) {
    return(limits)
  }
  if (!is.list(limits) || (length(limits) > 0 && is.null(names(limits)))) {
    abort_argument(
      "`limits` must be made by server_limits(), or be a list with names, not ", describe(limits), ".",
      class = "rookery_bad_limit"
    )
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
      name = parts[[1]], kind = limit_kinds[parts[[2]] + 1L], least = parts[[3]], default = parts[[4]], stringsAsFactors = FALSE
    )
  }
  .globals$limit_table
}

limit_units <- list(
  bytes = c(B = 1, K = 1024, M = 1024^2, G = 1024^3, T = 1024^4, KB = 1e3, MB = 1e6, GB = 1e9, TB = 1e12, KIB = 1024, MIB = 1024^2, GIB = 1024^3, TIB = 1024^4),
  seconds = c(MS = 0.001, S = 1, SEC = 1, SECONDS = 1, MIN = 60, MINUTES = 60, H = 3600, HOURS = 3600, D = 86400, DAYS = 86400)
)

limit_examples <- c(
  count = "a whole number, or Inf", bytes = "a number of bytes, such as 1e6 or \"10 MB\", or Inf",
  seconds = "a number of seconds, such as 30 or \"2 min\", or Inf", rate = "a number of bytes a second, such as 512",
  percent = "a whole number of percent, from 1 to 100"
)

# The number that a value of a limit's stands for; `where` it was found, for what is said of it.
limit_value <- function(value, name, where = paste0("`", name, "`")) {
  row <- limit_table()[limit_table()$name == name, ]
  number <- read_limit(value, row$kind)
  whole <- row$kind %in% c("count", "percent", "rate")
  is_wrong <- is.na(number) || number < row$least || (row$kind == "percent" && number > 100) ||
    (whole && is.finite(number) && number != trunc(number)) || (row$kind %in% c("percent", "rate") && !is.finite(number))
  if (is_wrong) {
    least <- if (!is.na(number) && number < row$least) paste0(", and at least ", format_limit(row$least, row$kind)) else ""
    abort_argument(
      where, " must be ", limit_examples[[row$kind]], least, ", not ", describe(value), ".",
      argument = name, class = "rookery_bad_limit"
    )
  }
  # What is no whole number of bytes is cut.
  if (row$kind == "bytes") trunc(number) else number
}

# NA for what is none.
read_limit <- function(value, kind) {
  if (is.numeric(value) && length(value) == 1) {
    return(as.numeric(value))
  }
  if (!is.character(value) || length(value) != 1 || is.na(value)) {
    return(NA_real_)
  }
  if (!validUTF8(value)) {
    return(NA_real_)
  }
  # Not toupper(): Turkish has another great i.
  text <- chartr(paste(letters, collapse = ""), paste(LETTERS, collapse = ""), trimws(value))
  if (text %in% c("INF", ".INF", "NONE")) {
    return(Inf)
  }
  parts <- regmatches(text, regexec("^([0-9]+[.]?[0-9]*(E[0-9]+)?)[ _]*([A-Z%/]*)$", text))[[1]]
  if (length(parts) == 0) {
    return(NA_real_)
  }
  units <- switch(kind, bytes = limit_units$bytes, rate = limit_units$bytes, seconds = limit_units$seconds, percent = c("%" = 1))
  unit <- if (kind == "rate") sub("/S$", "", parts[[4]]) else parts[[4]]
  factor <- if (nzchar(unit)) units[unit] else 1
  if (length(factor) == 1) as.numeric(parts[[2]]) * factor[[1]] else NA_real_
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
    abort(paste0("The shares of `memory` are ", total, " % in all: they must be 100 % at most."), "rookery_bad_limit", argument = "limits")
  }
}

# Seconds that a request may take in R, if R is to be interrupted after them; 0: as many as it takes.
interrupt_after <- function() {
  seconds <- .globals$limits$request_time$value
  if (isTRUE(setting_of("interrupt_requests")$value) && is.finite(seconds)) seconds else 0
}

# See src/app.c.
limit_time <- function(seconds) {
  setTimeLimit(elapsed = seconds, transient = FALSE)
}
