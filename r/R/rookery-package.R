#' rookery: a fast HTTP and WebSocket server for R
#'
#' An app is a list, an environment or an R6 object with a function `call`, which takes a request and returns a
#' response; `onHeaders`, which sees a request before its body has been read; and `onWSOpen`, which is given each
#' [WebSocket]. See [startServer()] for all of it, and [runServer()] for the shortest way to serve one.
#'
#' The network runs on a thread of its own, in Rust. R is called on its main thread only, whenever [service()],
#' [runServer()] or the event loop of package later has its turn.
#'
#' @useDynLib rookery, .registration = TRUE
#' @keywords internal
"_PACKAGE"
