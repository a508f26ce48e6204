# WebSocket clients. What C (src/client.c) keeps of one is its *core*, an environment that refers to the object only while there are
# callbacks: so R can collect an object that nobody holds and that listens to nothing, and its connection is closed.

#' A WebSocket client
#'
#' Connects to a WebSocket server, with the interface of the package websocket: `ws` and `wss`, on a thread of its own. R never
#' waits for the server; what happens is told to callbacks, which package later runs when R is idle, and while [service()] runs.
#'
#' @details
#' `$onOpen(func)`, `$onMessage(func)`, `$onClose(func)` and `$onError(func)` add a function of one argument, the event, and return,
#' invisibly, a function that takes it away again. An event is a list with `target`, the client, and
#' * for a message `data`: a string, or a raw vector (also for text with a NUL, which R's strings cannot hold);
#' * for a close `code`, `reason` and `wasClean`. The code is the server's, 1005 where it gave none and 1006 where the connection ended without
#'   a close frame; where the server broke the protocol or a limit, `code` and `reason` are what it was told;
#' * for an error `message`, and `status`: that of the server's answer when it refused the handshake, else `NA`.
#'
#' `onError` is called when the connection cannot be opened; a client without an `onError` function
#' gives a warning then. `onClose` is called when an open connection has ended. Each client ends
#' with exactly one of these two events. Callbacks run after the R code that is running now has
#' returned, so callbacks that are added right after `$new()` miss no event. They run in the event
#' loop of package later that was current when the client was made, such as that of
#' [later::with_temp_loop()]; once that loop has been destroyed, they run in the global loop.
#'
#' `$send(msg)` sends a raw vector as a binary message and a string as text, when the client is open. It never waits.
#' `$close(code, reason)` starts the closing handshake behind what was sent; a client that is still connecting gives up.
#'
#' A client that has a callback lives until its connection has ended, also when nothing refers to it any more. One without is closed when R
#' collects it. Clients belong to the R process that made them: in a fork they cannot be used.
#'
#' @section Limits:
#' All of them are settings, sizes in bytes and times in seconds. `connect_timeout` is from the lookup of the name to the server's answer to the
#' handshake, which may have 64 KiB and 100 header lines; redirects are not followed. A message of more than `maxMessageSize` ends the connection with
#' code 1009. `$send()` is an error while more than `max_send_queue_size` wait for the server; `$bufferedAmount()` tells how many do. After `$close()` the
#' server has `close_timeout` to answer. A ping is sent each `ping_interval`; when nothing at all has come `ping_timeout` later, the connection
#' ends with code 1006. Of messages that R has not taken about 1 MiB is read ahead. A process has 1,000 clients.
#'
#' @section TLS:
#' For `wss` the server's certificate must be valid for the host of the address and come from an authority that is trusted: one of the
#' system's (the file that the environment variable `SSL_CERT_FILE` names, or Debian's `/etc/ssl/certs/ca-certificates.crt`), or, with `ca`, one of
#' those and no other. There is no setting that turns this off. For a server with `tls = "dev"` the file of its certificate is the `ca`.
#'
#' @param url An address that begins with `ws://` or `wss://`.
#' @param protocols Subprotocols to offer, the preferred one first.
#' @param headers Further headers of the request: a named list or character vector.
#' @param autoConnect Whether to connect at once; else `$connect()` does. At a prompt, callbacks are then added in time.
#' @param accessLogChannels Taken for the sake of programs that give it, and not used: there is no log.
#' @param errorLogChannels The same.
#' @param maxMessageSize The largest message that the server may send.
#' @param ... Must be empty: what follows is given by name. The former names `maxQueueSize`, `connectTime`, `closeTime`, `pingTime`
#'   and `pongTime` are deprecated.
#' @param ca Authorities in place of the system's: the path of a file with certificates in PEM, or such text.
#' @param compress Whether to offer compression (permessage-deflate). Not for messages that mix secrets with text of strangers.
#' @param max_send_queue_size How much may wait to be sent, 16 MiB by default.
#' @param connect_timeout Seconds that connecting may take, 10 by default.
#' @param close_timeout Seconds that the server has to answer a close, 5 by default.
#' @param ping_interval Seconds between two pings, 20 by default; `Inf` for none.
#' @param ping_timeout Seconds after a ping in which something must come, 20 by default.
#' @param msg A string, or a raw vector.
#' @param code The close code: 1000, or one of 3000 to 4999.
#' @param reason Why, in at most 123 bytes of UTF-8.
#' @param func A function of the event.
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
#' @seealso [WebSocket] for the server's side.
#' @export
WebSocketClient <- R6::R6Class(
  "WebSocketClient",
  cloneable = FALSE,
  public = list(
    #' @description Makes a client.
    initialize = function(url, protocols = character(0), headers = NULL, autoConnect = TRUE, accessLogChannels = c("none"),
                          errorLogChannels = NULL, maxMessageSize = 32 * 1024^2, ..., ca = NULL, compress = FALSE,
                          max_send_queue_size = NULL, connect_timeout = NULL, close_timeout = NULL, ping_interval = NULL,
                          ping_timeout = NULL) {
      arguments_of("WebSocketClient", "rookery_bad_client", {
        limits <- list(
          max_send_queue_size = max_send_queue_size, connect_timeout = connect_timeout, close_timeout = close_timeout,
          ping_interval = ping_interval, ping_timeout = ping_timeout
        )
        limits <- take_deprecated(limits, list(...), renamed_client_limits, "WebSocketClient$new()", known = c("ca", "compress", names(limits)))
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
        ca <- if (is.null(ca)) "" else if (grepl("-----BEGIN ", ca, fixed = TRUE)) ca else path.expand(ca)
        problem <- .Call(ffi_client_check, enc2utf8(url))
        if (is.character(problem)) abort_argument(problem, ".", argument = "url")
      })
      private$core <- client_core(c(list(enc2utf8(url), enc2utf8(ca)), texts, list(numbers)))
      if (autoConnect) self$connect()
    },
    #' @description Connects, once.
    connect = function() {
      core <- private$core
      if (core$state != 0L || !is.null(core$handle)) {
        abort("a WebSocketClient connects once: make another one to connect again.", "rookery_bad_state")
      }
      core$handle <- client_open(core)
      invisible()
    },
    #' @description The state: 0 connecting, 1 open, 2 closing, 3 closed.
    readyState = function() {
      private$core$state
    },
    #' @description The address.
    url = function() {
      private$core$setup[[1]]
    },
    #' @description The subprotocol that the server chose; `""` for none.
    protocol = function() {
      private$core$protocol
    },
    #' @description The status with which the server answered the handshake: 101 of one that is or was open, `NA` for none.
    status = function() {
      private$core$status
    },
    #' @description Bytes that wait to be sent, and 64 for each message.
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
      if (!is.character(reason) || length(reason) != 1 || is.na(reason) || nchar(enc2utf8(reason), "bytes") > 123) {
        abort_argument("`reason` must be one string of at most 123 bytes in UTF-8, not ", describe(reason), ".")
      }
      client_close(private$core, as.integer(code), reason)
      invisible()
    },
    #' @description Adds a function that is called when the connection is open.
    onOpen = function(func) invisible(client_listen(self, private$core, "open", func)),
    #' @description Adds a function that is called for each message.
    onMessage = function(func) invisible(client_listen(self, private$core, "message", func)),
    #' @description Adds a function that is called when the connection has ended.
    onClose = function(func) invisible(client_listen(self, private$core, "close", func)),
    #' @description Adds a function that is called when the connection could not be opened.
    onError = function(func) invisible(client_listen(self, private$core, "error", func))
  ),
  private = list(
    core = NULL,
    finalize = function() {
      core <- private$core
      if (is.environment(core) && !is.null(core$handle) && core$state != 3L) .Call(ffi_client_abandon, core$handle)
    }
  )
)

client_defaults <- list(
  max_send_queue_size = 16 * 1024^2, connect_timeout = 10, close_timeout = 5, ping_interval = 20, ping_timeout = 20
)

renamed_client_limits <- c(
  maxQueueSize = "max_send_queue_size", connectTime = "connect_timeout", closeTime = "close_timeout", pingTime = "ping_interval",
  pongTime = "ping_timeout"
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
  # Which runs what happens: nothing else has to be there, no server either.
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
      paste0("the WebSocketClient is ", state, ": send while it is open, from `$onOpen()` on and before `$close()`."),
      "rookery_bad_state"
    )
  }
  if (identical(.Call(ffi_client_send, core$handle, msg), FALSE)) {
    abort(
      paste0(
        "the message was not sent: the server reads too slowly, and more than `max_send_queue_size` bytes would be queued. ",
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

# Each callback is in a list of its own, by which it is known.
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

# What happened, and the functions that are to be called for it: from C.
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
  # Nothing follows.
  if (core$state == 3L) core$self <- NULL
  functions <- Filter(is.function, lapply(core$callbacks, function(entry) if (entry$kind == kind) entry$func))
  if (kind == "error" && length(functions) == 0 && !has_closed && !isTRUE(.globals$is_ending)) {
    # Without `onError` the failure would go unnoticed. The query of the URL may contain a secret,
    # so it is left out.
    place <- sub("[?#].*$", "", core$setup[[1]])
    text <- paste0("The WebSocketClient of ", place, " has failed: ", value, ". `$onError()` takes a function that handles this.")
    return(list(function() warn(text, "rookery_client_failed")))
  }
  lapply(functions, function(func) function() func(event))
}

# ---- arguments ----

client_limit <- function(value, name, unit, may_be_infinite = FALSE) {
  is_number <- is.numeric(value) && length(value) == 1 && !is.na(value) && value > 0
  if (!is_number || (is.infinite(value) && !may_be_infinite)) {
    abort_argument("`", name, "` must be a positive number of ", unit, ", not ", describe(value), ".")
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

# The fields as name, value, name, value.
client_headers <- function(headers) {
  values <- if (is.list(headers)) headers else as.list(headers)
  is_text <- vapply(values, function(value) is.atomic(value) && length(value) == 1 && !is.na(value), NA)
  names <- names(values)
  if (length(values) > 0 && (!all(is_text) || is.null(names) || anyNA(names) || !all(nzchar(names)))) {
    abort_argument("`headers` must be a named list or character vector with one string for each header, not ", describe(headers), ".")
  }
  own <- c("host", "upgrade", "connection", "sec-websocket-key", "sec-websocket-version", "sec-websocket-protocol", "sec-websocket-extensions")
  taken <- intersect(tolower(names), own)
  if (length(taken) > 0) {
    abort_argument("`headers` has ", taken[[1]], ", which the handshake sends itself: use `protocols` for subprotocols.")
  }
  texts <- vapply(values, as.character, "")
  is_wrong <- !grepl("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$", names) | grepl("[\\x01-\\x08\\x0a-\\x1f\\x7f]", texts, perl = TRUE, useBytes = TRUE)
  if (any(is_wrong)) {
    wrong <- encodeString(names[is_wrong][[1]], quote = "\"")
    abort_argument("`headers` has ", wrong, ", whose name or value a header cannot have: no spaces in names, no line ends in values.")
  }
  enc2utf8(as.character(rbind(names, texts)))
}
