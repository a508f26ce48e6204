# Replies in pieces. What the server knows of one is its *source*, an environment that C (src/response_stream.c) fills: `handle` names the
# stream once it has answered a request, `ask` gives its pieces, `on_close` and `on_drain` are told of it. The object that an app
# pushes to refers to its source, never the other way round: so R can collect it, and what nobody can write to is cut.

#' Stream a response from a function, generator or connection
#'
#' A response's `body` may be a function: it is asked for a piece whenever the client has room for one, until it gives `NULL`. So
#' a long table, a log or the tokens of a language model are sent as they are made, in bounded memory. `stream_body()` adds what
#' runs at the end, and takes R connections.
#'
#' @section Pieces:
#' A raw vector, or strings, which are put one behind the other; or the promise of either. `raw(0)` and `""` mean "nothing yet":
#' the function is asked again after 10 ms. `NULL` is the end, and so is what generators of package coro give at theirs: a
#' generator, and an async generator such as `chat$stream_async()` of package ellmer gives, is a body as it is. Anything else is an error.
#'
#' The function is asked on R's thread, once at a time, and while less than 256 KiB wait for the client. Streams, requests and
#' callbacks of package later take turns: keep each piece under 10 ms, and return promises for what takes longer.
#'
#' @section The head:
#' Status and headers leave with the first piece, or after a second. An error before that is answered with status 500, like
#' one in the handler. One behind it cuts the connection, so that no client takes a part for the whole.
#'
#' A `Content-Length` among the headers is sent, and kept: more bytes are an error, and fewer cut the connection. To HEAD, and with
#' status 204 and 304, only the headers are sent: the function is not asked.
#'
#' @section The end:
#' `on_close(reason)` is called exactly once, with
#' * `"done"`: the client's system has everything;
#' * `"client"`: the client went away;
#' * `"error"`: a piece could not be made, or the length was not what `Content-Length` said;
#' * `"slow"`: the client took less than was made, until 16 MiB waited;
#' * `"timeout"`: it took nothing for two minutes;
#' * `"stop"`: the server stopped.
#'
#' A function with an argument `close` is called with `close = TRUE` before that, if it has neither ended nor failed: a generator of coro
#' runs its `on.exit()` then.
#'
#' @param source A function, or an R connection: its bytes are sent in pieces of 64 KiB, and it is closed at the end.
#' @param on_close `NULL`, or a function of the reason.
#' @param compress Whether to compress it for clients that take gzip: as other bodies, not if its type is compressed already, nor with a
#'   `Content-Length`. What waits is sent whole with each piece, so none is held back. 32 streams are compressed at once, others are not.
#' @param ... Must be empty: what follows is given by name.
#' @return An object for a response's `body`. It answers one request.
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
#' @seealso [stream_response()] to push.
#' @export
stream_body <- function(source, ..., on_close = NULL, compress = TRUE) {
  check_dots("stream_body()", ..., known = c("on_close", "compress"))
  check_flag(compress, "compress")
  if (!is.null(on_close)) check_function(on_close, "on_close")
  if (inherits(source, "connection")) {
    source <- connection_source(source)
  } else if (!is.function(source)) {
    abort_argument(
      "`source` must be a function that gives a chunk each time it is called, or a connection, not ", describe(source), "."
    )
  }
  new_source(source, on_close, compress)
}

#' Stream a response by writing to it
#'
#' Makes a response whose body is written later: from callbacks of package later, promises, WebSockets or other requests. The
#' object is the response, or the `body` of one.
#'
#' @details
#' * `$write(x)` sends a raw vector or strings, and returns whether to go on: `if (s$write(x)) ...`. After `FALSE`, write no more
#'   for now: 64 KiB wait for the client, and `on_drain` says when to go on; or the stream is over, `$is_open()` is `FALSE` and
#'   nothing was sent.
#' * `$flush()` sends the head, which else leaves with the first piece, or after a second.
#' * `$close()` ends the stream in order, `$abort()` cuts it, which its client sees.
#' * `$on_drain(func)` adds a function of no arguments that is called when there is room again, after a `FALSE`.
#' * `$on_close(func)` adds a function of the reason that is called once at the end, see [stream_body()].
#' * `$buffered()` tells how many bytes wait for the client, `$is_open()` whether the stream can be written to.
#'
#' What is written before the response has been returned waits for it. A client that takes less than is written is cut when
#' 16 MiB wait. A stream that R collects before `$close()` is cut, and told on stderr: keep the object where it can be closed. (A
#' function given to `$on_close()` that knows the object keeps it by itself.)
#' When the server stops, streams that are written to end in order.
#'
#' @param ... Must be empty: what follows is given by name.
#' @param status,headers Those of the response.
#' @param compress Whether to compress it, see [stream_body()]. It costs 300 KiB of memory for as long as the stream is open, and five bytes
#'   with each `$write()` that finds nothing waiting.
#' @return An object of class `rookery_stream`.
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
#' @seealso [stream_body()] for what is asked when there is room.
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
  # Few bindings, and no more than it needs: there are thousands of them.
  source <- new.env(hash = FALSE, parent = emptyenv())
  if (!is.null(pull)) source$pull <- pull
  if (!is.null(on_close)) source$on_close <- list(on_close)
  if (compress) source$compress <- TRUE
  class(source) <- "rookery_source"
  source
}

# Pieces of an R connection. It is opened here, in binary, if it is not open.
connection_source <- function(con) {
  kind <- summary(con)$class
  if (kind %in% c("url", "url-libcurl", "url-wininet", "pipe", "fifo")) {
    warning(
      "Reading a connection of class ", kind, " holds R up while it waits: use a promise of its chunks, or fetch it in another process.",
      call. = FALSE
    )
  }
  if (!isOpen(con)) {
    open(con, "rb")
  } else if (kind == "textConnection") {
    abort_argument("`source` is a connection of text, which gives no bytes: use rawConnection(), or a function that gives strings.")
  } else if (summary(con)$text != "binary") {
    abort_argument("`source` is a connection that is open in text mode: open it with \"rb\".")
  }
  function(close = FALSE) {
    # Also when it cannot be read: R has few connections, and asks this no more.
    is_over <- TRUE
    on.exit(if (is_over) base::close(con))
    bytes <- if (!close) readBin(con, "raw", 65536L)
    is_over <- close || (length(bytes) == 0 && !isIncomplete(con))
    if (!is_over) bytes
  }
}

# A piece has been promised.
await_chunk <- function(promise, source) {
  attach_handlers(
    promise,
    function(value, .visible) .Call(ffi_stream_on_fulfilled, source, value),
    function(reason) .Call(ffi_stream_fail, source, reason)
  )
}

# What is to run at the end: the functions, in their order.
on_stream_end <- function(source, reason) {
  source$reason <- reason
  pull <- source$pull
  closing <- if (is.function(pull) && !isTRUE(source$is_spent) && "close" %in% names(formals(args(pull)))) {
    list(function() pull(close = TRUE))
  }
  told <- lapply(source$on_close, function(func) function() func(reason))
  source$on_close <- source$on_drain <- list()
  c(closing, told)
}

# What is to run when there is room.
on_stream_drained <- function(source) {
  as.list(source$on_drain)
}

# ---- what is pushed ----

# The reply has been sent: what came before follows it.
start_stream <- function(source) {
  chunks <- early_chunks(source)
  tells <- source$early_commands
  if (is.null(chunks) && is.null(tells)) {
    return()
  }
  early <- c("early", "early_count", "early_bytes", "early_commands")
  rm(list = intersect(early, names(source)), envir = source)
  # What a later $write() or $close() would raise has nobody to be raised to.
  tryCatch(
    {
      for (chunk in chunks) {
        .Call(ffi_stream_write, source, chunk)
      }
      for (what in tells) {
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

# In the order in which they were written. They are kept as pairs, each of what came before and a piece: a list would be copied for
# each piece.
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
  text <- "bytes before its Content-Length: it is cut, so that its client sees that"
  abort(paste("the stream was closed", format(missing), text), "rookery_bad_stream")
}

# As src/rust: what waits from which on the app is to wait, and what may.
high_mark <- 64 * 1024
most_waiting <- 16 * 1024^2

check_chunk <- function(x) {
  if (!is.raw(x) && (!is.character(x) || anyNA(x))) {
    abort_argument("`x` must be a raw vector or strings without NA, not ", describe(x), ".")
  }
}

# Whether the app can write to it.
is_writable <- function(source) {
  is.null(source$reason) && !isTRUE(source$is_ended)
}

push_write <- function(source, x) {
  # In C nearly always: it takes a tenth of the time of what follows.
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
    source$early_bytes <- waiting <- sum(source$early_bytes, if (is.raw(x)) length(x) else nchar(x, "bytes"))
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

# NA when it is over.
push_buffered <- function(source) {
  if (is.null(source$handle)) sum(source$early_bytes) else .Call(ffi_stream_state, source)[[1]]
}

# Tells the server "head", "end" or "cut": now, or with the response.
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

# What an app pushes to.
push_stream <- function(status, headers, source, is_events = FALSE) {
  prepare()
  self <- .Call(ffi_stream_object, source, status, headers, is_events)
  reg.finalizer(self, on_stream_collected)
  self
}

# Its methods, whose environment has `source`: C makes them, see object_template.c.
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
    is_open = function() is_writable(source) && (is.null(source$handle) || !is.na(push_buffered(source)))
  )
})

# Nobody can write to it any more.
on_stream_collected <- function(self) {
  source <- self$body
  if (is_writable(source) && !is.null(source$handle)) {
    text <- "R has collected the stream's object before `$close()`: the stream is cut. Keep the object where it can be closed."
    .Call(ffi_stream_on_collected, source, text)
  }
}
