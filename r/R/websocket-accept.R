# Accepting WebSockets: `accept_ws()`, and the fields `wsProtocols`, `wsOrigins` and `wsCompression`
# of apps.

#' Accept a WebSocket
#'
#' `onHeaders` of an app may return `accept_ws()` to accept a WebSocket with a
#' subprotocol or with response headers, such as a cookie, that are chosen for
#' this client. `NULL` accepts the WebSocket as well, and a response refuses it.
#'
#' The subprotocol is the first one in `protocol` that the client offers. If
#' they have no subprotocol in common, the WebSocket is opened without one, and
#' `ws$protocol` is `""`. To require a subprotocol, return a response with
#' status 400 instead.
#'
#' @param protocol The subprotocols that the app supports, in order of
#'   preference. `NULL` uses the app's `wsProtocols`.
#' @param ... Must be empty. The arguments that follow `...` must be given by
#'   name.
#' @param headers Headers of the response that accepts the WebSocket, as a named
#'   list or character vector.
#' @return An object for the app's `onHeaders` to return, which accepts the
#'   WebSocket.
#' @examples
#' app <- list(
#'   call = function(req) list(status = 404L, headers = list(), body = ""),
#'   onHeaders = function(req) {
#'     if (is.null(req$HTTP_UPGRADE)) {
#'       NULL
#'     } else if (identical(req$HTTP_AUTHORIZATION, "Bearer secret")) {
#'       accept_ws(headers = list("Set-Cookie" = "seen=1; HttpOnly; SameSite=Strict"))
#'     } else {
#'       list(status = 403L, headers = list("Content-Type" = "text/plain"), body = "Who are you?")
#'     }
#'   },
#'   onWSOpen = function(ws) ws$send(paste("This is", ws$protocol)),
#'   wsProtocols = c("graphql-transport-ws", "chat")
#' )
#' @seealso [startServer()] for `wsProtocols` and `wsOrigins`, and [WebSocket].
#' @export
accept_ws <- function(protocol = NULL, ..., headers = list()) {
  check_dots("accept_ws()", ..., known = "headers")
  if (!is.null(protocol)) check_protocols(protocol, "protocol")
  is_named <- (is.list(headers) || is.character(headers)) &&
    (length(headers) == 0 || !is.null(names(headers)))
  if (!is_named) {
    abort_argument(
      "`headers` must be a named list or a named character vector, not ", describe(headers), "."
    )
  }
  is_own <- grepl("^(sec-websocket-|upgrade$|connection$)", ascii_lower(names(headers)))
  own <- names(headers)[is_own]
  if (length(own) > 0) {
    abort_argument(
      "`headers` must not have ", own[[1]],
      ", which the server itself sends: name a subprotocol in `protocol`."
    )
  }
  structure(list(protocol = protocol, headers = headers), class = "rookery_accept_ws")
}

#' @export
format.rookery_accept_ws <- function(x, ...) {
  protocol <- if (is.null(x$protocol)) {
    "chosen from wsProtocols"
  } else if (length(x$protocol) == 0) {
    "none"
  } else {
    paste(x$protocol, collapse = ", ")
  }
  headers <- if (length(x$headers) > 0) {
    paste0("; headers: ", paste(encodeString(names(x$headers)), collapse = ", "))
  }
  paste0("<rookery_accept_ws: protocol ", protocol, headers, ">")
}

# Checks names of subprotocols: unique tokens (RFC 9110, 5.6.2).
check_protocols <- function(value, name) {
  if (!is.character(value) || anyNA(value) || anyDuplicated(value) > 0 ||
        !all(grepl("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$", value))) {
    abort_argument(
      "`", name, "` must be names of subprotocols, such as \"chat\", each once and without ",
      "spaces or commas, not ",
      if (is.character(value)) {
        paste(encodeString(value, quote = "\""), collapse = ", ")
      } else {
        describe(value)
      },
      "."
    )
  }
}

# Returns the further hosts whose pages may open WebSockets; NULL if all may.
read_origins <- function(origins) {
  if (is.logical(origins)) {
    abort_argument("`app$wsOrigins` must be hosts, not ", describe(origins), ".")
  }
  origins <- field_or_setting(origins, "ws_origins", "`app$wsOrigins`")
  if (!is.null(origins)) setdiff(origins, "same")
}

# Returns `wsCompression` as c(level, threshold, takeover); level 0 means off.
read_compression <- function(compression) {
  rules <- field_or_setting(compression, "ws_compression", "`app$wsCompression`")
  if (isFALSE(rules)) {
    return(c(0, 0, 0))
  }
  # Bounded, because messages longer than 2^52 bytes do not exist.
  as.double(c(rules$level, min(rules$threshold, 2^52), rules$takeover))
}

# Returns the value of an app's field, or that of the setting if the app has no such field.
field_or_setting <- function(value, name, where) {
  if (is.null(value)) {
    return(setting_of(name)$value)
  }
  if (length(value) == 0 && is.character(value)) {
    return(value)
  }
  setting_value(value, name, where, "rookery_bad_argument")
}
