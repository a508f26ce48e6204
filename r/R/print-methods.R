# Print methods. Each prints one line without contacting the server, and never raises an error, also
# for an object of another session.

#' @export
format.rookery_stream <- function(x, ...) {
  format_source(x$body, class(x)[[1]])
}

#' @export
format.rookery_source <- function(x, ...) {
  format_source(x, if (isTRUE(x$is_events)) "rookery_events" else "rookery_stream")
}

#' @export
format.Server <- function(x, ...) {
  if (!is_of_this_package(x)) {
    return(NextMethod())
  }
  private <- x$.__enclos_env__$private
  where <- if (inherits(x, "PipeServer")) {
    paste0("unix:", x$getName() %||% "?")
  } else {
    host <- x$getHost() %||% "?"
    paste0(
      if (private$is_https) "https://" else "http://",
      if (grepl(":", host, fixed = TRUE)) paste0("[", host, "]") else host, ":", x$getPort()
    )
  }
  state <- if (private$running && !private$is_restored() && !private$is_here()) {
    elsewhere
  } else {
    "stopped"
  }
  if (x$isRunning()) {
    handle <- as.integer(private$handle)
    sockets <- length(.Call(ffi_websockets, handle))
    as_worker <- if (.Call(ffi_worker_serves, handle)) paste0(" as ", worker_name())
    state <- paste0(
      "running", as_worker, ", ", counted(.Call(ffi_connections, handle), "connection"),
      if (sockets > 0) paste0(", ", counted(sockets, "WebSocket"))
    )
  }
  paste0("<", class(x)[[1]], " ", where, ": ", state, ">")
}

#' @export
print.Server <- function(x, ...) {
  if (is_of_this_package(x)) print_lines(x) else NextMethod()
}

#' @export
format.WebSocket <- function(x, ...) {
  if (!is_of_this_package(x)) {
    return(NextMethod())
  }
  number <- handle_number(x$handle)
  state <- if (is.null(x$handle)) "closed" else if (is.na(number)) elsewhere else "open"
  request <- x$request
  path <- if (is.environment(request)) encodeString(paste0(request$PATH_INFO, request$QUERY_STRING))
  peer <- if (is.environment(request) && !is.null(request$REMOTE_ADDR)) {
    paste0(request$REMOTE_ADDR, ":", request$REMOTE_PORT)
  }
  details <- c(
    state, if (length(path) == 1) path, if (length(peer) == 1) paste("from", encodeString(peer))
  )
  paste0(
    "<WebSocket", if (!is.na(number)) paste0(" ", format(number, scientific = FALSE)), ": ",
    paste(details, collapse = ", "), ">"
  )
}

#' @export
print.WebSocket <- function(x, ...) {
  if (is_of_this_package(x)) print_lines(x) else NextMethod()
}

#' @export
format.WebSocketClient <- function(x, ...) {
  core <- x$.__enclos_env__$private$core
  waiting <- if (core$state %in% 1:2 && !is.na(handle_number(core$handle))) {
    x$bufferedAmount()
  } else {
    0
  }
  details <- c(
    if (core$state < 3L && !is.null(core$handle) && is.na(handle_number(core$handle))) {
      elsewhere
    } else {
      client_states[[core$state + 1L]]
    },
    if (nzchar(core$protocol)) paste("protocol", encodeString(core$protocol)),
    if (waiting > 0) paste(format_bytes(waiting), "waiting")
  )
  paste0(
    "<WebSocketClient ", encodeString(core$setup[[1]]), ": ", paste(details, collapse = ", "), ">"
  )
}

# ---- helpers ----

elsewhere <- "of another R process"

# Returns whether an object is of this package, because other packages use the same class names.
is_of_this_package <- function(x) {
  enclosing <- x$.__enclos_env__
  is.environment(enclosing) && environmentName(topenv(enclosing)) == "rookery"
}

#' Prints the lines of format(): the print method of most classes.
#'
#' @rawNamespace
#' S3method(print, WebSocketClient, print_lines)
#' S3method(print, rookery_accept_ws, print_lines)
#' S3method(print, rookery_limits, print_lines)
#' S3method(print, rookery_receiver, print_lines)
#' S3method(print, rookery_source, print_lines)
#' S3method(print, rookery_stream, print_lines)
#' S3method(print, rookery_tls, print_lines)
#' S3method(print, rookery_which, print_lines)
#' S3method(print, rookery_workers, print_lines)
#' S3method(print, staticPath, print_lines)
#' S3method(print, staticPathOptions, print_lines)
#' @noRd
print_lines <- function(x, ...) {
  writeLines(format(x, ...))
  invisible(x)
}

# Returns the number of a WebSocket or stream, which the server counts. NA for no handle, or for one
# of another process.
handle_number <- function(handle) {
  if (is.null(handle)) NA_real_ else .Call(ffi_handle_number, handle)
}

format_source <- function(source, class) {
  number <- handle_number(source$handle)
  sizes <- if (is.null(source$handle)) {
    c(sum(source$early_bytes), sum(source$early_bytes), sum(source$early_count))
  } else if (is.na(number)) {
    rep(NA_real_, 3)
  } else {
    .Call(ffi_stream_state, source)
  }
  state <- if (!is.null(source$reason)) {
    paste0("over (", source$reason, ")")
  } else if (is.null(source$handle)) {
    "not yet a response"
  } else if (is.na(number)) {
    elsewhere
  } else if (isTRUE(source$is_ended)) {
    "ended"
  } else if (is.na(sizes[[1]])) {
    "over"
  } else {
    "open"
  }
  if (is.null(source$reason) && !is.na(sizes[[1]])) {
    given <- if (sizes[[3]] > 0) c(counted(sizes[[3]], "chunk"), format_bytes(sizes[[2]]))
    state <- paste(c(state, given, paste(format_bytes(sizes[[1]]), "waiting")), collapse = ", ")
  }
  paste0(
    "<", class, if (!is.na(number)) paste0(" ", format(number, scientific = FALSE)), ": ", state,
    ">"
  )
}

counted <- function(n, what) {
  paste0(format(n, big.mark = ",", scientific = FALSE), " ", what, if (n != 1) "s")
}

format_bytes <- function(n) {
  format(structure(n, class = "object_size"), units = "auto", standard = "SI")
}
