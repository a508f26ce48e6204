# Streamed responses. The server knows a stream by its *source*, an environment that C
# (src/response_stream.c) uses: `handle` names the stream once it is the response to a request,
# `pull` returns its chunks, and `on_close` and `on_drain` are its callbacks. The object that an app
# writes to refers to its source, and the source never refers to that object. R can therefore
# collect the object, and a stream that nobody can write to any more is aborted.

#' Stream a response from a function, generator or connection
#'
#' A response's `body` may be a function. The server calls the function whenever
#' it can send more to the client, until the function returns `NULL`. A long
#' table, a log or the tokens of a language model are thus sent as they are
#' produced, in bounded memory. `stream_body()` adds a callback for the end of
#' the stream, and accepts R connections.
#'
#' @section Chunks:
#' The function that is the body of the response is called for each chunk. It
#' returns a raw vector, a character vector whose elements are concatenated, or
#' a promise of either. `raw(0)` and `""` mean that no data is available yet;
#' the server calls the function again after 10 ms. `NULL` ends the stream. Any
#' other value is an error. The function may also be a generator or async
#' generator of package coro, such as the value of `chat$stream_async()` of
#' package ellmer.
#'
#' The function is called on R's thread, one call at a time, and only while less
#' than 512 KiB are queued for the client. Streams, requests and callbacks of
#' package later take turns on this thread. Keep each call under 10 ms, and
#' return promises for work that takes longer.
#'
#' @section Status and headers:
#' The status and headers of a streamed response are sent with the first chunk,
#' or after one second. If the function that produces the chunks fails before
#' that, the response has status 500, as for an error in the handler. If it
#' fails later, the server closes the connection abnormally, so that clients do
#' not mistake the partial body for a complete one.
#'
#' If `headers` has a `Content-Length`, the server enforces it: more bytes are
#' an error, and with fewer bytes the connection is closed abnormally. For HEAD
#' requests, and with status 204 and 304, only status and headers are sent, and
#' the function is not called.
#'
#' @section The end of a stream:
#' `on_close(reason)` is called exactly once, when the streamed response ends.
#' `reason` is
#' * `"done"`: the client's operating system has received all data;
#' * `"client"`: the client disconnected;
#' * `"error"`: the function failed, or the length differed from
#'   `Content-Length`;
#' * `"slow"`: the client received data more slowly than it was produced, and 16
#'   MiB were queued;
#' * `"timeout"`: the client received nothing for two minutes;
#' * `"stop"`: the server stopped.
#'
#' If the function that returns the chunks has an argument `close`, and has
#' neither ended the stream nor failed, it is called with `close = TRUE` before
#' `on_close`. A generator of package coro runs its `on.exit()` code then.
#'
#' @param source A function that returns the chunks of the body, or an R
#'   connection. A connection is sent in chunks of 64 KiB and closed at the end.
#' @param on_close `NULL`, or a function that is called when the stream has
#'   ended. Its argument is the reason for the end.
#' @param compress Whether the stream is compressed for clients that accept
#'   gzip. Streams with a `Content-Length`, and content types that are already
#'   compressed, are sent uncompressed. The compressor is flushed after each
#'   chunk, so no chunk is delayed. At most 32 streams are compressed at a time;
#'   further streams are sent uncompressed.
#' @param ... Must be empty. The arguments that follow `...` must be given by
#'   name.
#' @return An object to use as the `body` of a response. It can be used for one
#'   request only.
#' @examples
#' rows <- function(data, by = 1000) {
#'   at <- 0
#'   function() {
#'     if (at >= nrow(data)) return(NULL)
#'     part <- data[seq(at + 1, min(at + by, nrow(data))), , drop = FALSE]
#'     text <- capture.output(write.table(part, sep = ",", col.names = at == 0, row.names = FALSE))
#'     at <<- at + nrow(part)
#'     paste0(text, "\n")
#'   }
#' }
#' app <- function(req) {
#'   list(
#'     status = 200L,
#'     headers = list("Content-Type" = "text/csv"),
#'     body = stream_body(rows(mtcars), on_close = function(reason) message("The table: ", reason))
#'   )
#' }
#' @seealso [stream_response()], for a stream that the app writes to.
#' @export
stream_body <- function(source, ..., on_close = NULL, compress = TRUE) {
  check_dots("stream_body()", ..., known = c("on_close", "compress"))
  check_flag(compress, "compress")
  if (!is.null(on_close)) check_function(on_close, "on_close")
  if (inherits(source, "connection")) {
    source <- connection_source(source)
  } else if (!is.function(source)) {
    abort_argument(
      "`source` must be a function that returns a chunk each time it is called, or a ",
      "connection, not ", describe(source), "."
    )
  }
  new_source(source, on_close, compress)
}

#' Stream a response by writing to it
#'
#' Creates a response whose body is written later, for example by callbacks of
#' package later, promises, WebSockets or other requests. The returned object is
#' a response, and can also be the `body` of a response.
#'
#' @details
#' * `$write(x)` sends a raw vector or strings, and returns `TRUE` if more can
#'   be written at once. `FALSE` means that 64 KiB are queued for the client:
#'   wait until the function passed to `$on_drain()` is called. If the stream
#'   has ended, `$write()` sends nothing and returns `FALSE` as well;
#'   `$is_open()` is `FALSE` then.
#' * `$flush()` sends status and headers now. Otherwise they are sent with the
#'   first chunk, or after one second.
#' * `$close()` ends the stream. `$abort()` closes the connection abnormally,
#'   which tells the client that the response is incomplete.
#' * `$on_drain(func)` adds a function without arguments that is called when
#'   more can be written after `$write()` has returned `FALSE`.
#' * `$on_close(func)` adds a function that is called once at the end of the
#'   stream, with the reason. [stream_body()] lists the reasons.
#' * `$buffered()` returns the number of bytes that are queued for the client,
#'   and `$is_open()` returns whether the stream can be written to.
#'
#' Data that is written before the handler has returned the response is queued.
#' If 16 MiB are queued for a client, its stream is aborted. If R collects the
#' object before `$close()`, the stream is aborted and a message is written to
#' stderr. Keep the object in a place from which it can be closed. (A function
#' passed to `$on_close()` that refers to the object keeps it.) When the server
#' stops, streams that are still open are aborted, so that the client does not
#' take a part of the response for all of it. [serve()] and the program first
#' wait for open streams as for other unfinished responses.
#'
#' @param ... Must be empty. The arguments that follow `...` must be given by
#'   name.
#' @param status,headers The status code and the headers of the streamed
#'   response.
#' @param compress Whether to compress the stream as described for
#'   [stream_body()]. Compression takes 300 KiB of memory for each open stream.
#' @return An object of class `rookery_stream`. Return it as the response, and
#'   send the body with its methods, such as `$write()`.
#' @examples
#' app <- function(req) {
#'   s <- stream_response(headers = list("Content-Type" = "text/plain"))
#'   left <- 3
#'   tick <- function() {
#'     s$write(paste0(left, "\n"))
#'     left <<- left - 1
#'     if (left == 0) s$close() else later::later(tick, 1)
#'   }
#'   tick()
#'   s
#' }
#' @seealso [stream_body()], for a stream whose chunks the server requests.
#' @export
stream_response <- function(..., status = 200L, headers = list(), compress = FALSE) {
  check_dots("stream_response()", ..., known = c("status", "headers", "compress"))
  check_status(status)
  check_response_headers(headers)
  check_flag(compress, "compress")
  push_stream(status, headers, new_source(NULL, NULL, compress))
}

# ---- sources ----

new_source <- function(pull, on_close = NULL, compress = TRUE) {
  # An app may have thousands of sources, so a source has only the bindings that it needs.
  source <- new.env(hash = FALSE, parent = emptyenv())
  if (!is.null(pull)) source$pull <- pull
  if (!is.null(on_close)) source$on_close <- list(on_close)
  if (compress) source$compress <- TRUE
  class(source) <- "rookery_source"
  source
}

# Returns a function that reads chunks from an R connection. A connection that is not open is opened
# in binary mode.
connection_source <- function(con) {
  kind <- summary(con)$class
  if (kind %in% c("url", "url-libcurl", "url-wininet", "pipe", "fifo")) {
    warning(
      "Reading a connection of class ", kind,
      " blocks R while it waits: use promises of its chunks, or read it in another process.",
      call. = FALSE
    )
  }
  if (!isOpen(con)) {
    open(con, "rb")
  } else if (kind == "textConnection") {
    abort_argument(
      "`source` is a text connection, which has no bytes: use rawConnection(), or a function that ",
      "returns strings."
    )
  } else if (summary(con)$text != "binary") {
    abort_argument("`source` is a connection that is open in text mode: open it with \"rb\".")
  }
  function(close = FALSE) {
    # The connection is also closed when reading fails, because R has few connections and the
    # function is not called again.
    is_over <- TRUE
    on.exit(if (is_over) base::close(con))
    bytes <- if (!close) readBin(con, "raw", 65536L)
    is_over <- close || (length(bytes) == 0 && !isIncomplete(con))
    if (!is_over) bytes
  }
}

# Sends the value of a promised chunk once the promise is fulfilled.
await_chunk <- function(promise, source) {
  attach_handlers(
    promise,
    function(value, .visible) .Call(ffi_stream_on_fulfilled, source, value),
    function(reason) .Call(ffi_stream_fail, source, reason)
  )
}

# Returns the functions to call at the end of a stream, in their order.
on_stream_end <- function(source, reason) {
  source$reason <- reason
  pull <- source$pull
  closing <- if (is.function(
    pull) && !isTRUE(source$is_spent) && "close" %in% names(formals(args(pull)))
  ) {
    list(function() pull(close = TRUE))
  }
  callbacks <- lapply(source$on_close, function(func) function() func(reason))
  source$on_close <- source$on_drain <- list()
  c(closing, callbacks)
}

# Returns the functions to call when the client can receive more.
on_stream_drained <- function(source) {
  as.list(source$on_drain)
}

# ---- streams that the app writes to ----

# Called after the response was sent: sends what the app wrote before.
start_stream <- function(source) {
  chunks <- early_chunks(source)
  commands <- source$early_commands
  if (is.null(chunks) && is.null(commands)) {
    return()
  }
  early <- c("early", "early_count", "early_bytes", "early_commands")
  rm(list = intersect(early, names(source)), envir = source)
  # An error in `$write()` or `$close()` cannot be raised here, because the app's call has returned.
  tryCatch(
    {
      for (chunk in chunks) {
        .Call(ffi_stream_write, source, chunk)
      }
      for (what in commands) {
        missing <- .Call(ffi_stream_command, source, what)
        if (missing > 0) abort_too_short(missing)
      }
    },
    error = function(condition) {
      source$is_ended <- TRUE
      .Call(ffi_stream_fail, source, condition)
    }
  )
}

# Returns the chunks that were written before the response, in order. They are stored as nested
# pairs of the earlier chunks and one chunk, because a list would be copied for each chunk.
early_chunks <- function(source) {
  if (is.null(source$early_count)) {
    return()
  }
  chunks <- vector("list", length = source$early_count)
  pair <- source$early
  for (at in rev(seq_along(chunks))) {
    chunks[[at]] <- pair[[2]]
    pair <- pair[[1]]
  }
  chunks
}

abort_too_short <- function(missing) {
  text <- "bytes before its Content-Length and was therefore aborted"
  abort(paste("the stream was closed", format(missing), text), "rookery_bad_stream")
}

# The queue length at which the app should stop writing, and the maximum; crates/exchange has the
# same values.
high_mark <- 64 * 1024
most_waiting <- 16 * 1024^2

check_chunk <- function(x) {
  if (!is.raw(x) && (!is.character(x) || anyNA(x))) {
    abort_argument("`x` must be a raw vector or strings without NA, not ", describe(x), ".")
  }
}

# Returns whether the app can write to a stream.
is_writable <- function(source) {
  is.null(source$reason) && !isTRUE(source$is_ended)
}

push_write <- function(source, x) {
  # The C function handles nearly all calls, in a tenth of the time of the R code below.
  given <- .Call(ffi_stream_write_fast, source, x)
  if (!is.null(given)) {
    return(given)
  }
  if (!is.raw(x) && !is.character(x) || anyNA(x)) check_chunk(x)
  if (!is_writable(source)) {
    return(FALSE)
  }
  if (length(x) == 0 || (is.character(x) && !any(nzchar(x)))) {
    return(isTRUE(push_buffered(source) < high_mark))
  }
  if (is.null(source$handle)) {
    source$early <- list(source$early, x)
    source$early_count <- sum(source$early_count, 1)
    source$early_bytes <- waiting <- sum(
      source$early_bytes, if (is.raw(x)) length(x) else nchar(x, "bytes")
    )
    if (waiting > most_waiting) {
      source$early <- source$early_count <- source$early_bytes <- NULL
      push_command(source, "cut")
      return(FALSE)
    }
    return(waiting < high_mark)
  }
  tryCatch(.Call(ffi_stream_write, source, x), error = function(condition) {
    if (grepl("Content-Length", conditionMessage(condition))) {
      push_command(source, "cut")
    }
    stop(condition)
  })
}

# Returns the number of queued bytes; NA after the end of the stream.
push_buffered <- function(source) {
  if (is.null(source$handle)) sum(source$early_bytes) else .Call(ffi_stream_state, source)[[1]]
}

# Passes "head", "end" or "cut" to the server, at once or after the response.
push_command <- function(source, what) {
  if (!is_writable(source)) {
    return(0)
  }
  source$is_ended <- what != "head"
  if (is.null(source$handle)) {
    source$early_commands <- c(source$early_commands, what)
    return(0)
  }
  .Call(ffi_stream_command, source, what)
}

push_close <- function(source) {
  missing <- push_command(source, "end")
  if (missing > 0) {
    .Call(ffi_stream_command, source, "cut")
    abort_too_short(missing)
  }
}

push_add <- function(source, which, func) {
  check_function(func, "func")
  if (is.null(source$reason)) {
    source[[which]] <- c(source[[which]], func)
  } else if (which == "on_close") {
    reason <- source$reason
    later::later(function() func(reason))
  }
}

# Creates the object that an app writes to.
push_stream <- function(status, headers, source, is_events = FALSE) {
  prepare()
  self <- .Call(ffi_stream_object, source, status, headers, is_events)
  reg.finalizer(self, on_stream_collected)
  self
}

# The methods of that object; their environment has `source`. C copies them into each object
# (object_template.c).
push_methods <- local({
  source <- NULL
  list(
    write = function(x) push_write(source, x),
    flush = function() invisible(push_command(source, "head")),
    close = function() invisible(push_close(source)),
    abort = function() invisible(push_command(source, "cut")),
    on_drain = function(func) invisible(push_add(source, "on_drain", func)),
    on_close = function(func) invisible(push_add(source, "on_close", func)),
    buffered = function() if (is_writable(source)) sum(push_buffered(source), na.rm = TRUE) else 0,
    is_open = function() {
      is_writable(source) && (is.null(source$handle) || !is.na(push_buffered(source)))
    }
  )
})

# Aborts a stream whose object R has collected, because nobody can write to the stream any more.
on_stream_collected <- function(self) {
  source <- self$body
  if (is_writable(source) && !is.null(source$handle)) {
    text <- paste(
      "R has collected the stream's object before `$close()`, so the stream was aborted.",
      "Keep a reference to the object until it is closed."
    )
    .Call(ffi_stream_on_collected, source, text)
  }
}
