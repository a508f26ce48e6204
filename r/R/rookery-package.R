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
#' Each error that this package raises has the class `rookery_error` and a class of its own, by
#' which it can be handled:
#' `tryCatch(startServer(...), rookery_no_server = function(error) error$reason)`.
#' * `rookery_bad_argument`: an argument, or a field of one; also `rookery_bad_tls`,
#'   `rookery_bad_client`, `rookery_bad_workers` of the
#'   constructors [tls_config()] and [acme()], [WebSocketClient] and [workers_config()], whose names
#'   the message has.
#' * `rookery_bad_address`, `rookery_bad_limit`, `rookery_bad_log`, `rookery_bad_setting`,
#'   `rookery_bad_target`: what [serve()] was given, or
#'   a `_server.yml`.
#' * `rookery_no_server`: a server cannot be started; `$reason` says why. Of [serve()]
#'   `rookery_port_in_use` and `rookery_no_address`.
#'   `rookery_no_port`: no port is free. `rookery_no_client`: a client cannot be started.
#' * `rookery_no_target`, `rookery_no_package`, `rookery_no_compat`, `rookery_no_cli`,
#'   `rookery_httpuv_loaded`: what is not there, or is
#'   in the way.
#' * `rookery_exit`: the R process that served a path has ended; `$status` is its exit status.
#' * `rookery_service_failed`: [service()] cannot go on.
#' * `rookery_bad_state`, `rookery_queue_full`, `rookery_in_fork`, `rookery_restored`: an object
#'   that cannot do that now, or not in this
#'   process.
#' * `rookery_bad_stream`, `rookery_body_gone`, `rookery_body_unreadable`: of bodies.
#'   `rookery_bad_app`, `rookery_bad_static_path`: of apps.
#'
#' Warnings have the class `rookery_warning`, and one of their own such as `rookery_unknown_field`
#' or `rookery_client_failed`.
#'
#' @useDynLib rookery, .registration = TRUE
#' @keywords internal
"_PACKAGE"
