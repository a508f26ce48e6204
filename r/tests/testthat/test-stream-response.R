# stream_response(): streamed responses that an app writes.

# A server that responds to each request with a stream, and keeps the streams.
local_streams <- function(..., env = parent.frame()) {
  it <- new.env()
  it$heard <- c()
  make <- function() {
    s <- stream_response(...)
    s$on_close(function(reason) it$heard <- c(it$heard, reason))
    s
  }
  it$server <- local_server(function(req) {
    if (req$PATH_INFO == "/plain") return(ok())
    it$s <- make()
  }, env)
  it
}

ask_for <- function(it, client, ...) {
  it$s <- NULL
  send(client, request(...))
  serve_until(function() !is.null(it$s))
  it$s
}

test_that("later writes arrive in order, and the connection stays open", {
  it <- local_streams(headers = plain)
  client <- local_client(it$server)
  s <- ask_for(it, client)
  expect_true(s$is_open())
  expect_true(s$write("one"))
  read_to(client, "one")
  expect_true(s$write(charToRaw("two")))
  expect_true(s$write(c("th", "ree")))
  expect_true(s$write(""))
  s$close()
  answer <- chunked(client)
  expect_equal(answer$text, "onetwothree")
  expect_match(answer$head, "Content-Type: text/plain", ignore.case = TRUE)
  serve_until(function() length(it$heard) == 1)
  expect_equal(it$heard, "done")
  expect_identical(s$write("more"), FALSE)
  expect_false(s$is_open())
  expect_equal(get(client, "/plain")$status, 200)
})

test_that("writes before the response is returned are sent after its head", {
  server <- local_server(function(req) {
    s <- stream_response(headers = plain)
    s$write("early ")
    s$write("bird")
    s$close()
    if (req$PATH_INFO == "/body") list(status = 201L, headers = plain, body = s) else s
  })
  client <- local_client(server)
  send(client, request())
  answer <- chunked(client)
  expect_equal(c(answer$status, answer$text), c("200", "early bird"))
  send(client, request("/body"))
  answer <- chunked(client)
  expect_equal(c(answer$status, answer$text), c("201", "early bird"))
})

test_that("flush() sends only the head", {
  it <- local_streams(headers = plain)
  client <- local_client(it$server)
  s <- ask_for(it, client)
  for (i in 1:20) service(5)
  fill(client)
  expect_length(client$read, 0)
  s$flush()
  read_to(client, "\r\n\r\n")
  expect_match(rawToChar(client$read), "\r\n\r\n$")
  s$close()
  expect_equal(chunked(client)$text, "")
})

test_that("write() returns FALSE to make the app wait, and on_drain is called to continue", {
  it <- local_streams(headers = plain)
  client <- local_client(it$server)
  s <- ask_for(it, client)
  drained <- 0
  s$on_drain(function() drained <<- drained + 1)
  chunk <- as.raw(rep(1, 2^20))
  expect_false(s$write(chunk))
  serve_until(function() {
    fill(client)
    drained == 1
  })
  # The client does not read: the sockets hold some of the data, and the rest is queued.
  given <- 0
  while (s$buffered() < 2^21) {
    expect_false(s$write(chunk))
    given <- given + 1
    service(20)
  }
  expect_equal(drained, 1 + sum(drained > 1))
  before <- drained
  serve_until(function() {
    fill(client)
    client$read <- raw(0)
    drained > before
  })
  expect_lt(s$buffered(), 16 * 1024)
  expect_true(s$write("x"))
})

test_that("a slow client is disconnected at 16 MiB", {
  it <- local_streams(headers = plain)
  client <- local_client(it$server)
  s <- ask_for(it, client)
  chunk <- as.raw(rep(1, 2^20))
  count <- 0
  while (s$is_open()) {
    s$write(chunk)
    count <- count + 1
    expect_lte(s$buffered(), 16 * 2^20)
  }
  expect_gte(count, 16)
  serve_until(function() length(it$heard) == 1)
  expect_equal(it$heard, "slow")
  expect_false(s$is_open())
  early <- stream_response()
  for (i in 1:16) early$write(chunk)
  expect_identical(early$write(chunk), FALSE)
  expect_false(early$is_open())
})

test_that("abort() results in status 500 before the head, and in a broken connection after it", {
  it <- local_streams(headers = plain)
  client <- local_client(it$server)
  ask_for(it, client)$abort()
  expect_equal(reply(client)$status, 500)
  s <- ask_for(it, client)
  s$write("begun")
  read_to(client, "begun")
  s$abort()
  expect_no_match(rawToChar(rest_of(client)), "0\r\n\r\n$")
  serve_until(function() length(it$heard) == 2)
  expect_equal(it$heard, c("error", "error"))
})

test_that("a disconnect is reported while nothing is written", {
  it <- local_streams(headers = plain)
  client <- local_client(it$server)
  s <- ask_for(it, client)
  s$write("begun")
  read_to(client, "begun")
  disconnect(client)
  serve_until(function() length(it$heard) == 1)
  expect_equal(it$heard, "client")
  expect_identical(s$write("x"), FALSE)
  late <- NULL
  s$on_close(function(reason) late <<- reason)
  serve_until(function() !is.null(late))
  expect_equal(late, "client")
})

test_that("write() and close() enforce the Content-Length", {
  it <- local_streams(headers = list("Content-Length" = "5"))
  client <- local_client(it$server)
  s <- ask_for(it, client)
  s$write("01")
  s$write("234")
  s$close()
  expect_equal(reply(client)$text, "01234")
  s <- ask_for(it, client)
  s$write("01")
  expect_error(s$write("2345"), "more bytes than the response's Content-Length")
  expect_false(s$is_open())
  client <- local_client(it$server)
  s <- ask_for(it, client)
  s$write("01")
  expect_error(s$close(), "closed 3 bytes before its Content-Length")
})

test_that("the Content-Length is enforced for writes before the response as well", {
  heard <- c()
  server <- local_server(function(req) {
    s <- stream_response(headers = list("Content-Length" = "5"))
    s$on_close(function(reason) heard <<- c(heard, reason))
    s$write(if (req$PATH_INFO == "/long") "0123456789" else "01")
    s$close()
    s
  })
  for (path in c("/long", "/short")) {
    client <- local_client(server)
    said <- stderr_of(if (path == "/long") {
      expect_equal(get(client, path)$status, 500)
    } else {
      # The head may have been sent with the data before the abort. R reads nothing that arrives
      # together with a reset.
      send(client, request(path, headers = "Connection: close"))
      rest_of(client)
    })
    expect_match(said, "\\(the stream\\): .*Content-Length", all = FALSE)
  }
  serve_until(function() length(heard) == 2)
  expect_equal(heard, c("error", "error"))
})

test_that("writes before the response that cannot be sent result in status 500", {
  server <- local_server(function(req) {
    s <- stream_response()
    bytes <- "\xff"
    Encoding(bytes) <- "bytes"
    s$write(bytes)
    s$close()
    s
  })
  client <- local_client(server)
  said <- stderr_of(expect_equal(get(client)$status, 500))
  expect_match(said, "(the stream): ", fixed = TRUE, all = FALSE)
})

test_that("close() after a disconnect is not an error", {
  it <- local_streams(headers = list("Content-Length" = "500"))
  client <- local_client(it$server)
  s <- ask_for(it, client)
  s$write("0")
  read_to(client, "\r\n\r\n0")
  disconnect(client)
  # R does not run the event loop meanwhile, so it does not know.
  until <- Sys.time() + 60
  while (s$write("x") && Sys.time() < until) Sys.sleep(0.01)
  expect_identical(s$write("x"), FALSE)
  expect_identical(s$write(""), FALSE)
  expect_equal(s$buffered(), 0)
  expect_match(format(s), "^<rookery_stream [0-9]+: over>$")
  expect_silent(s$close())
  serve_until(function() length(it$heard) == 1)
  expect_equal(it$heard, "client")
})

test_that("stopping the server aborts the stream, so that it does not look complete", {
  it <- local_streams(headers = plain)
  client <- local_client(it$server)
  s <- ask_for(it, client)
  s$write("one")
  read_to(client, "one")
  it$server$stop()
  serve_until(function() length(it$heard) == 1)
  expect_equal(it$heard, "stop")
  expect_match(rawToChar(rest_of(client)), "\r\n3\r\none\r\n$")
})

test_that("a stream that R collects before close() is aborted and reported", {
  is_told <- FALSE
  server <- local_server(list(
    call = function(req) {
      s <- stream_response(headers = plain)
      s$write("begun")
      s
    },
    onError = function(error, req, info) is_told <<- TRUE
  ))
  client <- local_client(server)
  send(client, request())
  read_to(client, "begun")
  said <- stderr_of({
    for (i in 1:3) gc(full = TRUE)
    bytes <- rest_of(client)
    # The report comes with the event of the stream's end, after the client has seen the end.
    serve_until(function() is_told)
  })
  expect_no_match(rawToChar(bytes), "0\r\n\r\n$")
  expect_match(said, "R has collected the stream's object before `\\$close\\(\\)`", all = FALSE)
})

test_that("keeping a method keeps the object", {
  kept <- NULL
  server <- local_server(function(req) {
    s <- if (req$PATH_INFO == "/") stream_response(headers = plain) else sse_response()
    kept <<- list(if (req$PATH_INFO == "/") s$write else s$send, s$close)
    s
  })
  for (path in c("/", "/events")) {
    client <- local_client(server)
    kept <- NULL
    send(client, paste0("GET ", path, " HTTP/1.1\r\nHost: a\r\n\r\n"))
    serve_until(function() !is.null(kept))
    for (i in 1:3) gc(full = TRUE)
    kept[[1]]("late")
    kept[[2]]()
    text <- chunked(client)$text
    expect_match(text, "late")
  }
})

test_that("a WebSocket, a promise or another request may write to the stream", {
  server <- local_server(list(
    call = function(req) {
      if (req$PATH_INFO == "/say") {
        s$write("said ")
        return(ok())
      }
      s <<- stream_response(headers = plain)
    },
    onWSOpen = function(ws) ws$onMessage(function(binary, message) s$write(message))
  ))
  s <- NULL
  client <- local_client(server)
  send(client, request())
  serve_until(function() !is.null(s))
  get(local_client(server), "/say")
  ws <- local_client(server)
  upgrade(ws)
  send(ws, frame("messaged "))
  read_to(client, "messaged")
  promises::then(promises::promise_resolve("promised"), function(value) {
    s$write(value)
    s$close()
  })
  expect_equal(chunked(client)$text, "said messaged promised")
})

test_that("errors name the wrong argument or object", {
  s <- stream_response()
  expect_error(s$write(1), "`x` must be a raw vector or strings without NA, not 1.")
  expect_error(s$write(NA_character_), "without NA")
  expect_error(s$on_close("x"), "`func` must be a function")
  expect_error(stream_body(function() NULL, on_close = 1), "`on_close` must be a function")
  expect_output(print(s), "<rookery_stream: not yet a response, 0 B waiting>", fixed = TRUE)
  s$write("abc")
  expect_output(
    print(s), "<rookery_stream: not yet a response, 1 chunk, 3 B, 3 B waiting>", fixed = TRUE
  )
  it <- local_streams(headers = plain)
  client <- local_client(it$server)
  s <- ask_for(it, client)
  s$write(strrep("x", 2000))
  serve_until(function() s$buffered() == 0)
  expect_output(print(s), "<rookery_stream [0-9]+: open, 1 chunk, 2 kB, 0 B waiting>")
  s$close()
  serve_until(function() length(it$heard) == 1)
  expect_output(print(s), "<rookery_stream [0-9]+: over [(]done[)]>")
})

test_that("writes before the response take constant time per chunk", {
  seconds <- function(count) {
    s <- stream_response()
    gc()
    system.time(for (i in seq_len(count)) s$write("x"))[["user.self"]]
  }
  # 16 times as many. Copying a list for each chunk would take 256 times as long.
  expect_lt(seconds(32000), 80 * max(seconds(2000), 0.01))
  server <- local_server(function(req) {
    s <- stream_response(headers = plain)
    for (i in 1:20000) s$write(paste0(i %% 10))
    s$close()
    s
  })
  client <- local_client(server)
  send(client, request())
  expect_equal(chunked(client)$text, strrep("1234567890", 2000))
})
