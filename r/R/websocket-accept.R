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

#' @export
print.rookery_accept_ws <- function(x, ...) {
  print_line(x)
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
  origins <- if (is.null(origins)) {
    setting_of("ws_origins")$value
  } else {
    check_origins(origins, "`app$wsOrigins`")
  }
  if (!is.null(origins)) setdiff(origins, "same")
}

check_origins <- function(origins, where) {
  is_host <- is.character(origins) & grepl(
    "^([*][.])?[-_.0-9A-Za-z]+(:[0-9]+)?$|^\\[[0-9A-Fa-f:.]+\\](:[0-9]+)?$", origins
  )
  if (!is.character(origins) || anyNA(origins) || !all(is_host)) {
    wrong <- if (is.character(origins)) {
      encodeString(origins[!is_host][[1]], quote = "\"")
    } else {
      describe(origins)
    }
    abort_argument(
      where, " must be \"same\", or hosts such as \"example.org\", \"*.example.org\" or ",
      "\"localhost:8000\" without `https://`, not ",
      wrong, ".",
      argument = first_quoted(where) %||% "ws_origins"
    )
  }
  origins
}

# Returns `wsCompression` as c(level, threshold, takeover); level 0 means off.
read_compression <- function(compression) {
  if (is.null(compression)) {
    setting <- setting_of("ws_compression")
    return(compression_rules(setting$value, setting$where))
  }
  compression_rules(compression, "`app$wsCompression`")
}

compression_rules <- function(compression, where) {
  wrong <- function(what) {
    abort_argument(where, what, argument = first_quoted(where) %||% "ws_compression")
  }
  default <- list(level = 2, threshold = 512, takeover = FALSE)
  if (identical(compression, FALSE)) {
    return(c(0, 0, 0))
  }
  if (identical(compression, TRUE)) {
    compression <- default
  }
  known <- is.list(compression) && length(compression) > 0 && !is.null(names(compression))
  if (!known || !all(names(compression) %in% names(default)) ||
        anyDuplicated(names(compression)) > 0) {
    wrong(paste0(
      " must be TRUE, FALSE, or a list of `level`, `threshold` and `takeover`, not ",
      describe(compression), "."
    ))
  }
  all <- utils::modifyList(default, compression)
  is_number <- function(x, from, to) {
    is.numeric(x) && length(x) == 1 && !is.na(x) && x >= from && x <= to
  }
  if (!is_number(all$level, 1, 9) || all$level != trunc(all$level)) {
    wrong(paste0(": `level` must be a whole number from 1 to 9, not ", describe(all$level), "."))
  }
  if (!is_number(all$threshold, 0, Inf)) {
    wrong(paste0(": `threshold` must be a number of bytes, not ", describe(all$threshold), "."))
  }
  if (!isTRUE(all$takeover) && !isFALSE(all$takeover)) {
    wrong(paste0(": `takeover` must be TRUE or FALSE, not ", describe(all$takeover), "."))
  }
  # Bounded, because messages longer than 2^52 bytes do not exist.
  as.double(c(all$level, min(all$threshold, 2^52), all$takeover))
}
