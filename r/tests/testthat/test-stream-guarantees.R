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

test_that("`idle_timeout` disconnects a client that reads nothing, and not a silent app", {
  reasons <- list()
  later_chunk <- NULL
  server <- local_limited(function(req) {
    kind <- req$PATH_INFO
    chunk <- raw(2^16)
    source <- switch(
      kind,
      "/slow" = function() chunk,
      "/silent" = chunks_of(
        "begun", promises::promise(function(resolve, reject) later_chunk <<- resolve), " and ended"
      )
    )
    streamed(stream_body(
      source, on_close = function(reason) reasons[[kind]] <<- c(reasons[[kind]], reason),
      compress = FALSE
    ))
  }, limits = server_limits(idle_timeout = "300 ms"))
  silent <- local_client(server)
  send(silent, request("/silent"))
  read_to(silent, "begun")
  slow <- local_client(server)
  send(slow, request("/slow"))
  serve_until(function() !is.null(reasons[["/slow"]]))
  expect_equal(reasons[["/slow"]], "timeout")
  until <- Sys.time() + 0.7
  while (Sys.time() < until) service(20)
  expect_null(reasons[["/silent"]])
  later_chunk(" late")
  expect_equal(chunked(silent)$text, "begun late and ended")
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

test_that("over HTTP/1.0, pushed data ends with the connection, and a failure is not a clean end", {
  s <- NULL
  server <- local_server(function(req) {
    s <<- if (req$PATH_INFO == "/events") sse_response() else stream_response(headers = plain)
  })
  here <- environment()
  ask_10 <- function(path) {
    client <- local_client(server, here)
    s <<- NULL
    send(client, paste0("GET ", path, " HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n"))
    serve_until(function() !is.null(s))
    client
  }
  client <- ask_10("/push")
  s$write("one")
  s$close()
  text <- rawToChar(rest_of(client))
  expect_match(text, "^HTTP/1.[01] 200 .*\r\n\r\none$")
  client <- ask_10("/events")
  s$send("x\ry")
  s$close()
  text <- rawToChar(rest_of(client))
  # The comment is for proxies, because nothing else was sent yet.
  expect_match(text, "\r\n\r\n(:\n\n)?data: x\ndata: y\n\n$")
  # A reset; curl reports it, and R's readBin() does not.
  skip_if_not_installed("curl")
  skip_if_not_installed("callr")
  failing <- local_server(function(req) {
    n <- 0
    streamed(function() {
      n <<- n + 1
      # More than fits into the queue, so the head was sent.
      if (n < 300) strrep("x", 10000) else stop("behind the head")
    })
  })
  job <- callr::r_bg(function(url) {
    tryCatch({
      curl::curl_fetch_memory(url, curl::new_handle(http_version = 1, timeout = 60))
      "whole"
    }, error = conditionMessage)
  }, list(paste0("http://127.0.0.1:", failing$getPort())))
  withr::defer(job$kill())
  stderr_of(serve_until(function() !job$is_alive(), 60))
  expect_match(job$get_result(), "reset|Recv failure", ignore.case = TRUE)
})

test_that("a silent WebSocket is closed with 1006, and one that responds to pings is not", {
  closed <- list()
  open <- list()
  server <- local_limited(list(onWSOpen = function(ws) {
    name <- sub("/", "", ws$request$PATH_INFO)
    open[[name]] <<- ws
    ws$onClose(function(event) closed[[name]] <<- event[c("code", "wasClean")])
  }), limits = server_limits(ws_ping_interval = "300 ms", ws_ping_timeout = "5 s"))
  silent <- local_client(server)
  alive <- local_client(server)
  upgrade(silent, "/silent")
  upgrade(alive, "/alive")
  answered <- 0
  serve_until(function() {
    fill(alive)
    while (length(alive$read) >= 2) {
      ping <- next_frame(alive)
      expect_equal(ping$opcode, 9)
      answered <<- answered + 1
      send(alive, frame(ping$payload, opcode = 10))
    }
    length(closed) == 1 && answered >= 6
  })
  expect_equal(closed, list(silent = list(code = 1006L, wasClean = FALSE)))
  expect_true(open$alive$send("there"))
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

test_that("a body is pulled while pipelined requests wait for its end", {
  server <- local_server(function(req) {
    if (req$PATH_INFO == "/next") ok("next") else streamed(chunks_of("a", "", "b"))
  })
  client <- local_client(server)
  send(client, paste0(request("/stream"), request("/next"), request("/stream")))
  expect_equal(chunked(client)$text, "ab")
  expect_equal(reply(client)$text, "next")
  expect_equal(chunked(client)$text, "ab")
})
