# WebSocket clients. C (src/websocket_client.c) keeps the *core* of a client, an environment that
# refers to the R object only while there are callbacks. R can therefore collect an object that has
# no callbacks and no references, and its connection is then closed.

#' A WebSocket client
#'
#' Connects to a WebSocket server by `ws` or `wss`. The interface is that of the
#' package websocket. Connections are handled on a separate thread, so R never
#' waits for the server. Events are passed to callbacks, which package later
#' runs while R is idle, and which [service()] runs as well.
#'
#' @details
#' `$onOpen(func)`, `$onMessage(func)`, `$onClose(func)` and `$onError(func)`
#' add a callback with one argument, the event. Each returns invisibly a
#' function that removes the callback. An event is a list. It contains the
#' client as `target`, and in addition:
#' * for a message: `data`, a string or a raw vector. (Text with a NUL is a raw
#'   vector as well, because R's strings cannot contain a NUL.)
#' * for a close: `code`, `reason` and `wasClean`. The code is the one that the
#'   server sent, 1005 if it sent none, and 1006 if the connection ended without
#'   a close frame. If the server violated the protocol or a limit, `code` and
#'   `reason` are those that the client sent.
#' * for an error: `message` and `status`. `status` is that of the response if
#'   the server refused the handshake, otherwise `NA`.
#'
#' `onError` is called when the connection cannot be opened; a client without an
#' `onError` callback gives a warning instead. `onClose` is called when an open
#' connection has ended. Each client ends with exactly one of these two events.
#' Callbacks run after the current R code has returned, so callbacks that are
#' added right after `$new()` miss no event. They run in the event loop of
#' package later that was current when the client was created, such as that of
#' [later::with_temp_loop()], or in the global loop once that loop has been
#' destroyed.
#'
#' `$send(msg)` sends a raw vector as a binary message and a string as a text
#' message. The client must be open; `$send()` never waits.
#' `$close(code, reason)` starts the closing handshake after all queued messages
#' were sent. A client that is still connecting stops connecting.
#'
#' A client with a callback lives until its connection has ended, even if
#' nothing refers to it any more. A client without callbacks is closed when R
#' collects it. Clients belong to the R process that created them and cannot be
#' used in a fork.
#'
#' @section Limits:
#' All limits of a client are arguments: sizes in bytes and times in seconds.
#' `connect_timeout` covers the time from name resolution to the server's
#' response to the handshake. This response may have at most 64 KiB and 100
#' header lines. Redirects are not followed. A message larger than
#' `maxMessageSize` closes the connection with code 1009. `$send()` raises an
#' error while more than `max_send_queue_size` bytes are queued;
#' `$bufferedAmount()` returns the number of queued bytes. After `$close()`, the
#' client waits for the server's close frame for `close_timeout`. The client
#' sends a ping every `ping_interval`. If nothing arrives within `ping_timeout`
#' after a ping, the connection ends with code 1006. If R does not process
#' messages, the client stops reading after about 1 MiB. A process can have at
#' most 1,000 clients.
#'
#' @section TLS:
#' With a `wss` URL, the server's certificate must be valid for the host in the
#' URL and must be issued by a trusted authority. The client trusts the system's
#' authorities (the file that the environment variable `SSL_CERT_FILE` names, or
#' `/etc/ssl/certs/ca-certificates.crt` on Debian) or, with `ca`, only the
#' authorities in `ca`. This check cannot be turned off. For a server with `tls
#' = "dev"`, pass the file of its certificate as `ca`.
#'
#' @param url The URL of the WebSocket server, which begins with `ws://` or
#'   `wss://`.
#' @param protocols The subprotocols that the client offers to the server, the
#'   preferred one first.
#' @param headers Further headers of the request that opens the WebSocket: a
#'   named list or character vector.
#' @param autoConnect Whether the client connects at once. At an interactive
#'   prompt, use `FALSE` and then `$connect()`, so that you can add callbacks
#'   before events occur.
#' @param accessLogChannels Ignored. This argument exists only for compatibility
#'   with package websocket.
#' @param errorLogChannels Ignored. This argument exists only for compatibility
#'   with package websocket.
#' @param maxMessageSize The maximum size in bytes of a message from the server.
#' @param ... Must be empty. The arguments that follow `...` must be given by
#'   name.
#' @param ca The certificate authorities that the client trusts instead of those
#'   of the system: PEM text, or the path of a PEM file.
#' @param compress Whether to offer compression of messages (permessage-deflate)
#'   to the server. Do not compress messages that mix secrets with text from
#'   untrusted sources.
#' @param max_send_queue_size The maximum number of bytes that may wait to be
#'   sent; 16 MiB by default.
#' @param connect_timeout The maximum number of seconds for connecting to the
#'   server; 10 by default.
#' @param close_timeout The number of seconds to wait for the server's close
#'   frame after the client has begun to close the WebSocket; 5 by default.
#' @param ping_interval The number of seconds between two pings to the server;
#'   20 by default. `Inf` turns pings off.
#' @param ping_timeout The number of seconds after a ping within which the
#'   server must send some data; 20 by default.
#' @param msg The message to send: a string or a raw vector.
#' @param code The code of the close frame: 1000, or a number from 3000 to 4999.
#' @param reason The reason for closing the WebSocket, in at most 123 bytes of
#'   UTF-8.
#' @param func The callback: a function whose argument is the event.
#' @examples
#' server <- startServer("127.0.0.1", 0, list(
#'   onWSOpen = function(ws) ws$onMessage(function(binary, message) ws$send(toupper(message)))
#' ))
#' ws <- WebSocketClient$new(paste0("ws://127.0.0.1:", server$getPort()))
#' ws$onOpen(function(event) ws$send("hello"))
#' ws$onMessage(function(event) {
#'   cat("The server says", event$data, "\n")
#'   ws$close()
#' })
#' ws$onClose(function(event) cat("Closed with", event$code, "\n"))
#' while (ws$readyState() != 3) service(100)
#' server$stop()
#' @seealso [WebSocket] for WebSockets of a server.
#' @export
WebSocketClient <- R6::R6Class(
  "WebSocketClient",
  cloneable = FALSE,
  public = list(
    #' @description Creates a client.
    initialize = function(
      url, protocols = character(0), headers = NULL, autoConnect = TRUE,
      accessLogChannels = c("none"),
                          errorLogChannels = NULL, maxMessageSize = 32 * 1024^2, ..., ca = NULL,
                          compress = FALSE,
                          max_send_queue_size = NULL, connect_timeout = NULL, close_timeout = NULL,
                          ping_interval = NULL,
                          ping_timeout = NULL) {
      limits <- mget(names(client_defaults))
      arguments_of("WebSocketClient", "rookery_bad_client", {
        if (...length() > 0) abort_dots(c(...names(), "")[[1]], c("ca", "compress", names(limits)))
        limits <- utils::modifyList(client_defaults, Filter(Negate(is.null), limits))
        check_string(url, "url")
        check_flag(autoConnect, "autoConnect")
        check_flag(compress, "compress")
        if (!is.null(ca)) check_string(ca, "ca")
        numbers <- c(
          client_limit(maxMessageSize, "maxMessageSize", "bytes"),
          client_limit(limits$max_send_queue_size, "max_send_queue_size", "bytes"),
          client_limit(limits$connect_timeout, "connect_timeout", "seconds"),
          client_limit(limits$close_timeout, "close_timeout", "seconds"),
          client_limit(limits$ping_interval, "ping_interval", "seconds", may_be_infinite = TRUE),
          client_limit(limits$ping_timeout, "ping_timeout", "seconds"),
          compress
        )
        texts <- list(client_protocols(protocols), client_headers(headers))
        ca <- if (is.null(ca)) {
          ""
        } else if (grepl("-----BEGIN ", ca, fixed = TRUE)) {
          ca
        } else {
          path.expand(ca)
        }
        problem <- .Call(ffi_client_check, enc2utf8(url))
        if (is.character(problem)) abort_argument(problem, ".", argument = "url")
      })
      private$core <- client_core(c(list(enc2utf8(url), enc2utf8(ca)), texts, list(numbers)))
      if (autoConnect) self$connect()
    },
    #' @description Connects. Can be called once.
    connect = function() {
      core <- private$core
      if (core$state != 0L || !is.null(core$handle)) {
        abort(
          "a WebSocketClient can connect only once: create another one to connect again.",
          "rookery_bad_state"
        )
      }
      core$handle <- client_open(core)
      invisible()
    },
    #' @description Returns the state: 0 connecting, 1 open, 2 closing, 3
    #'   closed.
    readyState = function() {
      private$core$state
    },
    #' @description Returns the URL.
    url = function() {
      private$core$setup[[1]]
    },
    #' @description Returns the subprotocol that the server chose, or `""`.
    protocol = function() {
      private$core$protocol
    },
    #' @description Returns the status of the server's response to the
    #'   handshake: 101 if the connection is or was open, `NA` before a
    #'   response.
    status = function() {
      private$core$status
    },
    #' @description Returns the number of bytes that are queued for sending,
    #'   plus 64 for each queued message.
    bufferedAmount = function() {
      handle <- private$core$handle
      if (is.null(handle)) 0 else .Call(ffi_client_queued_bytes, handle)
    },
    #' @description Sends a message.
    send = function(msg) {
      if (!is.raw(msg) && !(is.character(msg) && length(msg) == 1 && !is.na(msg))) {
        abort_argument("`msg` must be one string or a raw vector, not ", describe(msg), ".")
      }
      client_send(private$core, msg)
      invisible()
    },
    #' @description Closes the connection.
    close = function(code = 1000L, reason = "") {
      if (!is.numeric(code) || length(code) != 1 || !(code %in% c(1000, 3000:4999))) {
        abort_argument("`code` must be 1000, or one of 3000 to 4999, not ", describe(code), ".")
      }
      if (!is.character(reason) || length(reason) != 1 || is.na(reason) ||
            nchar(enc2utf8(reason), "bytes") > 123) {
        abort_argument(
          "`reason` must be one string of at most 123 bytes in UTF-8, not ", describe(reason), "."
        )
      }
      client_close(private$core, as.integer(code), reason)
      invisible()
    },
    #' @description Adds a function that is called when the connection has
    #'   opened.
    onOpen = function(func) invisible(client_listen(self, private$core, "open", func)),
    #' @description Adds a function that is called for each message.
    onMessage = function(func) invisible(client_listen(self, private$core, "message", func)),
    #' @description Adds a function that is called when the connection has ended.
    onClose = function(func) invisible(client_listen(self, private$core, "close", func)),
    #' @description Adds a function that is called when the connection cannot be
    #'   opened.
    onError = function(func) invisible(client_listen(self, private$core, "error", func))
  ),
  private = list(
    core = NULL,
    finalize = function() {
      core <- private$core
      if (is.environment(core) && !is.null(core$handle) && core$state != 3L) {
        .Call(ffi_client_abandon, core$handle)
      }
    }
  )
)

client_defaults <- list(
  max_send_queue_size = 16 * 1024^2, connect_timeout = 10, close_timeout = 5, ping_interval = 20,
  ping_timeout = 20
)

# ---- the core ----

client_core <- function(setup) {
  core <- new.env(parent = emptyenv())
  core$setup <- setup
  core$self <- NULL
  core$callbacks <- list()
  # The event loop of package later in which the client's callbacks run.
  core$loop <- .Call(ffi_client_loop)
  core$state <- 0L
  core$handle <- NULL
  core$protocol <- ""
  core$status <- NA_integer_
  core
}

client_open <- function(core) {
  # Package later runs the callbacks; nothing else, not even a server, has loaded it.
  loadNamespace("later")
  handle <- .Call(ffi_client_open, core, core$setup)
  if (is.character(handle)) {
    core$state <- 3L
    abort(paste0(handle, "."), "rookery_no_client")
  }
  handle
}

client_send <- function(core, msg) {
  if (core$state != 1L) {
    state <- client_states[[core$state + 1L]]
    abort(
      paste0(
        "the WebSocketClient is ", state,
        ": send while it is open, from `$onOpen()` on and before `$close()`."
      ),
      "rookery_bad_state"
    )
  }
  if (identical(.Call(ffi_client_send, core$handle, msg), FALSE)) {
    abort(
      paste0(
        "the message was not sent: the server reads too slowly, and more than ",
        "`max_send_queue_size` bytes would be queued. ",
        "Send again when `$bufferedAmount()` has gone down."
      ),
      "rookery_queue_full"
    )
  }
}

client_close <- function(core, code, reason) {
  if (core$state >= 2L) {
    return()
  }
  if (is.null(core$handle)) {
    core$state <- 3L
    return()
  }
  .Call(ffi_client_close, core$handle, code, reason)
  core$state <- 2L
}

client_states <- c("connecting", "open", "closing", "closed")

# Each callback is wrapped in a list of its own, which identifies it when it is removed.
client_listen <- function(self, core, kind, func) {
  check_function(func, "func")
  entry <- list(kind = kind, func = func, key = new.env(parent = emptyenv()))
  core$callbacks <- c(core$callbacks, list(entry))
  if (core$state != 3L) core$self <- self
  function() {
    core$callbacks <- Filter(function(other) !identical(other$key, entry$key), core$callbacks)
    if (length(core$callbacks) == 0) core$self <- NULL
    invisible()
  }
}

# Called by C with an event. Returns the functions to call.
client_event <- function(core, kind, value, code, is_clean) {
  has_closed <- core$state == 2L
  event <- switch(kind,
    open = {
      core$protocol <- value
      core$status <- 101L
      if (core$state == 0L) core$state <- 1L
      list()
    },
    message = list(data = value),
    close = {
      core$state <- 3L
      list(code = code, reason = value, wasClean = is_clean)
    },
    error = {
      core$state <- 3L
      core$status <- if (code > 0L) code else NA_integer_
      list(message = value, status = core$status)
    }
  )
  event <- c(list(target = core$self), event)
  # No further event follows.
  if (core$state == 3L) core$self <- NULL
  functions <- Filter(
    is.function, lapply(core$callbacks, function(entry) if (entry$kind == kind) entry$func)
  )
  if (kind == "error" && length(functions) == 0 && !has_closed && !isTRUE(.globals$is_ending)) {
    # Without `onError` the failure would go unnoticed. The query of the URL is left out, because it
    # may contain a secret.
    place <- sub("[?#].*$", "", core$setup[[1]])
    text <- paste0(
      "The WebSocketClient of ", place, " has failed: ", value,
      ". `$onError()` takes a function that handles this."
    )
    return(list(function() warn(text, "rookery_client_failed")))
  }
  lapply(functions, function(func) function() func(event))
}

# ---- arguments ----

client_limit <- function(value, name, unit, may_be_infinite = FALSE) {
  is_number <- is.numeric(value) && length(value) == 1 && !is.na(value) && value > 0
  if (!is_number || (is.infinite(value) && !may_be_infinite)) {
    abort_argument(
      "`", name, "` must be a positive number of ", unit, ", not ", describe(value), "."
    )
  }
  as.double(value)
}

client_protocols <- function(protocols) {
  if (length(protocols) == 0) {
    return(character())
  }
  check_protocols(protocols, "protocols")
  enc2utf8(protocols)
}

# Returns the headers as a vector of alternating names and values.
client_headers <- function(headers) {
  values <- if (is.list(headers)) headers else as.list(headers)
  is_text <- vapply(
    values, function(value) is.atomic(value) && length(value) == 1 && !is.na(value), NA
  )
  names <- names(values)
  if (length(values) > 0 &&
        (!all(is_text) || is.null(names) || anyNA(names) || !all(nzchar(names)))) {
    abort_argument(
      "`headers` must be a named list or character vector with one string for each header, not ",
      describe(headers), "."
    )
  }
  own <- c(
    "host", "upgrade", "connection", "sec-websocket-key", "sec-websocket-version",
    "sec-websocket-protocol", "sec-websocket-extensions"
  )
  taken <- intersect(ascii_lower(names), own)
  if (length(taken) > 0) {
    abort_argument(
      "`headers` has ", taken[[1]],
      ", which the handshake sends itself: use `protocols` for subprotocols."
    )
  }
  texts <- vapply(values, sent_text, "")
  is_wrong <- !grepl("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$", names) | grepl(
    "[\\x01-\\x08\\x0a-\\x1f\\x7f]", texts, perl = TRUE, useBytes = TRUE
  )
  if (any(is_wrong)) {
    wrong <- encodeString(names[is_wrong][[1]], quote = "\"")
    abort_argument(
      "`headers` has ", wrong,
      ", whose name or value a header cannot have: no spaces in names, no line ends in values."
    )
  }
  enc2utf8(as.character(rbind(names, texts)))
}
