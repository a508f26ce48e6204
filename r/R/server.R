#' Start a server
#'
#' Starts an HTTP and WebSocket server for an app. The server accepts
#' connections as soon as this function returns. The app is called while
#' [service()] runs, or while R is idle.
#'
#' @section The app:
#' An app is a list, environment, R6 object or reference class object with some
#' of the following fields, or a function, which is used as `call`:
#' \describe{
#'   \item{`call(req)`}{returns the response to a request (see *The response*).}
#'   \item{`onHeaders(req)`}{is called before the body of a request is read.
#'     `NULL` continues with the request, a response ends it, and
#'     [receive_body()] receives the body in chunks. For a WebSocket, a response
#'     refuses the handshake, and [accept_ws()] accepts it.}
#'   \item{`onWSOpen(ws)`}{is called with the [WebSocket] when a client has
#'     opened one.}
#'   \item{`wsProtocols`}{the subprotocols that the app supports, in order of
#'     preference. The first one that the client offers is chosen, and is
#'     `ws$protocol`.}
#'   \item{`wsOrigins`}{the hosts whose pages may open WebSockets: `"same"` for
#'     the host of the request only, or further names such as `"example.org"`,
#'     `"*.example.org"` or `"localhost:8000"`. Other pages get status 403, and
#'     the app is not called. `NULL`, the default, uses the option
#'     `rookery.ws_origins`; without that option any page is allowed, as with
#'     httpuv. Apps that identify users by cookies should set it, because
#'     browsers send cookies with the handshakes of any page.}
#'   \item{`wsCompression`}{whether WebSocket messages are compressed
#'     (permessage-deflate) if the client offers it: `FALSE`, `TRUE`, or a list
#'     with some of `level` (from 1, fastest, to 9; default 2), `threshold` (the
#'     smallest message in bytes that is compressed; default 512) and `takeover`
#'     (context takeover: better compression, for at most 64 clients with half a
#'     megabyte each; default `FALSE`). `NULL`, the default, uses the option
#'     `rookery.ws_compression`, and without that option `FALSE`. Do not
#'     compress secrets together with text from untrusted sources in one message
#'     or, with `takeover`, in one connection: the compressed length reveals
#'     what they have in common.}
#'   \item{`onError(cond, req, info)`}{is called for each error (see *Errors*).}
#'   \item{`staticPaths`}{folders and files that are served without R, see
#'     [staticPath()].}
#'   \item{`staticPathOptions`}{common options of the static paths, see
#'     [staticPathOptions()].}
#' }
#'
#' @section The request:
#' The argument `req` of the app's functions is an environment with
#' `REQUEST_METHOD`, `PATH_INFO` (not decoded), `QUERY_STRING` (with its `?`),
#' `HTTP_*` and `HEADERS`, `CONTENT_TYPE`, `CONTENT_LENGTH`, `SERVER_NAME`,
#' `SERVER_PORT`, `REMOTE_ADDR`, `REMOTE_PORT`, `REQUEST_ID` and `rook.input`.
#' The methods `$read(l)`, `$read_lines(n)` and `$rewind()` of `rook.input` read
#' the body. Once clients have sent more than 4,096 different header names, `$`,
#' `[[`, `names()` and `as.list()` find headers with new names, but `ls()` and
#' `get()` do not. `REQUEST_ID` is the `X-Request-Id` that a trusted proxy sent,
#' otherwise the trace id in the proxy's `traceparent`, otherwise an id that the
#' server creates. The access log contains the same id.
#'
#' @section The response:
#' A response is a list (or environment, R6 object or reference class object)
#' with `status`, a number; `headers`, a named list or character vector; and
#' `body`: a string, a raw vector, `NULL`, `list(file = path, owned = FALSE)`, a
#' function that returns chunks as described for [stream_body()], or the object
#' of [stream_response()]. A promise of a response is allowed as well, and so is
#' any object that [promises::is.promising()] accepts, such as a future. Any other
#' value, and any error, results in status 500 and a message on stderr with the
#' route, the request id, and the calls that led to the error.
#'
#' Strings in bodies and headers are converted to UTF-8. Strings that are marked
#' as `"bytes"`, and raw vectors, are sent unchanged. A `Content-Type` is not
#' changed: if it names another charset, convert the body to a raw vector in
#' that charset with [iconv()].
#'
#' @section Errors:
#' By default, clients get status 500 and the request id, but no details of an
#' error. The error response is `application/problem+json` for clients that
#' accept JSON, otherwise text. The setting `error_detail` shows clients more,
#' as described for [rookery_options()]. If the app itself returns a response
#' with status 500, it is sent unchanged, and its request id is logged on
#' stderr.
#'
#' `onError` is called once for each error, before the response is sent, with as
#' many of its three arguments as it has: the condition; the request, or `NULL`
#' if it is no longer available; and a list with
#' * `stage`: `"call"`, `"onHeaders"`, `"response"`, `"promise"`, `"stream"`,
#'   `"receive"`, `"onWSOpen"`, `"message"`, `"close"`, `"drain"` or
#'   `"request"`;
#' * `request_id`;
#' * `trace`: the calls that led to the error, as lines of text;
#' * `frames`: the same as a data frame with columns `call`, `file`, `line` and
#'   `package`;
#' * `seconds` since R began with the request;
#' * `headers` of the request, with secrets masked.
#'
#' If `onError` returns a response and none has been started, that response is
#' sent. If a streamed response has failed, only the text of the body is used. A
#' promise is not accepted. An error within `onError` is logged and not reported
#' again. Use [plumber_errors()] for a plumber API.
#'
#' @section Large bodies:
#' A request body of more than 1 MiB is stored in an unnamed file while the app
#' reads it. The file is in the folder that the option `rookery.spool_dir` names
#' when the server is started, or else in R's [tempdir()]. If `/tmp` is in
#' memory, such files count towards `max_client_memory`; choose a folder on a
#' disk: `options(rookery.spool_dir = "/var/tmp")`.
#' The server leaves 1 GiB of the file system free, or a tenth of the file
#' system if that is less, and all request bodies together take at most three
#' quarters of what is free. A request that needs more space gets status 507,
#' and the server writes a message with the folder to stderr.
#'
#' @section In a worker:
#' In an R process that `rookery serve` has started, the first server with an
#' app serves the clients of `rookery serve`. It does not listen on its `host`
#' and `port`, although `$getHost()` and `$getPort()` return them. Printing the
#' server object shows the worker's name. The certificates, trusted proxies and
#' access log are those of `rookery serve`, and `tls` is ignored.
#' Further servers, and servers without an app, listen on the address that they
#' were given. A port can be used by only one of the workers.
#'
#' @section Conditions:
#' Errors, warnings and other conditions in the app's functions do not reach
#' handlers that [withCallingHandlers()] has established around `service()`.
#'
#' @param host The address to listen on, as a literal IPv4 or IPv6 address:
#'   `"127.0.0.1"`, or `"localhost"`, accepts connections from this machine only,
#'   `"0.0.0.0"` or `"::"` from all networks.
#' @param port The port to listen on, from 0 to 65535. With 0, the system
#'   chooses a free port, which `$getPort()` returns.
#' @param app The app, as described in the section *The app*. With `NULL` or an
#'   empty list, the server only serves static paths, and all other requests get
#'   status 404.
#' @param quiet Whether to suppress the message on stderr if the server cannot
#'   be started.
#' @param tls The certificates for HTTPS: the value of [tls_config()], or
#'   `"dev"` for a self-signed certificate for this machine. With `NULL`, the
#'   server uses plaintext HTTP.
#' @param limits The limits of this R process: the value of [server_limits()].
#'   They apply to all servers of the process, so a further server must have the
#'   limits of those that run. `NULL` uses the limits in [rookery_options()].
#' @return A server object with `$stop()`, `$isRunning()`, `$getHost()`,
#'   `$getPort()`, `$reload_tls()` (see [tls_config()]) and, for static paths,
#'   `$getStaticPaths()`, `$setStaticPath()`, `$removeStaticPath()`,
#'   `$getStaticPathOptions()` and `$setStaticPathOption()`. If the server
#'   cannot be started, `startServer()` raises an error of class
#'   `rookery_no_server`, whose message ends with the cause, which is also in
#'   `$reason`.
#' @examples
#' server <- startServer("127.0.0.1", 0, function(req) {
#'   list(status = 200L, headers = list("Content-Type" = "text/plain"), body = "Hello, World!")
#' })
#' server$getPort()
#' server$stop()
#' @export
startServer <- function(host, port, app, quiet = FALSE, tls = NULL, limits = NULL) {
  WebServer$new(host, port, app, quiet, tls, limits)
}

#' @param name The path of the Unix socket to listen on. An existing socket on
#'   which no process listens is replaced.
#' @param mask The umask with which the socket is created, as an integer. `NULL`
#'   uses the umask of the process.
#' @rdname startServer
#' @export
startPipeServer <- function(name, mask, app, quiet = FALSE, tls = NULL, limits = NULL) {
  PipeServer$new(name, mask, app, quiet, tls, limits)
}

#' @rdname startServer
#' @export
startDaemonizedServer <- startServer

#' Run a server until it is interrupted
#'
#' Starts a server, serves until [interrupt()] is called, the server is stopped
#' or Ctrl-C is pressed, and stops the server. An error in a callback of package
#' later also stops the server, and `runServer()` raises it, as with httpuv.
#' [serve()] reports such an error and continues.
#'
#' @inheritParams startServer
#' @param interruptIntervalMs Ignored. This argument exists only for
#'   compatibility with httpuv.
#' @return `TRUE`, when `interrupt()` was called or the server has stopped.
#' @examples
#' \dontrun{
#' runServer("127.0.0.1", 8000, function(req) {
#'   list(status = 200L, headers = list("Content-Type" = "text/plain"), body = "Hello, World!")
#' })
#' }
#' @export
runServer <- function(host, port, app, interruptIntervalMs = NULL, tls = NULL, limits = NULL) {
  run_server(startServer(host, port, app, tls = tls, limits = limits))
}

# Serves until interrupt() is called or the server is stopped.
run_server <- function(server) {
  outer <- .globals$awaited
  .globals$awaited <- server
  on.exit({
    .globals$awaited <- outer
    stopServer(server)
  })
  service(0)
}

#' Stop servers
#'
#' `stopServer()` stops a server: it accepts no further connections, sends the
#' responses that are complete, closes WebSockets with code 1001, and frees the
#' port. The `onClose` callbacks of the WebSockets run in the next [service()].
#' `stopAllServers()` stops all servers of the process.
#'
#' @param server The server to stop, as [startServer()] or [startPipeServer()]
#'   returned it.
#' @return `stopServer()` returns `NULL`, invisibly. `listServers()` returns the
#'   running servers in the order in which they were started.
#' @examples
#' server <- startServer("127.0.0.1", 0, list())
#' listServers()
#' stopServer(server)
#' @export
stopServer <- function(server) {
  if (!inherits(server, "Server")) {
    abort_argument("Object must be an object of class Server.", argument = "server")
  }
  server$stop()
}

#' @rdname stopServer
#' @export
stopDaemonizedServer <- stopServer

#' @rdname stopServer
#' @export
stopAllServers <- function() {
  for (server in .globals$servers) {
    server$stop()
  }
  invisible()
}

#' @rdname stopServer
#' @export
listServers <- function() {
  .globals$servers
}

# The function has one argument, as packages that call it with `:::` expect.
registerServer <- function(server) {
  .globals$servers <- c(.globals$servers, server)
}

deregisterServer <- function(server) {
  is_it <- vapply(.globals$servers, identical, logical(1), server)
  if (!any(is_it)) {
    warning(
      "Unable to deregister server: server not found in list of running servers.", call. = FALSE
    )
  }
  .globals$servers <- .globals$servers[!is_it]
}

# The base class of servers on a port and on a Unix socket.
Server <- R6::R6Class(
  "Server",
  cloneable = FALSE,
  public = list(
    stop = function() {
      if (private$is_restored()) {
        warning("Nothing to stop: ", restored_server, call. = FALSE)
        private$running <- FALSE
      }
      if (!private$running) {
        return(invisible())
      }
      private$running <- FALSE
      deregisterServer(self)
      # A forked process only forgets the server, which still runs in the process that started it.
      .Call(ffi_stop, as.integer(private$handle))
      # run_server() waits for it.
      if (identical(.globals$awaited, self)) interrupt()
      invisible()
    },
    isRunning = function() {
      private$running && !private$is_restored() && private$is_here()
    },
    # Returns TRUE, or FALSE for a server without HTTPS. After an error, the previous certificates
    # stay in use.
    reload_tls = function() {
      if (!private$serves()) {
        return(invisible(FALSE))
      }
      problem <- .Call(ffi_tls_reload, as.integer(private$handle))
      if (is.character(problem) && nzchar(problem)) {
        abort(problem, "rookery_bad_tls")
      }
      invisible(is.null(problem))
    },
    getStaticPaths = function() {
      if (private$serves()) site_paths(private$site)
    },
    setStaticPath = function(..., .list = NULL) {
      if (!private$serves()) {
        return(invisible())
      }
      site_set_paths(private$site, normalizeStaticPaths(c(list(...), .list)))
      invisible(self$getStaticPaths())
    },
    removeStaticPath = function(path) {
      if (!private$serves()) {
        return(invisible())
      }
      if (!is.null(path) && (!is.character(path) || anyNA(path))) {
        abort_argument(
          "`path` must be names of static paths, as a character vector, not ", describe(path), "."
        )
      }
      site_remove_paths(private$site, as.character(path))
      invisible(self$getStaticPaths())
    },
    getStaticPathOptions = function() {
      if (private$serves()) site_options(private$site)
    },
    setStaticPathOption = function(..., .list = NULL) {
      if (!private$serves()) {
        return(invisible())
      }
      site_set_options(private$site, c(list(...), .list))
      invisible(self$getStaticPathOptions())
    }
  ),
  private = list(
    appWrapper = NULL,
    handle = NULL,
    is_https = FALSE,
    running = FALSE,
    session = NULL,
    site = NULL,
    # Returns whether this object was saved while its server ran, and restored. Its handle is then
    # invalid or belongs to another server.
    is_restored = function() {
      private$running && !identical(private$session, .globals$session)
    },
    # The process in which the server listens: a forked process has a copy of this object and no
    # server.
    pid = NULL,
    is_here = function() {
      identical(private$pid, Sys.getpid())
    },
    # Returns whether the server runs and belongs to this process.
    serves = function() {
      if (private$is_restored()) {
        abort(restored_server, "rookery_restored")
      }
      if (private$running && !private$is_here()) {
        abort(forked_server, "rookery_in_fork")
      }
      private$running
    },
    # `bind` calls the C function that listens. If that fails, it returns a string with the reason.
    listen = function(app, quiet, tls, limits, what, bind) {
      check_app(app)
      check_flag(quiet, "quiet")
      if (is_loading() && has_app(app)) {
        # Checks the fields of the app.
        AppWrapper$new(app)
        end_loading()
      }
      inherits_socket <- takes_worker_requests(app)
      prepare()
      # At its prompt, R waits in its event loop, in which only package later can call the server's
      # code. On Windows, R's event loop cannot load it later (later_scheduling.c).
      if (interactive() || is_windows()) loadNamespace("later")
      spool <- spool_dir()
      proxies <- setting_of("trusted_proxies")$value
      proxy_header <- setting_of("proxy_protocol")$value
      proxy_senders <- proxy_senders(proxy_header, proxies)
      # A supervisor warns in place of its workers.
      if (proxy_header && what == "createTcpServer" && !is_worker()) {
        warn_without_senders(proxy_senders)
      }
      if (inherits_socket) {
        ignore_tls(tls)
        report_settings_without_effect(limits)
        tls <- NULL
      } else {
        tls <- tls_open(tls)
      }
      warn_unknown_settings()
      apply_limits(limits)
      use_otel()
      detail <- setting_of("error_detail")$value
      private$is_https <- !is.null(tls)
      private$appWrapper <- AppWrapper$new(app)
      private$site <- site_new(private$appWrapper$staticPaths, private$appWrapper$staticPathOptions)
      handlers <- private$appWrapper$handlers()
      settings <- list(
        handlers$has_on_headers, handlers$has_on_error, detail != "httpuv", detail,
        interrupt_after(), setting_of("server_timing")$value
      )
      tells_id <- setting_of("request_id_header")$value
      if (inherits_socket && is_only_worker() && !is.null(.globals$on_listen)) {
        .globals$on_listen(self)
      }
      bound <- bind(list(
        private$site, handlers$app, settings, spool, tls, proxies, proxy_header,
        list(private$appWrapper$wsProtocols, private$appWrapper$wsCompression),
        private$appWrapper$wsOrigins, tells_id,
        as.integer(inherits_socket), inherits_socket && keeps_clients(),
        setting_of("server_timing")$value, keeps_identity_headers(), proxy_senders
      ))
      if (is.character(bound)) {
        if (!quiet) {
          cat(what, ": ", bound, "\n", sep = "", file = stderr())
        }
        # The message begins with that of httpuv, for which packages search.
        abort(paste0("Failed to create server: ", bound), "rookery_no_server", reason = bound)
      }
      private$handle <- as.character(bound[[1]])
      private$appWrapper$connect(private$handle)
      private$running <- TRUE
      private$session <- .globals$session
      private$pid <- Sys.getpid()
      registerServer(self)
      # Shows the start-up screen of serve() once a server listens; in a worker only for the server
      # that gets the clients.
      if (!is.null(.globals$on_listen) && (inherits_socket || !is_worker())) {
        .globals$on_listen(self)
      }
      bound
    }
  )
)

WebServer <- R6::R6Class(
  "WebServer",
  cloneable = FALSE,
  inherit = Server,
  public = list(
    initialize = function(host, port, app, quiet = FALSE, tls = NULL, limits = NULL) {
      check_host(host)
      check_port(port)
      private$host <- host
      private$port <- port
      tls <- tls %||% tls_of_serve(port = port)
      bound <- private$listen(app, quiet, tls, limits, "createTcpServer", function(setup) {
        .Call(ffi_listen_tcp, literal_host(host), if (is.na(port)) 0 else port, setup)
      })
      if (is.na(port) || port == 0) {
        private$port <- bound[[2]]
      }
    },
    getHost = function() {
      private$host
    },
    getPort = function() {
      private$port
    }
  ),
  private = list(
    host = NULL,
    port = NULL
  )
)

PipeServer <- R6::R6Class(
  "PipeServer",
  cloneable = FALSE,
  inherit = Server,
  public = list(
    initialize = function(name, mask, app, quiet = FALSE, tls = NULL, limits = NULL) {
      if (!is.character(name) || length(name) != 1 || is.na(name) || !nzchar(name)) {
        abort_argument("`name` must be the path of a socket, as one string.")
      }
      private$mask <- if (is.null(mask)) -1L else check_mask(mask)
      path <- path.expand(name)
      if (inherits(tls, "rookery_tls") && !is.null(tls$redirect_from)) {
        abort_argument(redirect_needs_port)
      }
      tls <- tls %||% tls_of_serve(socket = path)
      private$listen(app, quiet, tls, limits, "createPipeServer", function(setup) {
        .Call(ffi_listen_unix, path, private$mask, setup)
      })
      # A worker creates no such file.
      private$name <- normalizePath(path, mustWork = FALSE)
    },
    getName = function() {
      private$name
    },
    getMask = function() {
      private$mask
    }
  ),
  private = list(
    name = NULL,
    mask = NULL
  )
)

# Returns the address for `localhost`. Other names are not looked up.
literal_host <- function(host) {
  if (identical(host, "localhost")) "127.0.0.1" else host
}

check_host <- function(host) {
  if (!is.character(host) || length(host) != 1 || is.na(host)) {
    abort_argument(
      "`host` must be an IP address, as one string: \"127.0.0.1\" for this machine only."
    )
  }
}

# Checks a port to listen on. Where 0 is allowed, NA also lets the system choose the port.
check_port <- function(port, least = 0) {
  if (least == 0 && is.atomic(port) && length(port) == 1 &&
        (is.logical(port) || is.numeric(port)) && is.na(port)) {
    return(invisible())
  }
  is_number <- is.numeric(port) && length(port) == 1 && is.finite(port)
  if (!is_number || port < least || port > 65535 || port != trunc(port)) {
    abort_argument(
      "`port` must be one whole number from ", least, " to 65535, not ", describe(port), "."
    )
  }
}
