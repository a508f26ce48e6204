# An app as the server holds it, and what C calls back for.

AppWrapper <- R6::R6Class(
  "AppWrapper",
  cloneable = FALSE,
  # For `wsconns`.
  lock_objects = FALSE,
  public = list(
    initialize = function(app) {
      private$app <- if (is.function(app)) list(call = app) else app
      # Looked up once: a reference class without the field raises an error for it.
      private$has_on_headers <- isTRUE(try(!is.null(private$app$onHeaders), silent = TRUE))
      private$has_on_error <- is.function(on_error_of(private$app))
      makeActiveBinding("wsconns", function() open_sockets(private$listener), private)
      self$staticPaths <- normalizeStaticPaths(private$field("staticPaths"))
      self$staticPathOptions <- private$read_options(private$field("staticPathOptions"))
      self$wsProtocols <- private$read_protocols(private$field("wsProtocols"))
      self$wsOrigins <- read_origins(private$field("wsOrigins"))
      self$wsCompression <- read_compression(private$field("wsCompression"))
    },
    staticPaths = NULL,
    staticPathOptions = NULL,
    wsProtocols = NULL,
    wsOrigins = NULL,
    wsCompression = NULL,
    # What the C code calls, whether it asks `onHeaders`, and whether it keeps requests for `onError`.
    handlers = function() {
      list(app = private$app, has_on_headers = private$has_on_headers, has_on_error = private$has_on_error)
    },
    # Tells which listener it answers for.
    connect = function(listener) {
      private$listener <- as.integer(listener)
    }
  ),
  private = list(
    app = NULL,
    has_on_headers = FALSE,
    has_on_error = FALSE,
    listener = NULL,
    field = function(name) {
      tryCatch(private$app[[name]], error = function(error) NULL)
    },
    read_protocols = function(protocols) {
      if (is.null(protocols)) {
        return(character())
      }
      check_protocols(protocols, "app$wsProtocols")
      protocols
    },
    read_options = function(options) {
      if (is.null(options)) {
        return(staticPathOptions())
      }
      if (!inherits(options, "staticPathOptions")) {
        abort_argument(
          "staticPathOptions must be an object of class staticPathOptions.",
          argument = "app$staticPathOptions"
        )
      }
      normalizeStaticPathOptions(options)
    }
  )
)

# The open WebSockets of a listener, as an environment: package livecode looks at them there.
open_sockets <- function(listener) {
  list2env(if (!is.null(listener)) .Call(ffi_websockets, listener), envir = new.env(parent = emptyenv()))
}

# Answers when the promise is settled. `req` is for `onError`; NULL for an app without.
respond_later <- function(promise, ticket, req) {
  attach_handlers(
    promise,
    function(value, .visible) .Call(ffi_respond, ticket, value, req),
    function(reason) .Call(ffi_reject, ticket, reason, req)
  )
}

# As promises::then(), but that there is no promise of what the functions give. They are C's, and do not raise.
attach_handlers <- function(promise, on_fulfilled, on_rejected) {
  if (!.Call(ffi_promise_attach, promise, on_fulfilled, on_rejected)) {
    promises::then(promise, onFulfilled = on_fulfilled, onRejected = on_rejected)
  }
  NULL
}
