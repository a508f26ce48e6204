# Spans of invocations by package otel, called by src/otel.c. Nothing here may disturb the app, so
# errors of package otel are ignored.

# Finds out whether package otel exports spans. The environment variables are read first, because
# without them otel does nothing, and loading it would take time.
use_otel <- function() {
  exporter <- Sys.getenv("OTEL_R_TRACES_EXPORTER", Sys.getenv("OTEL_TRACES_EXPORTER"))
  is_on <- nzchar(exporter) && exporter != "none" && requireNamespace("otel", quietly = TRUE) &&
    isTRUE(tryCatch(otel::is_tracing_enabled(), error = function(e) FALSE))
  has_request_spans <- .Call(ffi_spans_in_r, is_on)
  .globals$otel <- if (is_on) {
    list(tracer = otel::get_tracer("rookery"), kind = if (has_request_spans) "internal" else "server")
  }
}

# Begins and activates the span of an invocation of the app for a request, and puts the context of
# the span into `req`, where frameworks look for their parent.
begin_call_span <- function(name, req) {
  tryCatch(
    {
      otel <- .globals$otel
      options <- list(kind = otel$kind)
      headers <- list(
        traceparent = req[["HTTP_TRACEPARENT"]], tracestate = req[["HTTP_TRACESTATE"]]
      )
      if (!is.null(headers$traceparent)) {
        headers <- headers[!vapply(headers, is.null, logical(1))]
        parent <- otel$tracer$extract_http_context(headers)
        if (parent$is_valid()) {
          # otelsdk 0.2 has no sampler and would record the span in any case.
          if (!parent$is_sampled()) return(NULL)
          options$parent <- parent
        }
      }
      span <- otel$tracer$start_span(name, options = options)
      context <- span$get_context()
      if (context$is_valid()) {
        req[["HTTP_TRACEPARENT"]] <- context$to_http_headers()[["traceparent"]]
      }
      activate_span(span)
    },
    error = function(e) NULL
  )
}

# Begins and activates a span for a WebSocket message. `context` is that of the message's own span,
# which is linked to the handshake. It is empty if the handshake is not recorded, or if the server
# makes no spans of requests.
begin_message_span <- function(context) {
  tryCatch(
    {
      otel <- .globals$otel
      if (nzchar(context)) {
        parent <- otel$tracer$extract_http_context(list(traceparent = context))
        activate_span(otel$tracer$start_span("rookery.callbacks", options = list(parent = parent)))
      } else if (otel$kind == "server") {
        activate_span(otel$tracer$start_span("rookery.on_message"))
      }
    },
    error = function(e) NULL
  )
}

# Returns the state of an active span. No frame of R keeps it active, so that none lies between
# service() and the app.
activate_span <- function(span) {
  state <- new.env(parent = emptyenv())
  state$span <- span
  state$scope <- span$activate(NULL)
  state$is_pending <- FALSE
  state
}

# Makes the span end when the promise is settled.
follow_promise <- function(state, promise) {
  state$is_pending <- TRUE
  promises::then(
    promise,
    onFulfilled = function(value) finish_span(state, FALSE),
    onRejected = function(error) finish_span(state, TRUE)
  )
  NULL
}

end_span <- function(state, has_failed) {
  state$span$deactivate(state$scope)
  if (!state$is_pending || has_failed) finish_span(state, has_failed)
}

finish_span <- function(state, has_failed) {
  if (has_failed) state$span$set_status("error")
  state$span$end()
}
