# streamed responses, over real sockets: what a body that is a function, a generator or a connection does.

test_that("a function is asked for chunks until it gives NULL, and the connection goes on", {
  server <- local_server(function(req) {
    if (req$PATH_INFO == "/plain") return(ok("after"))
    streamed(chunks_of("one", c("tw", "o"), charToRaw("three"), "\u00fc"))
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

test_that("a generator of coro's is a body as it is", {
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

test_that("chunks may be promised, and one is asked for after the other", {
  running <- 0
  most <- 0
  n <- 0
  server <- local_server(function(req) {
    streamed(function() {
      running <<- running + 1
      most <<- max(most, running)
      promises::promise(function(resolve, reject) {
        later::later(function() {
          running <<- running - 1
          n <<- n + 1
          resolve(if (n <= 5) paste0("<", n, ">"))
        }, 0.02)
      })
    })
  })
  client <- local_client(server)
  send(client, request())
  expect_equal(chunked(client)$text, "<1><2><3><4><5>")
  expect_equal(most, 1)
})

test_that("a promise that is fulfilled already is a chunk at once", {
  server <- local_server(function(req) {
    streamed(chunks_of(promises::promise_resolve("a"), promises::promise_resolve("b")))
  })
  client <- local_client(server)
  send(client, request())
  expect_equal(chunked(client)$text, "ab")
})

test_that("a response from onHeaders or a promise may come in chunks", {
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

test_that("nothing yet is asked again, not before 10 ms", {
  asked <- c()
  server <- local_server(function(req) streamed(function() {
    asked <<- c(asked, as.numeric(Sys.time()))
    if (length(asked) < 4) raw(0) else if (length(asked) < 6) "" else if (length(asked) == 6) "x"
  }))
  client <- local_client(server)
  send(client, request())
  expect_equal(chunked(client)$text, "x")
  expect_true(all(diff(asked)[1:5] >= 0.009))
})

test_that("sources that have much to give take turns, with requests too", {
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
  # Both have begun before anything is asked for much.
  serve_until(function() all(c("a", "b") %in% order))
  expect_equal(get(local_client(server), "/plain")$text, "plain")
  expect_gt(which(order == "plain"), 1)
  for (name in names(clients)) expect_equal(chunked(clients[[name]])$text, strrep(name, 1999))
  # Neither gives more than a few turns' chunks while the other waits.
  both <- rle(order[seq(match("b", order), length.out = 1000)])
  expect_lt(max(both$lengths), 500)
})

test_that("a promise among chunks is waited for, and what follows it comes after", {
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

test_that("a length that is reached is the end, though its source would go on", {
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

test_that("a source is not asked while 64 KiB wait", {
  asked <- 0
  chunk <- as.raw(rep(7, 65536))
  server <- local_server(function(req) streamed(function() {
    asked <<- asked + 1
    if (asked <= 600) chunk
  }))
  client <- local_client(server)
  send(client, request())
  before <- -1
  serve_until(function() {
    for (i in 1:20) service(5)
    is_same <- before == asked
    before <<- asked
    is_same
  })
  expect_lt(asked, 300)
  bytes <- 0
  serve_until(function() {
    fill(client)
    bytes <<- bytes + length(client$read)
    # What is left of it is looked at for the end.
    is_over <- length(client$read) >= 5 && identical(tail(client$read, 5), charToRaw("0\r\n\r\n"))
    client$read <- raw(0)
    is_over
  })
  expect_gt(bytes, 600 * 65536)
  expect_equal(asked, 601)
})

test_that("an error before the head is an ordinary 500", {
  server <- local_server(function(req) streamed(function() stop("no table")))
  client <- local_client(server)
  said <- stderr_of({
    answer <- get(client)
  })
  expect_equal(answer$status, 500)
  expect_equal(answer$text, "ERROR: no table")
  expect_match(said, "GET / \\(the stream\\): no table", all = FALSE)
  said <- stderr_of(expect_equal(get(client)$status, 500))
})

test_that("an error behind it cuts what was begun, and never fakes its end", {
  reasons <- c()
  closed <- 0
  has_read <- FALSE
  failing <- function(headers) function(req) {
    n <- 0
    source <- function(close = FALSE) {
      if (close) {
        closed <<- closed + 1
        return(NULL)
      }
      n <<- n + 1
      if (n == 1) "begun" else if (has_read) stop("broken") else ""
    }
    streamed(stream_body(source, on_close = function(reason) reasons <<- c(reasons, reason)), headers)
  }
  for (headers in list(plain, list("Content-Length" = "100"))) {
    server <- local_server(failing(headers))
    client <- local_client(server)
    said <- stderr_of({
      has_read <- FALSE
      send(client, request())
      read_to(client, "begun")
      # R gives nothing of what comes together with a reset.
      has_read <- TRUE
      text <- rawToChar(rest_of(client))
    })
    expect_no_match(text, "0\r\n\r\n$")
    expect_match(said, "(the stream): broken", fixed = TRUE, all = FALSE)
  }
  serve_until(function() length(reasons) == 2)
  expect_equal(reasons, c("error", "error"))
  expect_equal(closed, 0, info = "a source that raised is dead")
})

test_that("what is no chunk is an error, and so is a rejected promise", {
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

test_that("a source whose chunk is wrong is closed: it has not failed itself", {
  heard <- c()
  of <- function(value, headers = plain) {
    source <- generator(list(value), on_exit = function() heard <<- c(heard, "closed"))
    streamed(stream_body(source, on_close = function(reason) heard <<- c(heard, reason)), headers)
  }
  server <- local_server(function(req) switch(
    req$PATH_INFO,
    "/type" = of(1),
    "/promised" = of(promises::promise(function(resolve, reject) later::later(function() resolve(NA_character_), 0.01))),
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

test_that("a promised chunk that is wrong does not run options(error=)", {
  runs <- 0
  withr::local_options(error = function() runs <<- runs + 1)
  server <- local_server(function(req) streamed(function() {
    promises::promise(function(resolve, reject) later::later(function() resolve(1), 0.01))
  }))
  client <- local_client(server)
  said <- stderr_of(expect_equal(get(client)$status, 500))
  expect_equal(runs, 0)
})

test_that("a client that leaves is told of: close = TRUE, then on_close, once", {
  heard <- c()
  server <- local_server(function(req) {
    source <- generator(as.list(rep("tick", 1e6)), on_exit = function() heard <<- c(heard, "closed"))
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

test_that("a client that leaves while a chunk is promised is told of, and the chunk is dropped", {
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

test_that("a source is not called inside itself, whatever it serves", {
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

test_that("HEAD, 204 and 304 close the source unasked", {
  heard <- c()
  server <- local_server(function(req) {
    source <- function(close = FALSE) heard <<- c(heard, if (close) "closed" else "asked")
    streamed(
      stream_body(source, on_close = function(reason) heard <<- c(heard, reason)),
      list("X-Kept" = "yes"), switch(req$PATH_INFO, "/204" = 204L, "/304" = 304L, 200L)
    )
  })
  client <- local_client(server)
  for (path in c("/", "/204", "/304")) {
    method <- if (path == "/") "HEAD" else "GET"
    send(client, request(path, method))
    expect_equal(reply(client, method)$headers[["x-kept"]], "yes")
  }
  serve_until(function() length(heard) == 6)
  expect_equal(heard, rep(c("closed", "done"), 3))
})

test_that("a Content-Length is sent, and kept", {
  server <- local_server(function(req) {
    streamed(switch(
      req$PATH_INFO,
      "/more" = chunks_of("01234", "", "567890"),
      "/less" = chunks_of("01234", ""),
      chunks_of("01234", "56789")
    ), list("Content-Length" = 10))
  })
  client <- local_client(server)
  answer <- get(client)
  expect_equal(answer$headers[["content-length"]], "10")
  expect_false("transfer-encoding" %in% names(answer$headers))
  expect_equal(answer$text, "0123456789")
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

test_that("HTTP/1.0 reads until the close", {
  server <- local_server(function(req) streamed(chunks_of("one", "two")))
  client <- local_client(server)
  send(client, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
  text <- rawToChar(rest_of(client))
  expect_match(text, "\r\n\r\nonetwo$")
  expect_match(text, "Connection: close", ignore.case = TRUE)
})

test_that("requests, later and streams take turns", {
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

test_that("an R connection is closed when it cannot be sent, too", {
  path <- withr::local_tempfile()
  writeBin(raw(1000), path)
  con <- NULL
  server <- local_server(function(req) {
    con <<- file(path, "rb")
    switch(
      req$PATH_INFO,
      "/long" = streamed(stream_body(con), list("Content-Length" = "10")),
      # To be written only, which is seen when it is read.
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

test_that("a source answers one request", {
  source <- stream_body(chunks_of("a"))
  server <- local_server(function(req) streamed(source))
  client <- local_client(server)
  send(client, request())
  expect_equal(chunked(client)$text, "a")
  said <- stderr_of(expect_equal(get(client)$status, 500))
  expect_match(said, "create one for each request", all = FALSE)
})

test_that("an error in on_close is told, and the others run", {
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

test_that("a stop cuts what is pulled, and tells", {
  heard <- c()
  server <- startServer("127.0.0.1", 0, function(req) {
    streamed(stream_body(function() promises::promise(function(resolve, reject) NULL), on_close = function(reason) heard <<- reason))
  })
  client <- local_client(server)
  send(client, request())
  for (i in 1:20) service(5)
  server$stop()
  serve_until(function() length(heard) == 1)
  expect_equal(heard, "stop")
})

test_that("a serializer of plumber's hands a stream on", {
  skip_if_not_installed("plumber")
  # As in the vignette.
  serializer_stream <- function(type = "text/plain") {
    function(val, req, res, errorHandler) {
      list(status = res$status, headers = c(res$headers, list("Content-Type" = type)), body = val)
    }
  }
  api <- plumber::pr()
  api <- plumber::pr_get(api, "/rows", function() stream_body(chunks_of("a,b\n", "1,2\n")), serializer = serializer_stream("text/csv"))
  server <- local_server(api)
  client <- local_client(server)
  send(client, request("/rows"))
  answer <- chunked(client)
  expect_equal(answer$text, "a,b\n1,2\n")
  expect_match(answer$head, "Content-Type: text/csv", ignore.case = TRUE)
})

test_that("what is pulled is compressed for clients that take it, and no chunk held back", {
  given <- 0
  may_go_on <- FALSE
  server <- local_server(function(req) {
    source <- function() {
      if (given > 0 && !may_go_on) return("")
      given <<- given + 1
      if (given > 3) NULL else paste("chunk", given, "")
    }
    streamed(stream_body(source, compress = req$PATH_INFO != "/plain"))
  })
  client <- local_client(server)
  send(client, request(headers = "Accept-Encoding: gzip"))
  read_to(client, "\r\n\r\n")
  inflated <- function(chunks) memDecompress(unlist(chunks), "gzip", asChar = TRUE)
  # The first chunk is whole in what has come, though the stream goes on: five bytes behind it say where it ends.
  serve_until(function() {
    fill(client)
    find_raw(client$read, as.raw(c(0, 0, 0xff, 0xff))) > 0
  })
  may_go_on <- TRUE
  answer <- chunked(client)
  expect_match(answer$head, "[Cc]ontent-[Ee]ncoding: gzip")
  expect_equal(inflated(answer$chunks), "chunk 1 chunk 2 chunk 3 ")
  given <- 0
  send(client, request("/plain", headers = "Accept-Encoding: gzip"))
  expect_equal(chunked(client)$text, "chunk 1 chunk 2 chunk 3 ")
})
