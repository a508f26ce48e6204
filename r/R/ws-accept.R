# Who may open a WebSocket, and how it is accepted.

#' Accept a WebSocket
#'
#' What an app's `onHeaders` returns to accept a WebSocket with more than the app says for all: a subprotocol of its own choice, or
#' headers such as a cookie. `NULL` accepts as well; a response refuses, with its status.
#'
#' A subprotocol is spoken only if the client offers it: of several, the first that it offers. Without one in common the WebSocket
#' is opened without a subprotocol, and `ws$protocol` is `""`; whoever insists on one returns a response with status 400 instead.
#'
#' @param protocol The subprotocols that may be spoken, the best first; `NULL` for those in the app's `wsProtocols`.
#' @param headers Headers of the answer, a named list or character vector.
#' @return An object for `onHeaders` to return.
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
#' @seealso [startServer()] for `wsProtocols` and `wsOrigins`, [WebSocket].
#' @export
accept_ws <- function(protocol = NULL, headers = list()) {
  if (!is.null(protocol)) check_protocols(protocol, "protocol")
  is_named <- (is.list(headers) || is.character(headers)) && (length(headers) == 0 || !is.null(names(headers)))
  if (!is_named) {
    stop("`headers` must be a named list or a named character vector, not ", describe(headers), ".", call. = FALSE)
  }
  own <- grep("^(sec-websocket-|upgrade$|connection$)", names(headers), ignore.case = TRUE, value = TRUE)
  if (length(own) > 0) {
    stop(
      "`headers` must not have ", own[[1]], ", which the server writes by itself: name a subprotocol in `protocol`.",
      call. = FALSE
    )
  }
  structure(list(protocol = protocol, headers = headers), class = "rookery_accept_ws")
}

# Names of subprotocols: tokens of RFC 9110, 5.6.2, each once.
check_protocols <- function(value, name) {
  if (!is.character(value) || anyNA(value) || anyDuplicated(value) > 0 || !all(grepl("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$", value))) {
    stop(
      "`", name, "` must be names of subprotocols, such as \"chat\", each once and without spaces or commas, not ",
      if (is.character(value)) paste(encodeString(value, quote = "\""), collapse = ", ") else describe(value), ".",
      call. = FALSE
    )
  }
}

# The hosts beside the server's own whose pages may open WebSockets; NULL: all may.
read_origins <- function(origins) {
  name <- "app$wsOrigins"
  if (is.null(origins)) {
    origins <- getOption("rookery.ws_origins")
    name <- "getOption(\"rookery.ws_origins\")"
    if (is.null(origins)) {
      return(NULL)
    }
  }
  is_host <- is.character(origins) & grepl("^([*][.])?[-_.0-9A-Za-z]+(:[0-9]+)?$|^\\[[0-9A-Fa-f:.]+\\](:[0-9]+)?$", origins)
  if (!is.character(origins) || anyNA(origins) || !all(is_host)) {
    wrong <- if (is.character(origins)) encodeString(origins[!is_host][[1]], quote = "\"") else describe(origins)
    stop(
      "`", name, "` must be \"same\", or hosts such as \"example.org\", \"*.example.org\" or \"localhost:8000\" without `https://`, not ",
      wrong, ".",
      call. = FALSE
    )
  }
  setdiff(origins, "same")
}
