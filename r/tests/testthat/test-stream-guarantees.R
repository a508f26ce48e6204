# Streams, events and WebSockets over real sockets: guarantees that the other test files do not
# cover.

latin1 <- function(bytes) {
  text <- rawToChar(as.raw(bytes))
  Encoding(text) <- "latin1"
  text
}

test_that("chunks in another encoding arrive as UTF-8: pulled, promised, pushed and as events", {
  chunk <- latin1(c(0x66, 0xfc, 0x72))
  utf8 <- as.raw(c(0x66, 0xc3, 0xbc, 0x72))
  s <- NULL
  server <- local_server(function(req) {
    switch(
      req$PATH_INFO,
      "/pull" = streamed(chunks_of(chunk, c(chunk, chunk))),
      "/promised" = streamed(chunks_of(promises::promise_resolve(chunk), chunk, chunk)),
      "/events" = sse_body(chunks_of(chunk, c(chunk, chunk))),
      {
        s <- stream_response(headers = plain)
        s$write(chunk)
        s$write(c(chunk, chunk))
        s$close()
        s
      }
    )
  })
  client <- local_client(server)
  for (path in c("/pull", "/promised", "/push")) {
    send(client, request(path))
    expect_identical(as.raw(unlist(chunked(client)$chunks)), rep(utf8, 3), info = path)
  }
  send(client, request("/events"))
  data <- c(charToRaw("data: "), utf8, charToRaw("\n"))
  expect_identical(
    as.raw(unlist(chunked(client)$chunks)),
    c(charToRaw(":\n\n"), data, charToRaw("\n"), data, data, charToRaw("\n"))
  )
})

test_that("onError is called for an error after the head, and its value is ignored", {
  withr::local_options(rookery.error_detail = "none")
  told <- list()
  may_fail <- FALSE
  server <- local_server(list(
    call = function(req) {
      n <- 0
      streamed(function() {
        n <<- n + 1
        if (n == 1) "begun" else if (may_fail) stop("behind the head") else ""
      })
    },
    onError = function(cond, req, info) {
      told[[length(told) + 1]] <<- list(
        conditionMessage(cond), info$stage, info$request_id, info$trace
      )
      ok("never seen")
    }
  ))
  client <- local_client(server)
  said <- stderr_of({
    send(client, request("/rows"))
    read_to(client, "begun")
    may_fail <- TRUE
    text <- rawToChar(rest_of(client))
  })
  expect_match(text, "^HTTP/1.1 200 ")
  expect_no_match(text, "never seen|0\r\n\r\n$")
  expect_length(told, 1)
  expect_equal(told[[1]][1:2], list("behind the head", "stream"))
  expect_match(told[[1]][[4]], "stop(\"behind the head\")", fixed = TRUE, all = FALSE)
  expect_match(
    said, paste0("GET /rows (the stream): behind the head [", told[[1]][[3]], "]"), fixed = TRUE,
    all = FALSE
  )
})

test_that("onError is called for errors in on_close, on_drain and onDrain", {
  withr::local_options(rookery.error_detail = "none")
  told <- c()
  s <- NULL
  ws <- NULL
  server <- local_server(list(
    call = function(req) {
      if (req$PATH_INFO == "/pull") {
        return(streamed(
          stream_body(chunks_of("x"), on_close = function(reason) stop("in on_close"))
        ))
      }
      s <<- stream_response(headers = plain)
    },
    onWSOpen = function(opened) ws <<- opened,
    onError = function(cond, req, info) told <<- c(told, paste(info$stage, conditionMessage(cond)))
  ))
  stderr_of({
    client <- local_client(server)
    send(client, request("/pull"))
    expect_equal(chunked(client)$text, "x")
    serve_until(function() length(told) == 1)
    client <- local_client(server)
    send(client, request("/push"))
    serve_until(function() !is.null(s))
    s$on_drain(function() stop("in on_drain"))
    expect_false(s$write(raw(2^20)))
    serve_until(function() {
      fill(client)
      length(told) == 2
    })
    # The connection stays open.
    s$write("behind it")
    s$close()
    read_to(client, "behind it")
    client <- local_client(server)
    upgrade(client)
    serve_until(function() !is.null(ws))
    ws$onDrain(function() stop("in onDrain"))
    while (!isFALSE(ws$send(raw(2^21)))) service(1)
    serve_until(function() {
      fill(client)
      client$read <- raw(0)
      length(told) == 3
    })
  })
  expect_equal(told, c("stream in on_close", "stream in on_drain", "drain in onDrain"))
})

test_that("pushed streams and events are compressed only on request", {
  server <- local_server(function(req) {
    compress <- endsWith(req$PATH_INFO, "-compressed")
    if (startsWith(req$PATH_INFO, "/events")) {
      return(sse_body(chunks_of("one", "two"), compress = compress))
    }
    s <- stream_response(headers = plain, compress = compress)
    s$write("one ")
    s$write("two")
    s$close()
    s
  })
  client <- local_client(server)
  for (kind in c("/push", "/events")) {
    send(client, request(kind, headers = "Accept-Encoding: gzip"))
    as_it_is <- chunked(client)
    expect_no_match(as_it_is$head, "content-encoding", ignore.case = TRUE)
    send(client, request(paste0(kind, "-compressed"), headers = "Accept-Encoding: gzip"))
    answer <- chunked(client)
    expect_match(answer$head, "Content-Encoding: gzip", ignore.case = TRUE)
    expect_equal(memDecompress(as.raw(unlist(answer$chunks)), "gzip", asChar = TRUE), as_it_is$text)
    # A client that does not accept gzip gets uncompressed data.
    send(client, request(paste0(kind, "-compressed")))
    expect_equal(chunked(client)$text, as_it_is$text)
  }
})

# crates/server/tests/it/response_stream/stream_ends.rs tests that a silent app has no such limit.
test_that("a client that reads nothing for `idle_timeout` is reported as a timeout", {
  reasons <- c()
  server <- local_limited(function(req) {
    chunk <- raw(2^16)
    streamed(stream_body(
      function() chunk, on_close = function(reason) reasons <<- c(reasons, reason),
      compress = FALSE
    ))
  }, limits = server_limits(idle_timeout = "300 ms"))
  client <- local_client(server)
  send(client, request())
  serve_until(function() length(reasons) > 0)
  expect_equal(reasons, "timeout")
})

test_that("an R connection that would block R gives a warning", {
  con <- pipe("echo of a pipe")
  expect_warning(source <- stream_body(con), "connection of class pipe blocks R")
  server <- local_server(function(req) streamed(source))
  client <- local_client(server)
  send(client, request())
  expect_equal(chunked(client)$text, "of a pipe\n")
})

test_that("a disconnect while R computes does not interrupt R, and is reported afterwards", {
  heard <- c()
  client <- NULL
  server <- local_server(function(req) {
    n <- 0
    streamed(stream_body(function() {
      n <<- n + 1
      if (n > 1 && !is.null(client)) {
        disconnect(client)
        # The I/O thread has noticed it long before this ends.
        Sys.sleep(0.3)
        heard <<- c(heard, "computed")
      }
      "chunk"
    }, on_close = function(reason) heard <<- c(heard, reason)))
  })
  one <- local_client(server)
  send(one, request())
  read_to(one, "chunk")
  client <- one
  serve_until(function() "client" %in% heard)
  expect_equal(heard[1], "computed")
  expect_equal(tail(heard, 1), "client")
})

test_that("data of sent events is split at all three line ends", {
  e <- NULL
  server <- local_server(function(req) e <<- sse_response())
  client <- local_client(server)
  send(client, request())
  read_to(client, ":\n\n")
  e$send("a\rid: stolen\r\nb\nretry: 1", id = "7")
  e$send("")
  e$send(NULL, id = "8")
  e$close()
  text <- chunked(client)$text
  expect_match(
    text, "id: 7\ndata: a\ndata: id: stolen\ndata: b\ndata: retry: 1\n\ndata: \n\nid: 8\n\n$"
  )
})
