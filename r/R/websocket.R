#' A WebSocket connection
#'
#' An app's `onWSOpen` is given one of these for each WebSocket that a client opens.
#'
#' `$onMessage(func)` adds a function of `binary` (is the message binary?) and `message` (a string, or a raw vector;
#' text with a NUL, which R's strings cannot hold, comes as binary). `$send(message)` sends a raw vector as a
#' binary message and anything else as text (its first element); on a connection that has ended it does nothing.
#' `$close(code, reason)` starts the closing handshake.
#'
#' `$onClose(func)` adds a function that is called once, when the connection has ended, however it ended. If its first argument
#' has no default and is not `...`, it is given a list: `target` is the WebSocket, `code` and `reason` are those of the client's
#' close frame (1005: it had none; 1006: there was no close frame, the connection broke), and `wasClean` says whether both sides
#' sent one. Any other function is called without arguments.
#'
#' `$send()` never waits. It returns, invisibly, whether to go on: `TRUE`; or `FALSE` when the message was taken but more than 1 MiB
#' waits for the client, and `$onDrain(func)` says when to go on, or when the connection has ended, which `$onClose()` tells. Past a
#' limit of 64 MiB a client that does not read is given up. `$bufferedAmount()` tells how many bytes wait.
#'
#' `$onMessage()`, `$onClose()` and `$onDrain()` return, invisibly, a function that takes the callback away again.
#'
#' An error in a message callback is printed, and closes the connection with code 1011.
#'
#' @field handle The connection; `NULL` when it has ended.
#' @field messageCallbacks,closeCallbacks,drainCallbacks The functions added so far.
#' @field request The request that opened the connection, see [startServer()].
#' @field protocol The subprotocol that is spoken, `""` for none: see [accept_ws()].
#' @param handle The connection.
#' @param req The request that opened it.
#' @param protocol The subprotocol.
#' @param func A function.
#' @param message A raw vector, or a string.
#' @param code The close code: 1000, or one of 3000 to 4999.
#' @param reason Why, in at most 123 bytes of UTF-8.
#' @seealso `vignette("websockets", "rookery")`.
#' @export
WebSocket <- R6::R6Class(
  "WebSocket",
  public = list(
    #' @description Made by the server.
    initialize = function(handle, req, protocol = "") {
      self$handle <- handle
      self$request <- req
      self$protocol <- protocol
    },
    #' @description Adds a function that is called for each message.
    onMessage = function(func) {
      # Looked at here first: the call makes garbage, and R keeps the pages that it takes for the garbage of an opening.
      if (!is.function(func)) check_function(func, "func")
      .Call(ffi_ws_add, self, func, 0L)
      invisible(callback_remover(self, func, 0L))
    },
    #' @description Adds a function that is called when the connection has ended.
    onClose = function(func) {
      if (!is.function(func)) check_function(func, "func")
      .Call(ffi_ws_add, self, func, 1L)
      invisible(callback_remover(self, func, 1L))
    },
    #' @description Adds a function of no arguments that is called when what waited for the client has been sent, after `$send()`
    #'   had returned `FALSE`.
    onDrain = function(func) {
      if (!is.function(func)) check_function(func, "func")
      .Call(ffi_ws_add, self, func, 2L)
      invisible(callback_remover(self, func, 2L))
    },
    #' @description Sends a message. Never waits: what the client does not take is queued, up to a limit. Returns `TRUE`
    #'   or `FALSE`, see above.
    send = function(message) {
      # `self$handle` would look for a method of `$` for each of the object's classes first, at each message.
      handle <- .subset2(self, "handle")
      if (is.null(handle)) {
        return(invisible(FALSE))
      }
      invisible(.Call(ffi_ws_send, handle, message))
    },
    #' @description How many bytes wait to be sent to the client, as one number.
    bufferedAmount = function() {
      .Call(ffi_ws_queued_bytes, self$handle)
    },
    #' @description Sends a ping, which the client's software answers by itself. The server sends one every 20 seconds as it is.
    #'   Returns `TRUE`, or `FALSE` when the connection has ended, invisibly.
    ping = function() {
      invisible(.Call(ffi_ws_ping, self$handle))
    },
    #' @description Closes the connection.
    close = function(code = 1000L, reason = "") {
      if (is.null(self$handle)) {
        return(NULL)
      }
      number <- suppressWarnings(as.integer(code))
      if (length(number) != 1 || is.na(number) || number < 0 || number > 65535) {
        warning("Invalid websocket error code: ", code, call. = FALSE)
        number <- 1001L
      }
      handle <- self$handle
      self$handle <- NULL
      .Call(ffi_ws_close, handle, number, enc2utf8(as.character(reason)[1]))
    },
    handle = NULL,
    messageCallbacks = list(),
    closeCallbacks = list(),
    drainCallbacks = list(),
    request = NULL,
    protocol = ""
  )
)

# Takes back what ffi_ws_add() has added, once.
callback_remover <- function(ws, func, kind) {
  force(ws)
  force(func)
  function() {
    .Call(ffi_ws_remove, ws, func, kind)
    ws <<- func <<- NULL
    invisible()
  }
}
