# No two requests have the same trace context, so that it becomes an R string when it is read.

trace_parent <- function(digit) {
  paste0("00-", strrep(digit, 32), "-", strrep(digit, 16), "-01")
}

served <- function(requests, look) {
  # Otherwise requests have no REQUEST_ID.
  withr::local_options(rookery.error_detail = "none")
  seen <- list()
  server <- local_server(list(call = function(req) {
    seen[[length(seen) + 1L]] <<- look(req)
    ok()
  }))
  client <- local_client(server)
  for (headers in requests) get(client, "/", headers)
  seen
}

sent <- function(digit, ...) c(paste0("traceparent: ", trace_parent(digit)), "X-A: 1", ...)

test_that("a trace context is an ordinary string", {
  kept <- served(list(sent("a")), function(req) req$HTTP_TRACEPARENT)[[1]]
  expect_true(is.character(kept) && length(kept) == 1)
  expect_identical(kept, trace_parent("a"))
  expect_identical(nchar(kept), 55L)
  expect_identical(unserialize(serialize(kept, NULL)), trace_parent("a"))
  changed <- kept
  changed[[1]] <- "x"
  expect_identical(c(kept, changed), c(trace_parent("a"), "x"))
})

test_that("HEADERS of each request has its own trace context beside equal headers", {
  headers <- served(
    list(sent("a"), sent("b"), sent("b", "X-B: 2"), "X-A: 1", sent("c")),
    function(req) req$HEADERS
  )
  values <- lapply(headers, function(all) unname(all["traceparent"]))
  expect_identical(unlist(values), c(trace_parent("a"), trace_parent("b"), trace_parent("b"), NA,
    trace_parent("c")))
  expect_identical(vapply(headers, function(all) all[["x-a"]], ""), rep("1", 5))
  expect_identical(headers[[3]][["x-b"]], "2")
  for (all in headers) {
    expect_length(all, length(names(all)))
    expect_false(anyNA(all))
    expect_identical(unserialize(serialize(all, NULL)), vapply(all, paste0, ""))
    expect_identical(rev(rev(all)), all)
  }
})

test_that("a change of HEADERS stays in its request", {
  changed <- served(list(sent("a"), sent("b")), function(req) {
    headers <- req$HEADERS
    headers[["x-a"]] <- "changed"
    list(headers, req$HEADERS, as.list(req)$HTTP_TRACEPARENT, identical(req$HEADERS[["traceparent"]],
      req$HTTP_TRACEPARENT))
  })
  for (at in 1:2) {
    expect_identical(changed[[at]][[1]][["x-a"]], "changed")
    expect_identical(changed[[at]][[2]][["x-a"]], "1")
    expect_identical(changed[[at]][[1]][["traceparent"]], trace_parent(c("a", "b")[[at]]))
    expect_identical(changed[[at]][[3]], trace_parent(c("a", "b")[[at]]))
    expect_true(changed[[at]][[4]])
  }
})

test_that("the strings outlive their requests and garbage collections", {
  kept <- served(rep(list(sent("d")), 50), function(req) {
    gc(FALSE)
    list(req$HTTP_TRACEPARENT, req$HEADERS, req$REQUEST_ID)
  })
  gc()
  for (each in kept) {
    expect_identical(each[[1]], trace_parent("d"))
    expect_identical(each[[2]][["traceparent"]], trace_parent("d"))
    expect_identical(each[[3]], strrep("d", 32))
  }
})

test_that("the request id is the trace id that the server has chosen, also under gctorture", {
  # Spans are sent to nobody.
  result <- callr::r(function() {
    library(rookery)
    seen <- list()
    kept <- list()
    server <- startServer("127.0.0.1", 0L, list(call = function(req) {
      gctorture(TRUE)
      on.exit(gctorture(FALSE))
      kept[[length(kept) + 1L]] <<- req$REQUEST_ID
      seen[[length(seen) + 1L]] <<- paste(req$REQUEST_ID, req$HTTP_TRACEPARENT)
      list(status = 200L, headers = list(), body = "")
    }), quiet = TRUE)
    on.exit(server$stop())
    for (at in 1:3) {
      connection <- socketConnection("127.0.0.1", server$getPort(), open = "r+b")
      writeLines("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r", connection)
      service(1000)
      close(connection)
    }
    gc()
    list(seen = unlist(seen), kept = unlist(kept))
  }, env = c(callr::rcmd_safe_env(), OTEL_EXPORTER_OTLP_ENDPOINT = "http://127.0.0.1:9",
    OTEL_TRACES_SAMPLER = "always_off", ROOKERY_ERROR_DETAIL = "none"))
  expect_length(result$seen, 3)
  expect_match(result$seen, "^([0-9a-f]{32}) 00-\\1-[0-9a-f]{16}-0[02]$")
  expect_identical(result$kept, substr(result$seen, 1, 32))
  expect_length(unique(result$kept), 3)
})
