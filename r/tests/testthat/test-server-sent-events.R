
test_that("events are formatted as the standard says", {
  expect_equal(as.character(sse_event("a")), "data: a\n\n")
  expect_equal(as.character(sse_event("")), "data: \n\n")
  expect_equal(as.character(sse_event(NULL, id = "7")), "id: 7\n\n")
  expect_equal(as.character(sse_event("a\nb\r\nc\rd")), "data: a\ndata: b\ndata: c\ndata: d\n\n")
  expect_equal(as.character(sse_event(c("a", "b\n"))), "data: a\ndata: b\ndata: \n\n")
  expect_equal(
    as.character(sse_event("x", event = "price", id = 12, retry = 100000, comment = "a\nb")),
    ": a\n: b\nevent: price\nid: 12\nretry: 100000\ndata: x\n\n"
  )
  expect_equal(as.character(sse_event(1.5)), "data: 1.5\n\n")
  latin <- iconv("\u00fc", "UTF-8", "latin1")
  expect_identical(
    charToRaw(sse_event(latin)), c(charToRaw("data: "), as.raw(c(0xc3, 0xbc, 0x0a, 0x0a)))
  )
  expect_error(sse_event("a", id = "1\n2"), "`id` must be one string without line breaks")
  expect_error(sse_event("a", event = "x\ry"), "`event` must be one string without line breaks")
  expect_error(sse_event("a", retry = -1), "`retry` must be a whole number of milliseconds, not -1")
  expect_error(sse_event(NA_character_), "`data` must be strings without NA, or a list")
  skip_if_not_installed("jsonlite")
  expect_equal(
    as.character(sse_event(list(a = 1, b = "x\ny"))), "data: {\"a\":1,\"b\":\"x\\ny\"}\n\n"
  )
})

test_that("a client of events gets the head at once, and each event when it is sent", {
  heard <- c()
  e <- NULL
  server <- local_server(function(req) {
    e <<- sse_response()
    e$on_close(function(reason) heard <<- c(heard, reason))
    e
  })
  client <- local_client(server)
  send(client, request(headers = "Accept: text/event-stream"))
  read_to(client, ":\n\n")
  head <- rawToChar(client$read)
  expect_match(head, "Content-Type: text/event-stream", ignore.case = TRUE)
  expect_match(head, "Cache-Control: no-store, no-transform", ignore.case = TRUE)
  expect_match(head, "X-Accel-Buffering: no", ignore.case = TRUE)
  expect_true(e$send("one", id = "1"))
  read_to(client, "id: 1\ndata: one\n\n")
  expect_true(e$send(c("two", "lines"), event = "news"))
  read_to(client, "event: news\ndata: two\ndata: lines\n\n")
  expect_error(e$send("x", id = "a\nb"), "without line breaks")
  expect_output(print(e), "<rookery_events [0-9]+: open")
  e$close()
  text <- chunked(client)$text
  expect_match(text, "data: lines\n\n$")
  serve_until(function() length(heard) == 1)
  expect_equal(heard, "done")
  expect_identical(e$send("late"), FALSE)
})

test_that("values of a generator become events, also through `map`", {
  server <- local_server(function(req) {
    switch(
      req$PATH_INFO,
      "/map" = sse_body(generator(list(1, 2)), map = function(x) sse_event(x * 2, id = x)),
      "/later" = sse_body(chunks_of(promises::promise_resolve("a"), "", promises::promise(function(resolve, reject) {
        later::later(function() resolve("b"), 0.01)
      }))),
      sse_body(
        generator(list("to", "ken")), event = "token", headers = list("Cache-Control" = "no-cache")
      )
    )
  })
  client <- local_client(server)
  send(client, request())
  answer <- chunked(client)
  expect_equal(answer$text, ":\n\nevent: token\ndata: to\n\nevent: token\ndata: ken\n\n")
  expect_match(answer$head, "Cache-Control: no-cache\r\n", ignore.case = TRUE)
  expect_no_match(answer$head, "no-store")
  send(client, request("/map"))
  expect_equal(chunked(client)$text, ":\n\nid: 1\ndata: 2\n\nid: 2\ndata: 4\n\n")
  send(client, request("/later"))
  expect_equal(chunked(client)$text, ":\n\ndata: a\n\ndata: b\n\n")
})

test_that("a client that reconnects sends the last event id", {
  server <- local_server(function(req) {
    last <- suppressWarnings(as.integer(req$HTTP_LAST_EVENT_ID))
    from <- if (length(last) == 1 && !is.na(last)) last + 1 else 1
    sse_body(generator(as.list(from:5)), map = function(i) sse_event(i, id = i))
  })
  client <- local_client(server)
  send(client, request(headers = "Last-Event-ID: 3"))
  expect_equal(chunked(client)$text, ":\n\nid: 4\ndata: 4\n\nid: 5\ndata: 5\n\n")
  send(client, request(headers = "Last-Event-ID: none"))
  text <- chunked(client)$text
  expect_match(text, "^:\n\nid: 1")
})

test_that("the server sends comments while R is busy", {
  # The variable keeps the object, because a stream is aborted when R collects its object.
  e <- NULL
  server <- local_server(function(req) e <<- sse_response(heartbeat = 1))
  client <- local_client(server)
  send(client, request())
  read_to(client, ":\n\n")
  before <- length(client$read)
  # R is busy, and does not serve.
  expect_true(wait_until(function() {
    fill(client)
    length(client$read) > before
  }))
  expect_match(rawToChar(client$read[-seq_len(before)]), "^3\r\n:\n\n\r\n")
  expect_error(
    sse_response(heartbeat = 0),
    "`heartbeat` must be a number of seconds, at least 1, or Inf, not 0"
  )
})

test_that("an error in a map is an error of the stream", {
  server <- local_server(function(req) {
    sse_body(generator(list(1)), map = function(x) stop("no text"))
  })
  client <- local_client(server)
  said <- stderr_of({
    send(client, request())
    rest_of(client)
  })
  expect_match(said, "GET / \\(the stream\\): no text", all = FALSE)
})

test_that("stopping the server closes event streams with a delay for reconnecting", {
  e <- NULL
  server <- startServer("127.0.0.1", 0, function(req) e <<- sse_response())
  client <- local_client(server)
  send(client, request())
  read_to(client, ":\n\n")
  server$stop()
  text <- chunked(client)$text
  expect_match(text, "^:\n\nretry: [3-7][0-9]{3}\n\n$")
})

test_that("clients of events are asked to reconnect if the app was stopped", {
  server <- startServer("127.0.0.1", 0, function(req) {
    promises::promise(function(resolve, reject) NULL)
  })
  withr::defer(if (server$isRunning()) server$stop())
  client <- local_client(server)
  send(client, request(headers = "Accept: text/event-stream"))
  for (i in 1:20) service(5)
  .Call(ffi_refuse, as.integer(server$.__enclos_env__$private$handle), TRUE)
  answer <- reply(client)
  expect_equal(c(answer$status, answer$text), c("200", "retry: 5000\n\n"))
  # A client that connects while the listener still exists.
  expect_equal(get(client, headers = "Accept: text/event-stream")$text, "retry: 5000\n\n")
  expect_equal(get(client)$status, 503)
})
