# Request bodies that the app receives in chunks. C (src/receive_body.c) adds variables to the
# object of receive_body(); `.ticket` names the request.

#' Receive a request's body as it arrives
#'
#' By default, the server stores the whole body in memory or in a file before it
#' calls `call`. If `onHeaders` returns `receive_body()` instead of a response,
#' the body is passed to the app in chunks as it arrives and is not stored. An
#' upload of any size then takes no more memory than its chunks.
#'
#' @details
#' At most 256 KiB of the body wait to be passed to `on_data`. The server reads
#' nothing more from the client until fewer are waiting. If `on_data` returns a
#' promise, the next chunk is passed on once the promise is fulfilled. If
#' `on_data` returns a response (a list with `status`), that response is sent,
#' for example status 413 for a body that is too long. The rest of the body is
#' then not read, and the connection is closed. All other values that `on_data`
#' returns are ignored.
#'
#' With several workers (`rookery serve --workers`) the supervisor receives the
#' bodies. For a large body, `onHeaders` is then called twice: first with the
#' headers only, so that the app can refuse the request, and again when the body
#' is complete. If the first call returns `receive_body()`, its `on_close` is
#' called with `"client"` at once.
#'
#' An error in `on_data`, `on_end` or `on_close` is reported once on stderr and
#' once to `onError`, with the name of the function. The client gets status 500
#' unless a response has been sent before.
#'
#' @param on_data A function that is called with each chunk of the request body,
#'   as a raw vector.
#' @param on_end A function without arguments that is called when the request
#'   body is complete, or at once if there is no body. It returns the response
#'   or a promise of a response.
#' @param on_close `NULL`, or a function that is called once at the end, for
#'   example to close a file. Its argument is the reason for the end: `"done"`
#'   (`on_end` was called, or `on_data` returned a response), `"client"` (the
#'   client disconnected), `"timeout"` (the client sent nothing for too long),
#'   `"error"` (a function failed, or returned something that is not a response)
#'   or `"stop"` (the server stopped).
#' @param ... Must be empty. The arguments that follow `...` must be given by
#'   name.
#' @return An object for the app's `onHeaders` to return, which makes the server
#'   pass the request body to the given functions. It can be used for one
#'   request only.
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
    "used for a request"
  } else {
    "not yet used for a request"
  }
  paste0("<rookery_receiver: ", state, if (x$is_answered) ", answered", ">")
}

# Called by C with each chunk. The chunk is queued while `on_data` still processes an earlier one;
# the server limits how much it reads ahead.
on_body_chunk <- function(receiver, bytes) {
  if (receiver$is_busy) {
    receiver$queue[[length(receiver$queue) + 1]] <- bytes
  } else if (!receiver$is_answered) {
    body_consume(receiver, bytes)
    body_process_queue(receiver)
  }
}

# Passes a chunk to `on_data`. If `on_data` calls service(), further chunks arrive meanwhile and are
# queued.
body_consume <- function(receiver, bytes) {
  receiver$is_busy <- TRUE
  is_promised <- FALSE
  on.exit(receiver$is_busy <- is_promised)
  receiver$doing <- doing_data
  is_promised <- body_finish_chunk(receiver, receiver$on_data(bytes), length(bytes))
}

# Uses the value that `on_data` returned for `n` bytes. Returns whether the value is a promise,
# which delays the next chunk.
body_finish_chunk <- function(receiver, value, n) {
  promise <- as_promise(value)
  if (!is.null(promise)) {
    promises::then(
      promise,
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

# Returns whether a value is a response. Data frames are not, even with a column `status`, nor are
# lists of classes without names.
is_answer <- function(value) {
  if (is.environment(value)) {
    !is.null(value[["status"]])
  } else {
    is.list(value) && !is.data.frame(value) && "status" %in% names(value)
  }
}

# Continues after the promise that delayed the next chunk was fulfilled.
body_on_fulfilled <- function(receiver, value, n) {
  body_try(receiver, body_finish_chunk(receiver, value, n))
  body_resume(receiver)
}

# Passes on the queued chunks, because no promise delays them any more.
body_resume <- function(receiver) {
  receiver$is_busy <- FALSE
  body_try(receiver, body_process_queue(receiver))
}

# Evaluates code that calls functions of the app outside of an event. If a function fails, the error
# is reported, and the queued chunks are processed all the same.
body_try <- function(receiver, expression) {
  condition <- simpleError("interrupted, or ended by a restart")
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

# Processes the chunks, and the end of the body, that were queued.
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

# The names by which the log refers to the function that failed.
doing_data <- "receive_body: on_data"
doing_end <- "receive_body: on_end"
doing_close <- "receive_body: on_close"

body_respond <- function(receiver, value) {
  receiver$is_answered <- TRUE
  promise <- as_promise(value)
  if (!is.null(promise)) {
    respond_later(promise, receiver$.ticket, receiver$req)
  } else if (!.Call(ffi_receive_respond, receiver, value)) {
    receiver$has_failed <- TRUE
  }
}

# Called by C at the end of the body.
on_body_end <- function(receiver, reason) {
  receiver$over <- reason
  body_process_queue(receiver)
}

body_finish <- function(receiver, reason) {
  # The value in case of a jump out of `on_end`, which counts as an error.
  ended <- "error"
  is_left <- TRUE
  on.exit(body_call_on_close(receiver, ended, is_left))
  if (reason == "done" && !receiver$is_answered && !.Call(ffi_receive_is_waiting, receiver)) {
    # The server has sent a response itself because it stops, so the body is incomplete.
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
    tryCatch(on_close(reason), error = function(condition) {
      .Call(ffi_receive_fail, receiver, condition, NULL)
    })
    receiver$doing <- doing
  } else {
    on_close(reason)
  }
}
