# The server's wrapper of an app, and functions that C calls.

AppWrapper <- R6::R6Class(
  "AppWrapper",
  cloneable = FALSE,
  # Unlocked, so that `wsconns` can be added.
  lock_objects = FALSE,
  public = list(
    initialize = function(app) {
      private$app <- observed_app(if (is.function(app)) list(call = app) else app)
      # Evaluated once, because a reference class without the field raises an error.
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
    # Returns what C needs: the app, whether it has `onHeaders`, and whether requests are kept for
    # `onError`.
    handlers = function() {
      list(
        app = private$app, has_on_headers = private$has_on_headers,
        has_on_error = private$has_on_error
      )
    },
    # Sets the listener that the app responds for.
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

# Returns the open WebSockets of a listener in an environment, in which package livecode looks for
# them.
open_sockets <- function(listener) {
  list2env(
    if (!is.null(listener)) .Call(ffi_websockets, listener), envir = new.env(parent = emptyenv())
  )
}

# Returns a value that package promises accepts as a promise, such as a future, as a promise.
# Returns NULL for other values.
as_promise <- function(value) {
  if (inherits(value, "promise")) {
    return(value)
  }
  # Package promises is loaded only for an object that cannot be a response.
  if (!is.object(value) || (!isNamespaceLoaded("promises") && is_answer(value))) {
    return(NULL)
  }
  if (promises::is.promising(value)) promises::as.promise(value)
}

# Sends the response once a promise is fulfilled or rejected. `req` is passed to `onError`; it is
# NULL for apps without.
respond_later <- function(promise, ticket, req) {
  attach_handlers(
    promise,
    function(value, .visible) .Call(ffi_respond, ticket, value, req),
    function(reason) .Call(ffi_reject, ticket, reason, req)
  )
}

# Adds callbacks to a promise like promises::then(), but creates no promise of their results. The
# callbacks call C and raise no errors.
attach_handlers <- function(promise, on_fulfilled, on_rejected) {
  if (!.Call(ffi_promise_attach, promise, on_fulfilled, on_rejected)) {
    promises::then(promise, onFulfilled = on_fulfilled, onRejected = on_rejected)
  }
  NULL
}
