# stream_body() and functions as bodies, over real sockets: only what R adds. crates/server/tests
# (it/response_stream/) test the server's part: framing, HTTP/1.0, responses without a body, limits on
# queued data, the delay after an empty chunk, errors before and after the head, and compression.

test_that("a function is called for chunks until it returns NULL, and the connection stays open", {
  server <- local_server(function(req) {
    if (req$PATH_INFO == "/plain") return(ok("after"))
    streamed(chunks_of("one", raw(0), c("tw", "o"), "", charToRaw("three"), "\u00fc"))
  })
  client <- local_client(server)
  for (i in 1:2) {
    send(client, request())
    answer <- chunked(client)
    expect_equal(answer$status, 200)
    expect_match(answer$head, "Transfer-Encoding: chunked", ignore.case = TRUE)
    expect_equal(answer$text, enc2native("onetwothree\u00fc"))
  }
  expect_equal(get(client, "/plain")$text, "after")
})

test_that("a generator of package coro can be a body", {
  server <- local_server(function(req) streamed(generator(list("a", "b", "c"))))
  client <- local_client(server)
  send(client, request())
  expect_equal(chunked(client)$text, "abc")
  skip_if_not_installed("coro")
  made <- coro::generator(function() for (x in letters) coro::yield(x))
  server <- local_server(function(req) streamed(made()))
  client <- local_client(server)
  send(client, request())
  expect_equal(chunked(client)$text, paste(letters, collapse = ""))
})

test_that("a fulfilled promise is used as a chunk at once", {
  server <- local_server(function(req) {
    streamed(chunks_of(promises::promise_resolve("a"), promises::promise_resolve("b")))
  })
  client <- local_client(server)
  send(client, request())
  expect_equal(chunked(client)$text, "ab")
})

test_that("a response from onHeaders or from a promise can be streamed", {
  server <- local_server(list(
    onHeaders = function(req) if (req$PATH_INFO == "/early") streamed(chunks_of("early")),
    call = function(req) promises::promise(function(resolve, reject) {
      later::later(function() resolve(streamed(chunks_of("late"))), 0.01)
    })
  ))
  client <- local_client(server)
  send(client, request("/early"))
  expect_equal(chunked(client)$text, "early")
  send(client, request("/late"))
  expect_equal(chunked(client)$text, "late")
})

test_that("fast sources are called in turn, and requests are handled between them", {
  order <- c()
  server <- local_server(function(req) {
    name <- substring(req$PATH_INFO, 2)
    left <- 2000
    if (name == "plain") {
      order <<- c(order, name)
      return(ok("plain"))
    }
    streamed(function() {
      order <<- c(order, name)
      left <<- left - 1
      if (left > 0) name
    })
  })
  clients <- list(a = local_client(server), b = local_client(server))
  for (name in names(clients)) send(clients[[name]], request(paste0("/", name)))
  # Both streams have begun before many chunks are requested.
  serve_until(function() all(c("a", "b") %in% order))
  expect_equal(get(local_client(server), "/plain")$text, "plain")
  expect_gt(which(order == "plain"), 1)
  for (name in names(clients)) expect_equal(chunked(clients[[name]])$text, strrep(name, 1999))
  # Neither source is called many times while the other one waits.
  both <- rle(order[seq(match("b", order), length.out = 1000)])
  expect_lt(max(both$lengths), 500)
})

test_that("the source is not called while its promise is pending, and chunks keep their order", {
  asked <- 0
  is_pending <- FALSE
  server <- local_server(function(req) streamed(function() {
    expect_false(is_pending)
    asked <<- asked + 1
    if (asked > 40) return(NULL)
    if (asked %% 4 > 0) return(paste0(asked, " "))
    number <- asked
    is_pending <<- TRUE
    promises::promise(function(resolve, reject) {
      later::later(function() {
        is_pending <<- FALSE
        resolve(paste0(number, " "))
      }, 0.005)
    })
  }))
  client <- local_client(server)
  send(client, request())
  expect_equal(chunked(client)$text, paste0(1:40, " ", collapse = ""))
})

test_that("a source is not called again after its Content-Length is reached", {
  asked <- 0
  server <- local_server(function(req) {
    streamed(function() {
      asked <<- asked + 1
      "x"
    }, headers = list("Content-Length" = "5"))
  })
  client <- local_client(server)
  expect_equal(get(client)$text, "xxxxx")
  for (i in 1:20) service(5)
  expect_equal(asked, 5)
})

test_that("more or fewer bytes than the Content-Length are an error", {
  server <- local_server(function(req) {
    streamed(switch(
      req$PATH_INFO,
      "/more" = chunks_of("01234", "", "567890"),
      "/less" = chunks_of("01234", "")
    ), list("Content-Length" = 10))
  })
  for (path in c("/more", "/less")) {
    client <- local_client(server)
    said <- stderr_of({
      send(client, request(path))
      text <- rawToChar(rest_of(client))
    })
    expect_match(said, "Content-Length", all = FALSE)
    expect_match(text, "01234$")
  }
})

test_that("an error after the head is reported, and close = TRUE is not passed to the source", {
  reasons <- c()
  closed <- 0
  n <- 0
  source <- function(close = FALSE) {
    if (close) {
      closed <<- closed + 1
      return(NULL)
    }
    n <<- n + 1
    if (n == 1) "begun" else if (has_read) stop("broken") else ""
  }
  has_read <- FALSE
  server <- local_server(function(req) {
    streamed(stream_body(source, on_close = function(reason) reasons <<- c(reasons, reason)))
  })
  client <- local_client(server)
  said <- stderr_of({
    send(client, request())
    read_to(client, "begun")
    # R reads nothing that arrives together with a reset.
    has_read <- TRUE
    rest_of(client)
    serve_until(function() length(reasons) == 1)
  })
  expect_match(said, "(the stream): broken", fixed = TRUE, all = FALSE)
  expect_equal(reasons, "error")
  expect_equal(closed, 0)
})

test_that("an invalid chunk and a rejected promise are errors", {
  for (chunk in list(1, NA_character_, list("a"), quote(x))) {
    server <- local_server(function(req) streamed(function() chunk))
    client <- local_client(server)
    said <- stderr_of(expect_equal(get(client)$status, 500))
    expect_match(said, "a chunk of a stream must be a raw vector or strings", all = FALSE)
  }
  server <- local_server(function(req) streamed(function() promises::promise_reject("not today")))
  client <- local_client(server)
  said <- stderr_of(expect_equal(get(client)$text, "ERROR: not today"))
  expect_match(said, "GET / \\(the stream\\): .*not today", all = FALSE)
})

test_that("a source that returned an invalid chunk is called with close = TRUE", {
  heard <- c()
  of <- function(value, headers = plain) {
    source <- generator(list(value), on_exit = function() heard <<- c(heard, "closed"))
    streamed(stream_body(source, on_close = function(reason) heard <<- c(heard, reason)), headers)
  }
  server <- local_server(function(req) switch(
    req$PATH_INFO,
    "/type" = of(1),
    "/promised" = of(promises::promise(
      function(resolve, reject) later::later(function() resolve(NA_character_), 0.01)
    )),
    "/long" = of("0123456789", list("Content-Length" = "5"))
  ))
  for (path in c("/type", "/promised", "/long")) {
    heard <- c()
    client <- local_client(server)
    said <- stderr_of(expect_equal(get(client, path)$status, 500))
    serve_until(function() "error" %in% heard)
    expect_equal(heard, c("closed", "error"))
  }
})

test_that("an invalid promised chunk does not evaluate options(error=)", {
  runs <- 0
  withr::local_options(error = function() runs <<- runs + 1)
  server <- local_server(function(req) streamed(function() {
    promises::promise(function(resolve, reject) later::later(function() resolve(1), 0.01))
  }))
  client <- local_client(server)
  said <- stderr_of(expect_equal(get(client)$status, 500))
  expect_equal(runs, 0)
})

test_that("after a disconnect, the source is called with close = TRUE and then on_close once", {
  heard <- c()
  server <- local_server(function(req) {
    source <- generator(as.list(rep("tick", 1e6)), on_exit = function() {
      heard <<- c(heard, "closed")
    })
    streamed(stream_body(source, on_close = function(reason) heard <<- c(heard, reason)))
  })
  client <- local_client(server)
  send(client, request())
  read_to(client, "tick")
  disconnect(client)
  serve_until(function() length(heard) >= 2)
  for (i in 1:20) service(5)
  expect_equal(heard, c("closed", "client"))
})

test_that("a chunk that was promised before a disconnect is dropped", {
  heard <- c()
  resolve_it <- NULL
  server <- local_server(function(req) {
    streamed(stream_body(
      function() promises::promise(function(resolve, reject) resolve_it <<- resolve),
      on_close = function(reason) heard <<- c(heard, reason)
    ))
  })
  client <- local_client(server)
  send(client, request())
  serve_until(function() !is.null(resolve_it))
  disconnect(client)
  serve_until(function() length(heard) == 1)
  resolve_it("too late")
  for (i in 1:20) service(5)
  expect_equal(heard, "client")
})

test_that("a source that calls service() is not called within itself", {
  depth <- 0
  most <- 0
  heard <- c()
  client <- NULL
  source <- function(close = FALSE) {
    depth <<- depth + 1
    on.exit(depth <<- depth - 1)
    most <<- max(most, depth)
    if (close) {
      heard <<- c(heard, "closed")
    } else if (!is.null(client)) {
      disconnect(client)
      for (i in 1:60) service(10)
      heard <<- c(heard, "back")
    }
    "chunk"
  }
  server <- local_server(function(req) {
    streamed(stream_body(source, on_close = function(reason) heard <<- c(heard, reason)))
  })
  one <- local_client(server)
  send(one, request())
  read_to(one, "chunk")
  client <- one
  serve_until(function() "client" %in% heard)
  expect_equal(most, 1)
  expect_equal(heard, c("back", "closed", "client"))
})

test_that("for a HEAD request the source is only called with close = TRUE", {
  heard <- c()
  server <- local_server(function(req) {
    source <- function(close = FALSE) heard <<- c(heard, if (close) "closed" else "asked")
    streamed(
      stream_body(source, on_close = function(reason) heard <<- c(heard, reason)),
      list("X-Kept" = "yes")
    )
  })
  client <- local_client(server)
  send(client, request("/", "HEAD"))
  expect_equal(reply(client, "HEAD")$headers[["x-kept"]], "yes")
  serve_until(function() length(heard) == 2)
  expect_equal(heard, c("closed", "done"))
})

test_that("requests, callbacks of package later and streams take turns", {
  ticks <- 0
  is_over <- FALSE
  ticker <- function() {
    ticks <<- ticks + 1
    if (!is_over) later::later(ticker, 0.005)
  }
  server <- local_server(function(req) {
    if (req$PATH_INFO == "/plain") return(ok())
    streamed(function() "tokens ")
  })
  here <- environment()
  streams <- lapply(1:3, function(i) {
    client <- local_client(server, here)
    send(client, request())
    client
  })
  ticker()
  other <- local_client(server)
  for (i in 1:20) {
    expect_equal(get(other, "/plain")$status, 200)
    for (client in streams) {
      fill(client)
    }
  }
  is_over <- TRUE
  expect_gt(ticks, 3)
  sizes <- vapply(streams, function(client) length(client$read), 0)
  expect_true(all(sizes > 100))
})

test_that("an R connection is sent in chunks and closed at its end", {
  path <- withr::local_tempfile()
  bytes <- as.raw(sample(0:255, 200000, replace = TRUE))
  writeBin(bytes, path)
  con <- NULL
  server <- local_server(function(req) {
    con <<- file(path)
    streamed(stream_body(con))
  })
  client <- local_client(server)
  send(client, request())
  answer <- chunked(client)
  expect_identical(unlist(answer$chunks), bytes)
  serve_until(function() !tryCatch(isOpen(con), error = function(e) FALSE))
  expect_error(isOpen(con))
  expect_error(stream_body(1), "`source` must be a function that returns a chunk")
  text <- file(path, "rt")
  withr::defer(close(text))
  expect_error(stream_body(text), "open it with \"rb\"")
})

test_that("an R connection that cannot be sent is closed as well", {
  path <- withr::local_tempfile()
  writeBin(raw(1000), path)
  con <- NULL
  server <- local_server(function(req) {
    con <<- file(path, "rb")
    switch(
      req$PATH_INFO,
      "/long" = streamed(stream_body(con), list("Content-Length" = "10")),
      # Open for writing only, which is noticed when it is read.
      "/unreadable" = {
        close(con)
        con <<- file(path, "wb")
        streamed(stream_body(con))
      }
    )
  })
  for (path_info in c("/long", "/unreadable")) {
    client <- local_client(server)
    said <- stderr_of(expect_equal(get(client, path_info)$status, 500))
    expect_match(said, "(the stream): ", fixed = TRUE, all = FALSE)
    serve_until(function() tryCatch(!isOpen(con), error = function(e) TRUE))
    expect_error(isOpen(con), "invalid connection")
  }
  lines <- textConnection("abc")
  withr::defer(close(lines))
  expect_error(stream_body(lines), "use rawConnection()", fixed = TRUE)
})

test_that("a source can be used for one request only", {
  source <- stream_body(chunks_of("a"))
  server <- local_server(function(req) streamed(source))
  client <- local_client(server)
  send(client, request())
  expect_equal(chunked(client)$text, "a")
  said <- stderr_of(expect_equal(get(client)$status, 500))
  expect_match(said, "create one for each request", all = FALSE)
})

test_that("an error in one closing function is reported, and the others are called", {
  heard <- c()
  server <- local_server(function(req) {
    streamed(stream_body(
      generator(list("a"), on_exit = function() stop("in the exit")),
      on_close = function(reason) {
        heard <<- c(heard, reason)
        stop("in on_close")
      }
    ))
  })
  client <- local_client(server)
  said <- stderr_of({
    send(client, request(method = "HEAD"))
    serve_until(function() length(heard) == 1)
  })
  expect_match(said, "HEAD / (a stream's end): in the exit", fixed = TRUE, all = FALSE)
  expect_match(said, "HEAD / (a stream's end): in on_close", fixed = TRUE, all = FALSE)
  expect_equal(heard, "done")
})

test_that("when the server stops, on_close gets the reason stop", {
  heard <- c()
  server <- startServer("127.0.0.1", 0, function(req) {
    streamed(stream_body(
      function() promises::promise(function(resolve, reject) NULL),
      on_close = function(reason) heard <<- reason
    ))
  })
  client <- local_client(server)
  send(client, request())
  for (i in 1:20) service(5)
  server$stop()
  serve_until(function() length(heard) == 1)
  expect_equal(heard, "stop")
})

test_that("a serializer of plumber can return a stream", {
  skip_if_not_installed("plumber")
  # The serializer of the vignette.
  serializer_stream <- function(type = "text/plain") {
    function(val, req, res, errorHandler) {
      list(status = res$status, headers = c(res$headers, list("Content-Type" = type)), body = val)
    }
  }
  api <- plumber::pr()
  api <- plumber::pr_get(
    api, "/rows", function() stream_body(chunks_of("a,b\n", "1,2\n")),
    serializer = serializer_stream("text/csv")
  )
  server <- local_server(api)
  client <- local_client(server)
  send(client, request("/rows"))
  answer <- chunked(client)
  expect_equal(answer$text, "a,b\n1,2\n")
  expect_match(answer$head, "Content-Type: text/csv", ignore.case = TRUE)
})

test_that("`compress` decides whether the stream is compressed", {
  server <- local_server(function(req) {
    streamed(stream_body(chunks_of("chunk 1 ", "chunk 2 "), compress = req$PATH_INFO != "/plain"))
  })
  client <- local_client(server)
  send(client, request(headers = "Accept-Encoding: gzip"))
  answer <- chunked(client)
  expect_match(answer$head, "[Cc]ontent-[Ee]ncoding: gzip")
  expect_equal(memDecompress(unlist(answer$chunks), "gzip", asChar = TRUE), "chunk 1 chunk 2 ")
  send(client, request("/plain", headers = "Accept-Encoding: gzip"))
  expect_equal(chunked(client)$text, "chunk 1 chunk 2 ")
})
