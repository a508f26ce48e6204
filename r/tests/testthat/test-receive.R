# Requests' bodies as they arrive.

upload <- function(client, length, path = "/") {
  send(client, paste0("POST ", path, " HTTP/1.1\r\nHost: a\r\nContent-Length: ", length, "\r\n\r\n"))
}

# An app that receives; `...` are receive_body()'s, made anew by `make` for each request.
receiving <- function(make) {
  list(onHeaders = function(req) make(req), call = function(req) ok("called"))
}

test_that("a body comes in pieces as it is sent, and on_end answers", {
  pieces <- list()
  reasons <- c()
  server <- local_server(receiving(function(req) {
    receive_body(
      on_data = function(bytes) pieces[[length(pieces) + 1]] <<- bytes,
      on_end = function() ok(paste(length(unlist(pieces)), req$REQUEST_METHOD)),
      on_close = function(reason) reasons <<- c(reasons, reason)
    )
  }))
  client <- local_client(server)
  upload(client, 6)
  send(client, "abc")
  serve_until(function() length(pieces) == 1)
  expect_identical(pieces[[1]], charToRaw("abc"))
  send(client, "def")
  expect_equal(reply(client)$text, "6 POST")
  serve_until(function() length(reasons) == 1)
  expect_equal(reasons, "done")
  # The connection goes on; without a body on_end is called at once.
  pieces <- list()
  expect_equal(get(client)$text, "0 GET")
  serve_until(function() length(reasons) == 2)
  expect_equal(reasons[[2]], "done")
})

test_that("a large body goes to a file, byte for byte", {
  path <- withr::local_tempfile()
  server <- local_server(receiving(function(req) {
    con <- file(path, "wb")
    receive_body(
      on_data = function(bytes) writeBin(bytes, con),
      on_end = function() ok("saved"),
      on_close = function(reason) close(con)
    )
  }))
  bytes <- as.raw(sample(0:255, 3e6, replace = TRUE))
  client <- local_client(server)
  upload(client, length(bytes))
  for (at in seq(1, length(bytes), by = 1e5)) {
    send(client, bytes[at:(at + 99999)])
    service(5)
  }
  expect_equal(reply(client)$text, "saved")
  serve_until(function() file.size(path) == length(bytes))
  expect_identical(readBin(path, "raw", 1e7), bytes)
})

test_that("a promise holds the next piece back, and the end", {
  order <- c()
  server <- local_server(receiving(function(req) {
    receive_body(
      on_data = function(bytes) {
        text <- rawToChar(bytes)
        order <<- c(order, paste("begins", text))
        promises::promise(function(resolve, reject) {
          later::later(function() {
            order <<- c(order, paste("ends", text))
            resolve(NULL)
          }, 0.1)
        })
      },
      on_end = function() {
        order <<- c(order, "end")
        promises::promise_resolve(ok("late"))
      }
    )
  }))
  client <- local_client(server)
  upload(client, 2)
  send(client, "a")
  serve_until(function() length(order) == 1)
  send(client, "b")
  expect_equal(reply(client)$text, "late")
  expect_equal(order, c("begins a", "ends a", "begins b", "ends b", "end"))
})

test_that("on_data may answer, and then no more is read", {
  reasons <- c()
  calls <- 0
  server <- local_server(receiving(function(req) {
    receive_body(
      on_data = function(bytes) {
        calls <<- calls + 1
        list(status = 413L, headers = list(), body = "too long")
      },
      on_end = function() stop("not reached"),
      on_close = function(reason) reasons <<- c(reasons, reason)
    )
  }))
  client <- local_client(server)
  upload(client, 1000000L)
  send(client, "abc")
  answer <- reply(client)
  expect_equal(c(answer$status, answer$text), c("413", "too long"))
  expect_equal(answer$headers[["connection"]], "close")
  serve_until(function() length(reasons) == 1)
  expect_equal(c(reasons, calls), c("done", "1"))
})

test_that("errors are answered with 500, and told", {
  reasons <- c()
  failing <- function(req) {
    receive_body(
      on_data = function(bytes) switch(req$PATH_INFO, "/data" = stop("in data"), "/promise" = promises::promise_reject("in a promise")),
      on_end = function() if (req$PATH_INFO == "/end") stop("in end") else NULL,
      on_close = function(reason) {
        reasons <<- c(reasons, reason)
        if (req$PATH_INFO == "/close") stop("in close")
      }
    )
  }
  server <- local_server(receiving(failing))
  for (path in c("/data", "/promise", "/end")) {
    client <- local_client(server)
    said <- stderr_of({
      upload(client, 3, path)
      send(client, "abc")
      answer <- reply(client)
    })
    what <- paste("in", switch(path, "/promise" = "a promise", substring(path, 2)))
    expect_equal(c(answer$status, answer$text), c("500", paste("ERROR:", what)))
    expect_match(said, paste0("POST ", path, " \\(receive_body\\): ", what), all = FALSE)
  }
  serve_until(function() length(reasons) == 3)
  expect_equal(reasons, rep("error", 3))
  client <- local_client(server)
  said <- stderr_of({
    upload(client, 3, "/null")
    send(client, "abc")
    expect_equal(reply(client)$status, 500)
  })
  expect_match(said, "it is NULL, not a list", all = FALSE)
})

test_that("a client that leaves is told of, once", {
  reasons <- c()
  got <- 0
  server <- local_server(receiving(function(req) {
    receive_body(
      on_data = function(bytes) got <<- got + length(bytes),
      on_end = function() stop("not reached"),
      on_close = function(reason) reasons <<- c(reasons, reason)
    )
  }))
  client <- local_client(server)
  upload(client, 100)
  send(client, "abc")
  serve_until(function() got == 3)
  disconnect(client)
  serve_until(function() length(reasons) == 1)
  for (i in 1:20) service(5)
  expect_equal(reasons, "client")
})

test_that("what it is for is said where it is not", {
  server <- local_server(function(req) receive_body(function(bytes) NULL, function() ok()))
  client <- local_client(server)
  said <- stderr_of(expect_equal(get(client)$status, 500))
  expect_match(said, "receive_body\\(\\) is for `onHeaders`", all = FALSE)
  expect_error(receive_body(1, identity), "`on_data` must be a function")
  same <- receive_body(function(bytes) NULL, function() ok("first"))
  server <- local_server(receiving(function(req) same))
  client <- local_client(server)
  expect_equal(get(client)$text, "first")
  said <- stderr_of(expect_equal(get(client)$status, 500))
  expect_match(said, "make one for each", all = FALSE)
})

test_that("an app that returns NULL gets its body as ever", {
  server <- local_server(list(
    onHeaders = function(req) if (req$PATH_INFO == "/in") receive_body(function(bytes) NULL, function() ok("received")),
    call = function(req) ok(rawToChar(req$rook.input$read()))
  ))
  client <- local_client(server)
  expect_equal(post(client, "/", "whole")$text, "whole")
  expect_equal(post(client, "/in", "pieces")$text, "received")
})

test_that("what is refused while it is received does not end whole", {
  reasons <- c()
  got <- 0
  server <- local_server(receiving(function(req) {
    receive_body(
      on_data = function(bytes) got <<- got + length(bytes),
      on_end = function() stop("not reached"),
      on_close = function(reason) reasons <<- c(reasons, reason)
    )
  }))
  client <- local_client(server)
  upload(client, 100)
  send(client, "abc")
  serve_until(function() got == 3)
  .Call(ffi_refuse, as.integer(server$.__enclos_env__$private$handle), TRUE)
  expect_equal(reply(client)$status, 503)
  serve_until(function() length(reasons) == 1)
  expect_equal(reasons, "stop")
})

test_that("a stop is told of", {
  reasons <- c()
  got <- 0
  server <- startServer("127.0.0.1", 0, receiving(function(req) {
    receive_body(
      on_data = function(bytes) got <<- got + length(bytes),
      on_end = function() stop("not reached"),
      on_close = function(reason) reasons <<- c(reasons, reason)
    )
  }))
  client <- local_client(server)
  upload(client, 100)
  send(client, "abc")
  serve_until(function() got == 3)
  server$stop()
  serve_until(function() length(reasons) == 1)
  expect_equal(reasons, "stop")
})
