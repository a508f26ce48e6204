# What the tests of tracing ask for. With package otel, spans are made within the app's functions.
span_here <- function(name) {
  if (requireNamespace("otel", quietly = TRUE)) otel::start_local_active_span(name)$end()
}

list(
  onHeaders = function(req) {
    if (req$PATH_INFO == "/early") {
      list(status = 403L, headers = list(), body = "")
    }
  },
  call = function(req) {
    body <- switch(req$PATH_INFO,
      "/fail" = stop("as asked"),
      "/promise" = promises::then(promises::promise_resolve(1), function(value) {
        list(status = 200L, headers = list(), body = "later")
      }),
      "/body" = rawToChar(req$rook.input$read()),
      paste(req$HTTP_TRACEPARENT, req$HTTP_TRACESTATE, Sys.getenv("OTEL_SERVICE_NAME"),
        Sys.getenv("OTEL_RESOURCE_ATTRIBUTES"))
    )
    span_here("inside")
    if (inherits(body, "promise")) return(body)
    list(status = 200L, headers = list("Content-Type" = "text/plain"), body = body)
  },
  onWSOpen = function(ws) {
    span_here("opened")
    ws$onMessage(function(binary, message) {
      span_here("heard")
      ws$send(paste(message, ws$request$HTTP_TRACEPARENT))
    })
  }
)
