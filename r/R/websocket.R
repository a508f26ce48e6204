#' A WebSocket connection
#'
#' An app's `onWSOpen` is given one of these for each WebSocket that a client opens.
#'
#' `$onMessage(func)` adds a function of `binary` (is the message binary?) and `message` (a string, or a raw vector;
#' text with a NUL, which R's strings cannot hold, comes as binary). `$onClose(func)` adds a function of no
#' arguments, called once, when the connection has ended, however it ended. `$send(message)` sends a raw vector as a
#' binary message and anything else as text (its first element); on a connection that has ended it does nothing.
#' `$close(code, reason)` starts the closing handshake.
#'
#' An error in a message callback is printed, and closes the connection with code 1011.
#'
#' @field handle The connection; `NULL` when it has ended.
#' @field messageCallbacks,closeCallbacks The functions added so far.
#' @field request The request that opened the connection, see [startServer()].
#' @param handle The connection.
#' @param req The request that opened it.
#' @param func A function.
#' @param message A raw vector, or a string.
#' @param code The close code: 1000, or one of 3000 to 4999.
#' @param reason Why, in at most 123 bytes of UTF-8.
#' @export
WebSocket <- R6::R6Class(
  "WebSocket",
  public = list(
    #' @description Made by the server.
    initialize = function(handle, req) {
      self$handle <- handle
      self$request <- req
    },
    #' @description Adds a function that is called for each message.
    onMessage = function(func) {
      # Looked at here first: the call makes garbage, and R keeps the pages that it takes for the garbage of an opening.
      if (!is.function(func)) check_function(func, "func")
      invisible(.Call(ffi_ws_add, self, func, FALSE))
    },
    #' @description Adds a function that is called when the connection has ended.
    onClose = function(func) {
      if (!is.function(func)) check_function(func, "func")
      invisible(.Call(ffi_ws_add, self, func, TRUE))
    },
    #' @description Sends a message. Never waits: what the client does not take is queued, up to a limit.
    send = function(message) {
      # `self$handle` would look for a method of `$` for each of the object's classes first, at each message.
      handle <- .subset2(self, "handle")
      if (is.null(handle)) {
        return(NULL)
      }
      if (!is.raw(message)) {
        message <- as.character(message)
      }
      .Call(ffi_ws_send, handle, message)
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
    request = NULL
  )
)
