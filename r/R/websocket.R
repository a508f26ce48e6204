#' A WebSocket connection
#'
#' `onWSOpen` of an app is called with such an object for each WebSocket that a
#' client opens.
#'
#' `$onMessage(func)` adds a function of two arguments: `binary`, which is
#' `TRUE` for a binary message, and `message`, a string or a raw vector. Text
#' with a NUL, which R's strings cannot hold, is passed as binary.
#' `$send(message)` sends a raw vector as a binary message, and the first
#' element of any other vector as text. After the connection has ended, it does
#' nothing. `$close(code, reason)` starts the closing handshake.
#'
#' `$onClose(func)` adds a function that is called once when the connection has
#' ended for any reason. If its first argument has no default and is not `...`,
#' it is called with a list: `target` is the WebSocket; `code` and `reason` are
#' those of the client's close frame (code 1005 if the frame had none, 1006 if
#' the connection ended without a close frame); `wasClean` is whether both sides
#' sent a close frame. Any other function is called without arguments.
#'
#' `$send()` never waits. It invisibly returns `TRUE` if more can be sent at
#' once. `FALSE` means either that more than 1 MiB is queued for the client, in
#' which case the message was queued as well and `$onDrain(func)` is called when
#' you can continue; or that the connection has ended, in which case
#' `$onClose()` callbacks run. If 64 MiB are queued, the connection is closed.
#' `$bufferedAmount()` returns the number of queued bytes.
#'
#' `$onMessage()`, `$onClose()` and `$onDrain()` invisibly return a function
#' that removes the callback.
#'
#' An error in a message callback is logged, and closes the connection with code
#' 1011.
#'
#' @field handle The server's internal handle of the WebSocket; `NULL` after the
#'   connection has ended.
#' @field messageCallbacks,closeCallbacks,drainCallbacks The functions that were
#'   added with `$onMessage()`, `$onClose()` and `$onDrain()`.
#' @field request The request that opened the connection, as described for
#'   [startServer()].
#' @field protocol The subprotocol, or `""` for none. [accept_ws()] describes
#'   how it is chosen.
#' @param handle The server's internal handle of the WebSocket.
#' @param req The request that opened the WebSocket.
#' @param protocol The subprotocol of the WebSocket.
#' @param func The callback to add, a function that is called when the event
#'   occurs.
#' @param message The message to send to the client: a raw vector or a string.
#' @param code The code of the close frame: 1000, or a number from 3000 to 4999.
#' @param reason The reason for closing the WebSocket, in at most 123 bytes of
#'   UTF-8.
#' @seealso `vignette("websockets", "rookery")`.
#' @export
WebSocket <- R6::R6Class(
  "WebSocket",
  public = list(
    #' @description Called by the server only.
    initialize = function(handle, req, protocol = "") {
      self$handle <- handle
      self$request <- req
      self$protocol <- protocol
    },
    #' @description Adds a function that is called for each message.
    onMessage = function(func) {
      # Checked here first, because a call allocates memory for each opened WebSocket, and R keeps
      # the pages.
      if (!is.function(func)) check_function(func, "func")
      if (!is.null(.globals$shiny)) func <- observed_message(func)
      .Call(ffi_ws_add, self, func, 0L)
      invisible(callback_remover(self, func, 0L))
    },
    #' @description Adds a function that is called when the connection has ended.
    onClose = function(func) {
      if (!is.function(func)) check_function(func, "func")
      if (!is.null(.globals$shiny)) func <- observed_close(func)
      .Call(ffi_ws_add, self, func, 1L)
      invisible(callback_remover(self, func, 1L))
    },
    #' @description Adds a function without arguments that is called when all
    #'   queued data was sent, after `$send()` has returned `FALSE`.
    onDrain = function(func) {
      if (!is.function(func)) check_function(func, "func")
      .Call(ffi_ws_add, self, func, 2L)
      invisible(callback_remover(self, func, 2L))
    },
    #' @description Sends a message. Never waits: data that the client does not
    #'   receive yet is queued, up to a limit. Returns `TRUE` or `FALSE` as
    #'   described above.
    send = function(message) {
      # `self$handle` would search for a method of `$` for each class of the object, for each
      # message.
      handle <- .subset2(self, "handle")
      if (is.null(handle)) {
        return(invisible(FALSE))
      }
      invisible(.Call(ffi_ws_send, handle, message))
    },
    #' @description Returns the number of bytes that are queued for the client.
    bufferedAmount = function() {
      .Call(ffi_ws_queued_bytes, self$handle)
    },
    #' @description Sends a ping, to which the client's software responds by
    #'   itself. The server also sends a ping every 20 seconds. Invisibly
    #'   returns `TRUE`, or `FALSE` if the connection has ended.
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

# Returns a function that removes the callback added by ffi_ws_add(), once.
callback_remover <- function(ws, func, kind) {
  force(ws)
  force(func)
  function() {
    .Call(ffi_ws_remove, ws, func, kind)
    ws <<- func <<- NULL
    invisible()
  }
}
