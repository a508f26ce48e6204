#' Start a server
#'
#' Starts an HTTP and WebSocket server for an app. The server accepts connections as soon as this returns; the app is
#' called whenever R serves, see [service()].
#'
#' @section The app:
#' A list, environment, R6 or reference class object with some of these, or a function, which is taken as `call`:
#' \describe{
#'   \item{`call(req)`}{answers a request, see below.}
#'   \item{`onHeaders(req)`}{sees a request before its body has been read. `NULL` lets it go on, a response ends it, and
#'     [receive_body()] takes the body as it arrives. A WebSocket is refused by a response, or accepted with [accept_ws()].}
#'   \item{`onWSOpen(ws)`}{is given the [WebSocket] of each client that opens one.}
#'   \item{`wsProtocols`}{the subprotocols that WebSockets may speak, the best first: the first that a client offers is answered, and
#'     is `ws$protocol`.}
#'   \item{`wsOrigins`}{of which hosts pages may open WebSockets: `"same"` for that of the server alone, or names such as
#'     `"example.org"`, `"*.example.org"` or `"localhost:8000"` beside it. Pages of others get 403, without the app being asked. `NULL`,
#'     the default, is what the option `rookery.ws_origins` says, and else any page, as with httpuv. An app that knows its users by
#'     cookies should set it: a cookie goes out with any page's handshake.}
#'   \item{`wsCompression`}{whether messages of WebSockets are compressed (permessage-deflate) with clients that offer it: `FALSE`;
#'     `TRUE`; or a list of some of `level` (1, fastest, to 9; default 2), `threshold` (bytes from which on a message is compressed; default
#'     512) and `takeover` (may messages refer back to earlier ones: better, and half a megabyte for each of at most 64 clients;
#'     default `FALSE`). `NULL`, the default, is what the option `rookery.ws_compression` says, and else `FALSE`. Do not compress a secret
#'     and a stranger's text in one message, nor with `takeover` over one connection: the length tells what they have in common.}
#'   \item{`onError(cond, req, info)`}{is told of each failure, see below.}
#'   \item{`staticPaths`}{folders and files that are served without R, see [staticPath()].}
#'   \item{`staticPathOptions`}{their options, see [staticPathOptions()].}
#' }
#'
#' @section The request:
#' An environment with `REQUEST_METHOD`, `PATH_INFO` (not decoded), `QUERY_STRING` (with its `?`), `HTTP_*` and
#' `HEADERS`, `CONTENT_TYPE`, `CONTENT_LENGTH`, `SERVER_NAME`, `SERVER_PORT`, `REMOTE_ADDR`, `REMOTE_PORT`, `REQUEST_ID` (what a trusted proxy's
#' `X-Request-Id` says, else the trace of its `traceparent`, else a name of the server's own; also in the access log), and
#' `rook.input`, whose `$read(l)`, `$read_lines(n)` and `$rewind()` read the body.
#'
#' @section The response:
#' A list (or environment, R6 or reference class object) with `status` (a number), `headers` (a named list or character
#' vector) and `body`: a string, a raw vector, `NULL`, `list(file = path, owned = FALSE)`, or a function that is asked for pieces
#' (see [stream_body()], and [stream_response()] to write to it); or a promise of one.
#' Anything else, and any error, is answered with status 500, and told on stderr with the route it happened on, the id of the request and the
#' calls that led to it.
#'
#' Strings in bodies and headers are converted to UTF-8. Strings that are marked as `"bytes"`, and
#' raw vectors, are sent unchanged. A `Content-Type` is not changed: if it names another charset,
#' the body must be a raw vector in that charset, see [iconv()].
#'
#' @section Errors:
#' Clients are told that there was an error and the id of the request, and no more, unless `error_detail` says so, see [rookery_options()]: as
#' `application/problem+json` if they ask for JSON, else as text. A response with status 500 that the app made itself is sent as it is, and told on stderr
#' with its id. `onError` is called once for each failure, before that, with as many of its
#' three arguments as it has: the condition; the request, or `NULL` where R has it no more; and a list of `stage` (`"call"`, `"onHeaders"`,
#' `"response"`, `"promise"`, `"stream"`, `"receive"`, `"onWSOpen"`, `"message"`, `"close"`, `"drain"`, `"request"`), `request_id`, `trace` (lines of text), `frames` (a data
#' frame of `call`, `file`, `line`, `package`), `seconds` since R took the request, and `headers`, of which secrets are masked. A response that it returns
#' is sent instead, where none has begun; of that to a stream, the text alone, and never a promise of one. An error within it is told, and goes no further.
#' For a plumber API see [plumber_errors()].
#'
#' @section Large bodies:
#' A request's body of more than 1 MiB is kept in a file without a name in the folder that the option
#' `rookery.spool_dir` names when the server is started; without it, in R's [tempdir()]. Choose one on a disk where
#' `/tmp` is in memory: `options(rookery.spool_dir = "/var/tmp")`. Of its file system 1 GiB stays free, or a tenth where
#' that is less; what would take more is answered with status 507, and told on stderr with the folder.
#'
#' @section In a worker:
#' Of an R process that `rookery serve` has started, the first server with an app is the one that clients come to, whatever `host` and `port`
#' it asks for; `$getHost()` and `$getPort()` tell those, and what it prints says which worker it is. Its certificates, trusted proxies and
#' access log are those of `rookery serve`, and so `tls` is not used. A further server listens where it asks to, which on a port of its own
#' only one of the workers can; and so does one without an app, such as those that look for a free port.
#'
#' A handler's conditions do not reach calling handlers established around `service()`.
#'
#' @param host A literal IPv4 or IPv6 address: `"127.0.0.1"` for this machine only, `"0.0.0.0"` or `"::"` for all.
#' @param port A port from 0 to 65535; 0 lets the system choose one, which `$getPort()` tells.
#' @param app The app. `NULL` or an empty list answers everything but static paths with 404.
#' @param quiet Whether to say nothing on stderr when the server cannot be started.
#' @param tls Certificates to speak HTTPS with, by [tls_config()]; `"dev"` for one of this machine's own. `NULL` for HTTP.
#' @param limits What clients may do, by [server_limits()]; `NULL` for what options say, see [rookery_options()]. Servers of one process share them.
#' @return A server object with `$stop()`, `$isRunning()`, `$getHost()`, `$getPort()`, `$reload_tls()` (see [tls_config()]) and, for
#'   static paths, `$getStaticPaths()`, `$setStaticPath()`, `$removeStaticPath()`, `$getStaticPathOptions()` and
#'   `$setStaticPathOption()`. If the server cannot be started, `startServer()` raises an error of
#'   class `rookery_no_server`, whose `$reason` says why.
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

#' @param name The path of a Unix socket. A socket that nobody listens on any more is replaced.
#' @param mask The umask for its creation, as an integer; `NULL` leaves the process's.
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
#' Starts a server, serves until [interrupt()] is called or Ctrl-C is pressed, and stops it.
#'
#' @inheritParams startServer
#' @param interruptIntervalMs Ignored; for compatibility.
#' @return `TRUE`, after `interrupt()`.
#' @examples
#' \dontrun{
#' runServer("127.0.0.1", 8000, function(req) {
#'   list(status = 200L, headers = list("Content-Type" = "text/plain"), body = "Hello, World!")
#' })
#' }
#' @export
runServer <- function(host, port, app, interruptIntervalMs = NULL, tls = NULL, limits = NULL) {
  server <- startServer(host, port, app, tls = tls, limits = limits)
  on.exit(stopServer(server))
  service(0)
}

#' Stop servers
#'
#' Stops accepting, sends what has been answered, closes WebSockets with code 1001, and frees the port. Their
#' `onClose` callbacks run at the next turn of [service()].
#'
#' @param server A server that [startServer()] or [startPipeServer()] returned.
#' @return `NULL`, invisibly. `listServers()`: the servers that run, in the order of their start.
#' @examples
#' listServers()
#' stopAllServers()
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

# With one argument, as whoever calls it by `:::` knows it.
registerServer <- function(server) {
  .globals$servers <- c(.globals$servers, server)
}

deregisterServer <- function(server) {
  is_it <- vapply(.globals$servers, identical, logical(1), server)
  if (!any(is_it)) {
    warning("Unable to deregister server: server not found in list of running servers.", call. = FALSE)
  }
  .globals$servers <- .globals$servers[!is_it]
}

# What a server on a port and one on a Unix socket share.
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
      invisible()
    },
    isRunning = function() {
      private$running && !private$is_restored() && private$is_here()
    },
    # TRUE, or FALSE for a server that speaks no HTTPS; an error leaves what was there.
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
        abort_argument("`path` must be names of static paths, as a character vector, not ", describe(path), ".")
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
    # Whether this is a copy that was saved while the server ran, and restored: its handle names nothing, or another.
    is_restored = function() {
      private$running && !identical(private$session, .globals$session)
    },
    # The process in which the server listens: a forked process has a copy of this object and no
    # server.
    pid = NULL,
    is_here = function() {
      identical(private$pid, Sys.getpid())
    },
    # Whether there is something to ask or to change.
    serves = function() {
      if (private$is_restored()) {
        abort(restored_server, "rookery_restored")
      }
      if (private$running && !private$is_here()) {
        abort(forked_server, "rookery_in_fork")
      }
      private$running
    },
    # `bind` is the entry point that binds; a string that it returns says why it could not.
    listen = function(app, quiet, tls, limits, what, bind) {
      check_app(app)
      check_flag(quiet, "quiet")
      inherits_socket <- takes_worker_socket(app)
      prepare()
      # At its prompt R idles in its event loop, which is later's to be reached in.
      if (interactive()) loadNamespace("later")
      spool <- spool_dir()
      proxies <- trusted_proxies()
      proxy_header <- has_proxy_header()
      tls <- if (inherits_socket) tls_of_supervisor(tls) else tls_open(tls)
      apply_limits(limits)
      detail <- setting_of("error_detail")$value
      private$is_https <- !is.null(tls)
      private$appWrapper <- AppWrapper$new(app)
      private$site <- site_new(private$appWrapper$staticPaths, private$appWrapper$staticPathOptions)
      handlers <- private$appWrapper$handlers()
      settings <- list(handlers$has_on_headers, handlers$has_on_error, detail != "httpuv", detail, interrupt_after())
      tells_id <- setting_of("request_id_header")$value
      if (inherits_socket && is_only_worker() && !is.null(.globals$on_listen)) {
        .globals$on_listen(self)
      }
      bound <- bind(list(
        private$site, handlers$app, settings, spool, tls, proxies, proxy_header,
        list(private$appWrapper$wsProtocols, private$appWrapper$wsCompression), private$appWrapper$wsOrigins, tells_id,
        as.integer(inherits_socket), inherits_socket && keeps_clients()
      ))
      if (is.character(bound)) {
        if (!quiet) {
          cat(what, ": ", bound, "\n", sep = "", file = stderr())
        }
        # The message is httpuv's, which packages look for.
        abort("Failed to create server", "rookery_no_server", reason = bound)
      }
      private$handle <- as.character(bound[[1]])
      private$appWrapper$connect(private$handle)
      private$running <- TRUE
      private$session <- .globals$session
      private$pid <- Sys.getpid()
      registerServer(self)
      # What serve() says once a server listens; of a worker's servers the one that clients come to.
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
        .Call(ffi_listen_tcp, host, if (is.na(port)) 0 else port, setup)
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
      # A worker makes no such file.
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

check_host <- function(host) {
  if (!is.character(host) || length(host) != 1 || is.na(host)) {
    abort_argument("`host` must be an IP address, as one string: \"127.0.0.1\" for this machine only.")
  }
}

# Checks a port to listen on. Where 0 is allowed, NA also lets the system choose the port.
check_port <- function(port, least = 0) {
  if (least == 0 && is.atomic(port) && length(port) == 1 && (is.logical(port) || is.numeric(port)) && is.na(port)) {
    return(invisible())
  }
  is_number <- is.numeric(port) && length(port) == 1 && is.finite(port)
  if (!is_number || port < least || port > 65535 || port != trunc(port)) {
    abort_argument("`port` must be one whole number from ", least, " to 65535, not ", describe(port), ".")
  }
}
