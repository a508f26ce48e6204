# Requests' bodies as they arrive. The object that receive_body() makes is filled by C (src/receive_body.c): `.ticket` names the request.

#' Receive a request's body as it arrives
#'
#' A body is whole, in memory or in a file, before `call` sees it. `onHeaders` may return `receive_body()` instead of a response:
#' then the body is handed over in pieces as they arrive, nothing of it is kept, and an upload of any size takes no more memory
#' than its pieces.
#'
#' @details
#' The server reads at most 256 KiB ahead: a client that sends faster than `on_data` deals with it has to wait. When `on_data` returns
#' a promise, the next piece comes when that is fulfilled. When it returns a response (a list with `status`), that is the answer, such as a
#' 413 for a body that is too long; the rest of the body is not read, and the connection ends. Whatever else it returns is ignored.
#'
#' With several workers (`rookery serve --workers`) bodies are taken by the server in front. `onHeaders` sees the head of a large one before that, so that
#' it can refuse it, and again when the body is there: what the first time returned has its `on_close` called with `"client"` at once.
#'
#' An error in one of these functions is reported once on stderr and once to `onError`, with the
#' name of the function. The request is answered with status 500 unless it has been answered before.
#'
#' @param on_data A function of a raw vector, called for each piece.
#' @param on_end A function of no arguments, called when the body is whole (at once if there is none): it returns the response, or the
#'   promise of one.
#' @param on_close `NULL`, or a function of the reason, called once at the end: `"done"` (`on_end` has been called, or `on_data` has answered),
#'   `"client"` (the client has disconnected), `"timeout"` (the client sent nothing for too long),
#'   `"error"` (a function has failed, or returned something that is not a response) or `"stop"`
#'   (the server stops). This is the place to close a file.
#' @param ... Must be empty: what follows is given by name.
#' @return An object for `onHeaders` to return. It is for one request.
#' @examples
#' app <- list(
#'   onHeaders = function(req) {
#'     if (req$PATH_INFO != "/upload") return(NULL)
#'     path <- tempfile()
#'     con <- file(path, "wb")
#'     receive_body(
#'       on_data = function(bytes) writeBin(bytes, con),
#'       on_end = function() list(status = 201L, headers = list(), body = paste("saved in", path)),
#'       on_close = function(reason) {
#'         close(con)
#'         if (reason != "done") unlink(path)
#'       }
#'     )
#'   },
#'   call = function(req) list(status = 404L, headers = list(), body = "")
#' )
#' @export
receive_body <- function(on_data, on_end, ..., on_close = NULL) {
  check_dots("receive_body()", ..., known = "on_close")
  check_function(on_data, "on_data")
  check_function(on_end, "on_end")
  if (!is.null(on_close)) check_function(on_close, "on_close")
  receiver <- new.env(parent = emptyenv())
  receiver$on_data <- on_data
  receiver$on_end <- on_end
  receiver$on_close <- on_close
  receiver$queue <- list()
  receiver$is_busy <- FALSE
  receiver$is_answered <- FALSE
  class(receiver) <- "rookery_receiver"
  receiver
}

#' @export
format.rookery_receiver <- function(x, ...) {
  state <- if (!is.null(x$.ticket)) {
    "of a request"
  } else {
    "not yet of a request"
  }
  paste0("<rookery_receiver: ", state, if (x$is_answered) ", answered", ">")
}

#' @export
print.rookery_receiver <- function(x, ...) {
  print_line(x)
}

# A piece has come. While `on_data` deals with the one before it waits, with those that the server reads ahead.
on_body_chunk <- function(receiver, bytes) {
  if (receiver$is_busy) {
    receiver$queue[[length(receiver$queue) + 1]] <- bytes
  } else if (!receiver$is_answered) {
    body_consume(receiver, bytes)
    body_process_queue(receiver)
  }
}

# Hands a piece to `on_data`, which may let R serve meanwhile: what comes of the body then waits as well.
body_consume <- function(receiver, bytes) {
  receiver$is_busy <- TRUE
  is_promised <- FALSE
  on.exit(receiver$is_busy <- is_promised)
  receiver$doing <- doing_data
  is_promised <- body_finish_chunk(receiver, receiver$on_data(bytes), length(bytes))
}

# What `on_data` made of `n` bytes; whether it is a promise, which holds the next piece back.
body_finish_chunk <- function(receiver, value, n) {
  if (inherits(value, "promise")) {
    promises::then(
      value,
      onFulfilled = function(value) body_on_fulfilled(receiver, value, n),
      onRejected = function(reason) {
        receiver$doing <- doing_data
        .Call(ffi_receive_fail, receiver, reason, NULL)
        body_resume(receiver)
      }
    )
    return(TRUE)
  }
  if (is_answer(value)) {
    body_respond(receiver, value)
  } else {
    .Call(ffi_receive_consumed, receiver, n)
  }
  FALSE
}

# A table with a column of that name is none, nor is a list whose class knows no names.
is_answer <- function(value) {
  if (is.environment(value)) {
    !is.null(value[["status"]])
  } else {
    is.list(value) && !is.data.frame(value) && "status" %in% names(value)
  }
}

# A promise that held the next piece back has been fulfilled.
body_on_fulfilled <- function(receiver, value, n) {
  body_try(receiver, body_finish_chunk(receiver, value, n))
  body_resume(receiver)
}

# It holds nothing back any more.
body_resume <- function(receiver) {
  receiver$is_busy <- FALSE
  body_try(receiver, body_process_queue(receiver))
}

# Evaluates what may run functions of the app's, outside of an event: one that fails is told of, and what is left goes on.
body_try <- function(receiver, expression) {
  condition <- simpleError("interrupted, or left by a restart")
  is_left <- TRUE
  on.exit(
    if (is_left) {
      .Call(ffi_receive_fail, receiver, condition, trace)
      body_process_queue(receiver)
    }
  )
  trace <- NULL
  tryCatch(
    withCallingHandlers(
      {
        expression
        is_left <- FALSE
      },
      error = function(error) trace <<- trace_of(error)
    ),
    error = function(error) condition <<- error
  )
}

# What came meanwhile.
body_process_queue <- function(receiver) {
  while (!receiver$is_busy && length(receiver$queue) > 0) {
    bytes <- receiver$queue[[1]]
    receiver$queue <- receiver$queue[-1]
    if (!receiver$is_answered) body_consume(receiver, bytes)
  }
  if (!receiver$is_busy && !is.null(receiver$over)) {
    reason <- receiver$over
    receiver$over <- NULL
    body_finish(receiver, reason)
  }
}

# Which function has failed, as the log names it.
doing_data <- "receive_body: on_data"
doing_end <- "receive_body: on_end"
doing_close <- "receive_body: on_close"

body_respond <- function(receiver, value) {
  receiver$is_answered <- TRUE
  if (inherits(value, "promise")) {
    respond_later(value, receiver$.ticket, receiver$req)
  } else if (!.Call(ffi_receive_respond, receiver, value)) {
    receiver$has_failed <- TRUE
  }
}

# No more comes.
on_body_end <- function(receiver, reason) {
  receiver$over <- reason
  body_process_queue(receiver)
}

body_finish <- function(receiver, reason) {
  # Whatever becomes of `on_end`: a jump out of it is an error as well.
  ended <- "error"
  is_left <- TRUE
  on.exit(body_call_on_close(receiver, ended, is_left))
  if (reason == "done" && !receiver$is_answered && !.Call(ffi_receive_is_waiting, receiver)) {
    # Answered for R, because the server stops: the body is not whole.
    reason <- "stop"
  }
  if (reason == "done" && !receiver$is_answered) {
    receiver$doing <- doing_end
    trace <- NULL
    tryCatch(
      withCallingHandlers(
        body_respond(receiver, receiver$on_end()),
        error = function(condition) trace <<- trace_of(condition)
      ),
      error = function(condition) .Call(ffi_receive_fail, receiver, condition, trace)
    )
  } else if (reason != "done") {
    receiver$is_answered <- TRUE
    .Call(ffi_receive_drop, receiver)
  }
  ended <- reason
  is_left <- FALSE
}

# Calls `on_close`. The caller reports an error of `on_close`; if the caller is being left by a jump
# (`is_left`), the error is reported here and the jump continues.
body_call_on_close <- function(receiver, reason, is_left) {
  on_close <- receiver$on_close
  receiver$on_close <- NULL
  if (!is.function(on_close)) {
    return()
  }
  reason <- if (isTRUE(receiver$has_failed)) "error" else reason
  doing <- receiver$doing
  receiver$doing <- doing_close
  if (is_left) {
    tryCatch(on_close(reason), error = function(condition) .Call(ffi_receive_fail, receiver, condition, NULL))
    receiver$doing <- doing
  } else {
    on_close(reason)
  }
}
