# Server-sent events (HTML standard, 9.2): streamed responses whose chunks are events.

#' Server-sent events
#'
#' Server-sent events let a server push messages to a web page over plain HTTP.
#' A page subscribes with `new EventSource("/prices")`, and the browser
#' reconnects by itself when the connection is lost. `sse_response()` creates a
#' response that the app sends events to (push). `sse_body()` creates one whose
#' events are returned by a function or generator (pull). `sse_event()` formats
#' one event as text.
#'
#' @details
#' The object that `sse_response()` returns has the methods of a
#' [stream_response()], and one more:
#' * `$send(data, ..., event = NULL, id = NULL, retry = NULL)` sends an event.
#'   It returns `TRUE` or `FALSE` as `$write()` does.
#'
#' If no event was sent for `heartbeat` seconds, the server sends a comment
#' without calling R, because proxies close silent connections (nginx after a
#' minute). When the server stops, event streams are closed, and clients are
#' asked to reconnect after 3 to 8 seconds.
#'
#' When a client reconnects, `req$HTTP_LAST_EVENT_ID` has the last event id that
#' it received. Check this value before you use it, because clients can send any
#' text. A response with status 204 tells the browser to stop reconnecting.
#' While the queue of requests is full, and while the server stops, clients that
#' accept events get a response that makes them retry after 5 seconds, because a
#' browser would not retry after status 503.
#'
#' Over HTTP/1.1 a browser opens at most six connections to a server, shared by
#' all tabs, and each event stream takes one of them. A seventh page would have
#' to wait. Use at most one stream for each page, share it between tabs
#' (`SharedWorker`), or serve HTTPS, with which browsers use HTTP/2 and have no
#' such limit.
#'
#' @param data The data of the event: strings, each of which becomes a line, or
#'   a list, which is converted to JSON by package jsonlite. `NULL` creates an
#'   event without data, which browsers do not deliver to the page.
#' @param event The name of the event. A page receives named events with
#'   `addEventListener(name, ...)`, and events without a name with `onmessage`.
#' @param id The event id, which a client sends as `Last-Event-ID` when it
#'   reconnects.
#' @param retry The delay in milliseconds after which clients reconnect to the
#'   event stream when the connection was lost.
#' @param comment A comment in the event stream, which clients ignore.
#' @param ... Must be empty. The arguments that follow `...` must be given by
#'   name.
#' @return `sse_event()` returns a string of class `rookery_sse_event`, which is
#'   printed as the lines that the client receives. `sse_response()` and
#'   `sse_body()` return a response.
#' @examples
#' cat(sse_event("the price is\n42", event = "price", id = "7"))
#'
#' # Every client of /clock sees the time, each second.
#' clients <- list()
#' app <- function(req) {
#'   e <- sse_response()
#'   clients[[length(clients) + 1]] <<- e
#'   e
#' }
#' tick <- function() {
#'   clients <<- Filter(function(e) e$is_open(), clients)
#'   for (e in clients) e$send(format(Sys.time()), event = "tick")
#'   later::later(tick, 1)
#' }
#' @seealso [stream_response()] for content other than events.
#' @export
sse_response <- function(..., headers = list(), heartbeat = 15, on_close = NULL, compress = FALSE) {
  check_dots("sse_response()", ..., known = c("headers", "heartbeat", "on_close", "compress"))
  check_response_headers(headers)
  source <- events_source(NULL, on_close, heartbeat, compress)
  push_stream(200L, event_headers(headers), source, is_events = TRUE)
}

# The methods of an event stream in addition to `push_methods`.
event_methods <- local({
  source <- NULL
  list(send = function(data, ..., event = NULL, id = NULL, retry = NULL) {
    check_dots("$send()", ..., known = c("event", "id", "retry"))
    push_write(source, event_text(data, event, id, retry))
  })
})

#' @param source A function that returns the data of the next event each time it
#'   is called, and `NULL` at the end. It can be your own function, a generator
#'   of package coro, or the value of `chat$stream_async()` of package ellmer.
#'   It may return promises, as described for [stream_body()].
#' @param map A function that converts each value of `source` to the text of an
#'   event. If the function has an argument `event`, as `sse_event()` has, it
#'   gets the `event` that was given to `sse_body()`.
#' @param heartbeat The number of seconds without an event after which the
#'   server sends a comment to keep the connection open, from 1 to 65535. `Inf`
#'   sends no comments.
#' @param on_close `NULL`, or a function that is called when the event stream
#'   has ended. Its argument is the reason for the end; [stream_body()] lists
#'   the reasons.
#' @param headers Further headers of the response. They replace the default
#'   headers of the same name.
#' @param compress Whether to compress the events, as described for
#'   [stream_response()]. The default is `FALSE`, because compression takes
#'   memory for each client. In addition, an attacker who can add text to a
#'   compressed stream can guess secrets in it from its length.
#' @rdname sse_response
#' @export
sse_body <- function(
  source, ..., event = NULL, map = sse_event, heartbeat = 15, on_close = NULL, headers = list(),
                     compress = FALSE) {
  check_dots(
    "sse_body()", ..., known = c("event", "map", "heartbeat", "on_close", "headers", "compress")
  )
  check_response_headers(headers)
  check_function(source, "source")
  check_function(map, "map")
  check_line(event, "event")
  takes_event <- "event" %in% names(formals(args(map)))
  events <- events_source(source, on_close, heartbeat, compress)
  events$map <- function(value) {
    # An empty value means that no data is available yet, and is not an event.
    if ((is.raw(value) || is.character(value)) && !any(nzchar(value))) {
      return("")
    }
    if (takes_event) map(value, event = event) else map(value)
  }
  list(status = 200L, headers = event_headers(headers), body = events)
}

#' @rdname sse_response
#' @export
sse_event <- function(data = NULL, ..., event = NULL, id = NULL, retry = NULL, comment = NULL) {
  check_dots("sse_event()", ..., known = c("event", "id", "retry", "comment"))
  structure(event_text(data, event, id, retry, comment), class = "rookery_sse_event")
}

#' @export
format.rookery_sse_event <- function(x, ...) {
  c(
    "<server-sent event>",
    paste0("  ", strsplit(sub("\n+$", "", unclass(x)), "\n", fixed = TRUE)[[1]])
  )
}

#' @export
print.rookery_sse_event <- function(x, ...) {
  # The text may have escape sequences of the app's, which a terminal must not interpret.
  cat(encodeString(format(x)), sep = "\n")
  invisible(x)
}

# Returns the text of an event.
event_text <- function(data, event, id, retry, comment = NULL) {
  check_line(event, "event")
  check_line(id, "id")
  is_count <- is.null(retry) || is.numeric(retry) && length(retry) == 1 && is.finite(retry) &&
    retry >= 0 && retry == trunc(retry)
  if (!is_count) {
    abort_argument("`retry` must be a whole number of milliseconds, not ", describe(retry), ".")
  }
  paste0(
    if (!is.null(comment)) sse_lines(": ", comment, "comment"),
    if (!is.null(event)) paste0("event: ", enc2utf8(plain_text(event)), "\n"),
    if (!is.null(id)) paste0("id: ", enc2utf8(plain_text(id)), "\n"),
    if (!is.null(retry)) paste0("retry: ", plain_text(retry), "\n"),
    if (!is.null(data)) sse_lines("data: ", if (is.list(data)) as_json(data) else data, "data"),
    "\n"
  )
}

# Returns the lines of one field. Clients treat LF, CRLF and a single CR as line ends, so text with
# any of them must not start another field.
sse_lines <- function(field, text, name) {
  if (!is.atomic(text) || anyNA(text) || is.raw(text)) {
    abort_argument(
      "`", name, "` must be strings without NA", if (name == "data") ", or a list", ", not ",
      describe(text), "."
    )
  }
  if (is.character(text) && !all(validEnc(text))) {
    abort_argument("`", name, "` must be text in the encoding that it is marked with.")
  }
  text <- paste(enc2utf8(plain_text(text)), collapse = "\n")
  text <- gsub("\r\n|\r", "\n", text)
  paste0(field, gsub("\n", paste0("\n", field), text, fixed = TRUE), "\n")
}

as_json <- function(data) {
  if (!requireNamespace("jsonlite", quietly = TRUE)) {
    abort(
      paste(
        "`data` is a list, whose conversion to JSON needs package jsonlite: install it, or give a",
        "string."
      ),
      "rookery_no_package"
    )
  }
  as.character(jsonlite::toJSON(data, auto_unbox = TRUE, null = "null", digits = NA))
}

# Checks the value of a field that has only one line.
check_line <- function(value, name) {
  if (is.null(value)) {
    return()
  }
  is_text <- (is.character(value) || is.numeric(value)) && length(value) == 1 && !is.na(value)
  if (!is_text || !validEnc(as.character(value)) || grepl("[\r\n]", value)) {
    abort_argument(
      "`", name, "` must be one string without line breaks, not ", describe(value), "."
    )
  }
}

events_source <- function(source, on_close, heartbeat, compress) {
  check_flag(compress, "compress")
  if (!is.null(on_close)) check_function(on_close, "on_close")
  if (!is.numeric(heartbeat) || length(heartbeat) != 1 || is.na(heartbeat) || heartbeat < 1) {
    abort_argument(
      "`heartbeat` must be a number of seconds, at least 1, or Inf, not ", describe(heartbeat), "."
    )
  }
  events <- new_source(source, on_close, compress)
  events$is_events <- TRUE
  events$heartbeat <- if (is.finite(heartbeat)) as.integer(min(ceiling(heartbeat), 65535)) else 0L
  events
}

# X-Accel-Buffering makes nginx forward events without buffering.
event_headers <- function(headers) {
  headers <- as.list(headers)
  own <- list(
    "Content-Type" = "text/event-stream", "Cache-Control" = "no-store, no-transform",
    "X-Accel-Buffering" = "no"
  )
  c(own[!ascii_lower(names(own)) %in% ascii_lower(names(headers))], headers)
}
