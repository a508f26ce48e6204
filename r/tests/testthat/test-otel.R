# A double of package otel's tracer, which records what is called.
double_tracer <- function(calls, is_sampled = TRUE) {
  note <- function(...) calls$all <- c(calls$all, paste(...))
  context <- function(id, sampled = TRUE) {
    list(
      id = id,
      is_valid = function() TRUE,
      is_sampled = function() sampled,
      to_http_headers = function() c(traceparent = id)
    )
  }
  list(
    extract_http_context = function(headers) context(headers$traceparent, is_sampled),
    start_span = function(name, options = NULL) {
      note("start", name, options$kind, options$parent$id)
      list(
        get_context = function() context(paste0("of-", name)),
        activate = function(scope) {
          note("activate")
          "scope"
        },
        deactivate = function(scope) note("deactivate", scope),
        set_status = function(status) note("status", status),
        end = function() note("end")
      )
    }
  )
}

with_tracer <- function(tracer, kind, code) {
  globals <- rookery:::.globals
  before <- globals$otel
  on.exit(globals$otel <- before)
  globals$otel <- list(tracer = tracer, kind = kind)
  force(code)
}

test_that("the span of an invocation is a child of the request's and is active until its end", {
  calls <- new.env()
  req <- new.env()
  req$HTTP_TRACEPARENT <- "outer"
  with_tracer(double_tracer(calls), "internal", {
    state <- rookery:::begin_call_span("rookery.call", req)
    expect_identical(req$HTTP_TRACEPARENT, "of-rookery.call")
    rookery:::end_span(state, FALSE)
  })
  expect_identical(
    calls$all, c("start rookery.call internal outer", "activate", "deactivate scope", "end")
  )
})

test_that("a failure is the status of the span", {
  calls <- new.env()
  with_tracer(double_tracer(calls), "server", {
    rookery:::end_span(rookery:::begin_call_span("rookery.call", new.env()), TRUE)
  })
  expect_identical(tail(calls$all, 3), c("deactivate scope", "status error", "end"))
})

test_that("a request that is not recorded has no span and keeps its context", {
  calls <- new.env()
  req <- new.env()
  req$HTTP_TRACEPARENT <- "outer"
  with_tracer(double_tracer(calls, is_sampled = FALSE), "internal", {
    expect_null(rookery:::begin_call_span("rookery.call", req))
  })
  expect_identical(req$HTTP_TRACEPARENT, "outer")
  expect_null(calls$all)
})

test_that("the span of a promise ends when the promise is settled", {
  for (fails in c(FALSE, TRUE)) {
    calls <- new.env()
    with_tracer(double_tracer(calls), "internal", {
      state <- rookery:::begin_call_span("rookery.call", new.env())
      settle <- NULL
      promise <- promises::promise(function(resolve, reject) {
        settle <<- if (fails) function() reject("no") else function() resolve(1)
      })
      rookery:::follow_promise(state, promise)
      promises::catch(promise, function(error) NULL)
      rookery:::end_span(state, FALSE)
      expect_identical(tail(calls$all, 1), "deactivate scope")
      settle()
      while (!later::loop_empty()) later::run_now()
    })
    expect_identical(tail(calls$all, 1 + fails), c(if (fails) "status error", "end"))
  }
})

test_that("a message's span is below the server's, or begins a trace if the server makes none", {
  calls <- new.env()
  with_tracer(double_tracer(calls), "internal", {
    expect_null(rookery:::begin_message_span(""))
    rookery:::begin_message_span("outer")
  })
  with_tracer(double_tracer(calls), "server", rookery:::begin_message_span(""))
  expect_identical(calls$all, c(
    "start rookery.callbacks  outer", "activate", "start rookery.on_message  ", "activate"
  ))
})

test_that("errors of package otel do not reach the app", {
  with_tracer(list(extract_http_context = function(...) stop("x"), start_span = function(...) {
    stop("y")
  }), "internal", {
    req <- new.env()
    req$HTTP_TRACEPARENT <- "outer"
    expect_null(rookery:::begin_call_span("rookery.call", req))
    expect_null(rookery:::begin_message_span("outer"))
  })
})
