# An app as the server holds it, and what C calls back for.

AppWrapper <- R6::R6Class(
  "AppWrapper",
  cloneable = FALSE,
  public = list(
    initialize = function(app) {
      private$app <- if (is.function(app)) list(call = app) else app
      # Looked up once: a reference class without the field raises an error for it.
      private$has_on_headers <- isTRUE(try(!is.null(private$app$onHeaders), silent = TRUE))
      private$wsconns <- new.env(parent = emptyenv())
      self$staticPaths <- normalizeStaticPaths(private$field("staticPaths"))
      self$staticPathOptions <- private$read_options(private$field("staticPathOptions"))
    },
    staticPaths = NULL,
    staticPathOptions = NULL,
    # What the C code calls, and whether it asks `onHeaders`.
    handlers = function() {
      list(app = private$app, has_on_headers = private$has_on_headers)
    },
    # The open WebSockets of `listener`.
    connect = function(listener) {
      assign(as.character(listener), private$wsconns, envir = .sockets)
    }
  ),
  private = list(
    app = NULL,
    has_on_headers = FALSE,
    wsconns = NULL,
    field = function(name) {
      tryCatch(private$app[[name]], error = function(error) NULL)
    },
    read_options = function(options) {
      if (is.null(options)) {
        return(staticPathOptions())
      }
      if (!inherits(options, "staticPathOptions")) {
        stop("staticPathOptions must be an object of class staticPathOptions.", call. = FALSE)
      }
      normalizeStaticPathOptions(options)
    }
  )
)

# The requests whose bodies can be read, by the number of their exchange.
.bodies <- new.env(parent = emptyenv())

# Binds the body of a request: `ticket` names the exchange to C.
new_input <- function(req, ticket, size, fd) {
  body <- new.env(parent = emptyenv())
  body$req <- req
  assign(id_key(ticket[[2]]), body, envir = .bodies)
  req$rook.input <- InputStream$new(body_reader(ticket), size)
  delayedAssign(".bodyData", open_body(body, ticket, size, fd), assign.env = req)
}

# The request has been answered: its body is gone.
forget_body <- function(id) {
  key <- id_key(id)
  body <- .bodies[[key]]
  if (is.null(body)) {
    return(FALSE)
  }
  rm(list = key, envir = .bodies)
  # Without looking at the value, which would open it.
  delayedAssign(".bodyData", NULL, assign.env = body$req)
  if (!is.null(body$connection)) {
    try(close(body$connection), silent = TRUE)
  }
  TRUE
}

# A function that reads `n` bytes of a request's body from `offset` on.
body_reader <- function(ticket) {
  force(ticket)
  function(offset, n) .Call(ffi_body_read, ticket, offset, n)
}

# The body as a connection, for those who read `req$.bodyData`: made when it is first looked at.
open_body <- function(body, ticket, size, fd) {
  body$connection <- if (fd >= 0) {
    # A spooled body has no name any more; its descriptor has.
    file(file.path("/proc/self/fd", fd), open = "rb")
  } else {
    rawConnection(.Call(ffi_body_read, ticket, 0, size), open = "rb")
  }
}

new_socket <- function(handle, req, listener) {
  ws <- WebSocket$new(handle, req)
  assign(id_key(handle_id(handle)), ws, envir = .sockets[[as.character(listener)]])
  ws
}

# The connection has ended: the object learns it, and its closing callbacks are handed to C.
forget_socket <- function(ws, listener, id) {
  ws$handle <- NULL
  conns <- .sockets[[as.character(listener)]]
  key <- id_key(id)
  if (exists(key, envir = conns, inherits = FALSE)) {
    rm(list = key, envir = conns)
  }
  ws$closeCallbacks
}

# The name of an id in an environment: one of its own up to 10^15. format() would take 14 us, this takes 0.4.
id_key <- function(id) {
  as.character(id)
}

# Answers when the promise is settled.
answer_later <- function(promise, ticket) {
  promises::then(
    promise,
    onFulfilled = function(value) .Call(ffi_respond, ticket, value),
    onRejected = function(reason) .Call(ffi_reject, ticket, reason)
  )
  NULL
}
