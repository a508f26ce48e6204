#' rookery: a fast HTTP and WebSocket server for R
#'
#' An app is a function of a request, or a list, an environment or an R6 object
#' with a function `call` that takes a request and returns a response. It may
#' also have `onHeaders`, which is called before the body of a request is read,
#' and `onWSOpen`, which is called with each [WebSocket]. [startServer()]
#' describes apps, and [runServer()] is the shortest way to serve one.
#'
#' Connections are handled on a separate thread, in Rust. R code runs on R's
#' main thread only, while [service()], [runServer()] or the event loop of
#' package later runs.
#'
#' @section Errors:
#' Each error that this package raises has the class `rookery_error` and a more
#' specific class, with which you can handle it: `tryCatch(startServer(...),
#' rookery_no_server = function(error) error$reason)`. The condition object has
#' one of two fields: `$argument`, the name of the wrong argument, field or
#' setting, or `$reason`, the cause as one string.
#' * `rookery_bad_argument`: an argument, or a field of an argument, is wrong.
#'   Such an error has a further class if it comes from [tls_config()] or
#'   [acme()] (`rookery_bad_tls`), [WebSocketClient] (`rookery_bad_client`),
#'   [workers_config()] (`rookery_bad_workers`) or [server_limits()]
#'   (`rookery_bad_limit`).
#' * `rookery_bad_address`, `rookery_bad_limit`, `rookery_bad_log`,
#'   `rookery_bad_setting`, `rookery_bad_target`: an argument of [serve()], or a
#'   value in a `_server.yml`, is wrong.
#' * `rookery_no_server`: a server cannot be started; `$reason` says why. If
#'   [serve()] of an object cannot listen on its address, it raises
#'   `rookery_port_in_use` or `rookery_no_address` instead. `rookery_no_port`: no
#'   port is free.
#'   `rookery_no_client`: a client cannot be started.
#' * `rookery_no_target`, `rookery_no_package`, `rookery_no_compat`,
#'   `rookery_no_cli`, `rookery_httpuv_loaded`: something that is needed (an
#'   app, a package, the command `rookery`) is missing, or httpuv was loaded
#'   before.
#' * `rookery_exit`: the program that served a path has ended with an error;
#'   `$status` is its exit status.
#' * `rookery_unsupported`: Windows does not have what is requested.
#' * `rookery_service_failed`: [service()] cannot continue, because the server's
#'   I/O thread has ended.
#' * `rookery_bad_state`, `rookery_queue_full`, `rookery_in_fork`,
#'   `rookery_restored`: a method or function cannot be used in the present
#'   state of its object, or not in this R process.
#' * `rookery_bad_stream`, `rookery_body_gone`, `rookery_body_unreadable`: a
#'   body or a stream is wrong, or no longer available. `rookery_bad_app`,
#'   `rookery_bad_static_path`: an app or one of its static paths is wrong.
#'
#' Warnings have the class `rookery_warning` and a more specific class such as
#' `rookery_unknown_field`, `rookery_unknown_variable`,
#' `rookery_unknown_option`, `rookery_client_failed` or
#' `rookery_static_paths_unconfirmed`.
#'
#' @section Names and lifecycle:
#' Functions, arguments and methods that exist in httpuv or in the package
#' websocket have the same names and positions as there, in camelCase. All
#' others are in snake_case, and their arguments after `...` must be given by
#' name.
#'
#' Everything is stable except what its help page calls experimental: [acme()],
#' [workers_config()] and the arguments `workers` and `admin` of [serve()].
#' Their arguments and behaviour may change in any release, as the change log
#' then says.
#'
#' @useDynLib rookery, .registration = TRUE
#' @keywords internal
"_PACKAGE"
