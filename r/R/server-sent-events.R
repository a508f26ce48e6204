# Server-sent events (HTML standard, 9.2): responses in pieces whose pieces are events.

#' Server-sent events
#'
#' A page that runs `new EventSource("/prices")` gets what the server has to say as it happens, over plain HTTP, and connects again by
#' itself when the connection was lost. `sse_response()` makes a response to send events to (push); `sse_body()` one whose events
#' come from a function or generator (pull); `sse_event()` the text of an event.
#'
#' @details
#' `sse_response()` is a [stream_response()] with
#' * `$send(data, ..., event = NULL, id = NULL, retry = NULL)`, which sends an event and returns what `$write()` does.
#'
#' When nothing has been sent for `heartbeat` seconds the server sends a comment, without R, because proxies cut what is silent
#' (nginx after a minute). When the server stops, events end in order, and clients are told to come again in 3 to 8 seconds.
#'
#' A client that comes again sends the last id that it has seen: `req$HTTP_LAST_EVENT_ID`. It is the client's text, so look at it before
#' you use it. Status 204 tells a page to come no more. While the queue of requests is full, and while the server stops, clients that accept
#' events are told to try again in 5 seconds, and not 503, after which a browser would give up for good.
#'
#' A browser has six connections to a server at once, over all its tabs, and each of these streams takes one: with a seventh page the
#' browser waits. Use one stream a page at most, share it between tabs (`SharedWorker`), or serve HTTPS, and so HTTP/2, which has no such limit.
#'
#' @param data The event's data: strings, which are put one below the other, or a list, which becomes JSON (package jsonlite). `NULL` for
#'   an event without data, which pages do not see.
#' @param event The event's name: pages listen for it with `addEventListener(name, ...)`, without one with `onmessage`.
#' @param id What clients that lost their connection send as `Last-Event-ID`.
#' @param retry Milliseconds after which a client that lost its connection comes again.
#' @param comment Text that clients ignore.
#' @param ... Must be empty: what follows is given by name.
#' @return `sse_event()`: one string, of class `rookery_sse_event`, which prints as its lines. The others: a response.
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
#' @seealso [stream_response()] for other types than events.
#' @export
sse_response <- function(..., headers = list(), heartbeat = 15, on_close = NULL, compress = FALSE) {
  check_dots("sse_response()", ..., known = c("headers", "heartbeat", "on_close", "compress"))
  check_response_headers(headers)
  source <- events_source(NULL, on_close, heartbeat, compress)
  push_stream(200L, event_headers(headers), source, is_events = TRUE)
}

# What an event stream has beside `push_methods`.
event_methods <- local({
  source <- NULL
  list(send = function(data, ..., event = NULL, id = NULL, retry = NULL) {
    check_dots("$send()", ..., known = c("event", "id", "retry"))
    push_write(source, event_text(data, event, id, retry))
  })
})

#' @param source A function that gives what the next event is about each time it is called, and `NULL` at the end: a generator of package
#'   coro, or what `chat$stream_async()` of package ellmer returns, or a function of your own; promises are fine. See [stream_body()].
#' @param map A function that makes an event's text of each of them. One with an argument `event`, as `sse_event()` has, is given `event` as well.
#' @param heartbeat Seconds of silence after which a comment is sent, 1 to 65535; `Inf`: never.
#' @param on_close `NULL`, or a function of the reason, see [stream_body()].
#' @param headers Further headers of the response, or others in place of those for events.
#' @param compress Whether to compress the events, see [stream_response()]: not by default, because it costs memory for each client, and because
#'   a secret beside text of a stranger's in one compressed stream can be guessed from its length.
#' @rdname sse_response
#' @export
sse_body <- function(source, ..., event = NULL, map = sse_event, heartbeat = 15, on_close = NULL, headers = list(),
                     compress = FALSE) {
  check_dots("sse_body()", ..., known = c("event", "map", "heartbeat", "on_close", "headers", "compress"))
  check_response_headers(headers)
  check_function(source, "source")
  check_function(map, "map")
  check_line(event, "event")
  takes_event <- "event" %in% names(formals(args(map)))
  events <- events_source(source, on_close, heartbeat, compress)
  events$map <- function(value) {
    # "Nothing yet" is no event.
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
  c("<server-sent event>", paste0("  ", strsplit(sub("\n+$", "", unclass(x)), "\n", fixed = TRUE)[[1]]))
}

#' @export
print.rookery_sse_event <- function(x, ...) {
  # Text of an app may have escape sequences, which are for pages and not for a terminal.
  cat(encodeString(format(x)), sep = "\n")
  invisible(x)
}

# Returns the text of an event.
event_text <- function(data, event, id, retry, comment = NULL) {
  check_line(event, "event")
  check_line(id, "id")
  if (!is.null(retry) && (!is.numeric(retry) || length(retry) != 1 || !is.finite(retry) || retry < 0 || retry != trunc(retry))) {
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

# Lines of one field. A client takes LF, CRLF and CR alone for the end of a line: text with any of them must not begin another field.
sse_lines <- function(field, text, name) {
  if (!is.atomic(text) || anyNA(text) || is.raw(text)) {
    abort_argument("`", name, "` must be strings without NA", if (name == "data") ", or a list", ", not ", describe(text), ".")
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
    abort("`data` is a list, which needs the package jsonlite to become JSON: install it, or give a string.", "rookery_no_package")
  }
  as.character(jsonlite::toJSON(data, auto_unbox = TRUE, null = "null", digits = NA))
}

# A field that is one line.
check_line <- function(value, name) {
  if (is.null(value)) {
    return()
  }
  is_text <- (is.character(value) || is.numeric(value)) && length(value) == 1 && !is.na(value)
  if (!is_text || !validEnc(as.character(value)) || grepl("[\r\n]", value)) {
    abort_argument("`", name, "` must be one string without line breaks, not ", describe(value), ".")
  }
}

events_source <- function(source, on_close, heartbeat, compress) {
  check_flag(compress, "compress")
  if (!is.null(on_close)) check_function(on_close, "on_close")
  if (!is.numeric(heartbeat) || length(heartbeat) != 1 || is.na(heartbeat) || heartbeat < 1) {
    abort_argument("`heartbeat` must be a number of seconds from 1 on, or Inf, not ", describe(heartbeat), ".")
  }
  events <- new_source(source, on_close, compress)
  events$is_events <- TRUE
  events$heartbeat <- if (is.finite(heartbeat)) as.integer(min(ceiling(heartbeat), 65535)) else 0L
  events
}

# X-Accel-Buffering: nginx passes events on as they come.
event_headers <- function(headers) {
  headers <- as.list(headers)
  own <- list("Content-Type" = "text/event-stream", "Cache-Control" = "no-store, no-transform", "X-Accel-Buffering" = "no")
  c(own[!tolower(names(own)) %in% tolower(names(headers))], headers)
}
