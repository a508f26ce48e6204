#' rookery: a fast HTTP and WebSocket server for R
#'
#' An app is a list, an environment or an R6 object with a function `call`, which takes a request and returns a
#' response; `onHeaders`, which sees a request before its body has been read; and `onWSOpen`, which is given each
#' [WebSocket]. See [startServer()] for all of it, and [runServer()] for the shortest way to serve one.
#'
#' The network runs on a thread of its own, in Rust. R is called on its main thread only, whenever [service()],
#' [runServer()] or the event loop of package later has its turn.
#'
#' @section Errors:
#' Each error that this package raises has the class `rookery_error` and a more specific class, with
#' which you can handle it:
#' `tryCatch(startServer(...), rookery_no_server = function(error) error$reason)`.
#' * `rookery_bad_argument`: an argument, or a field of an argument, is wrong. Such an error has a
#'   further class if it comes from [tls_config()] or [acme()] (`rookery_bad_tls`),
#'   [WebSocketClient] (`rookery_bad_client`) or [workers_config()] (`rookery_bad_workers`); its
#'   message then begins with the name of that function.
#' * `rookery_bad_address`, `rookery_bad_limit`, `rookery_bad_log`, `rookery_bad_setting`,
#'   `rookery_bad_target`: an argument of [serve()], or a value in a `_server.yml`, is wrong.
#' * `rookery_no_server`: a server cannot be started; `$reason` says why. [serve()] raises
#'   `rookery_port_in_use` and `rookery_no_address` instead. `rookery_no_port`: no port is free.
#'   `rookery_no_client`: a client cannot be started.
#' * `rookery_no_target`, `rookery_no_package`, `rookery_no_compat`, `rookery_no_cli`,
#'   `rookery_httpuv_loaded`: something that is needed (an app, a package, the command `rookery`) is
#'   missing, or httpuv has been loaded already.
#' * `rookery_exit`: the R process that served a path has ended; `$status` is its exit status.
#' * `rookery_service_failed`: [service()] cannot go on.
#' * `rookery_bad_state`, `rookery_queue_full`, `rookery_in_fork`, `rookery_restored`: the object
#'   cannot do this in its present state, or not in this R process.
#' * `rookery_bad_stream`, `rookery_body_gone`, `rookery_body_unreadable`: a body or a stream is
#'   wrong, or no longer available. `rookery_bad_app`, `rookery_bad_static_path`: an app or one of
#'   its static paths is wrong.
#'
#' Warnings have the class `rookery_warning` and a more specific class such as
#' `rookery_unknown_field`, `rookery_client_failed` or `rookery_static_paths_unconfirmed`.
#'
#' @useDynLib rookery, .registration = TRUE
#' @keywords internal
"_PACKAGE"
