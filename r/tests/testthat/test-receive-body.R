# Request bodies that the app receives in chunks.

upload <- function(client, length, path = "/") {
  send(
    client, paste0("POST ", path, " HTTP/1.1\r\nHost: a\r\nContent-Length: ", length, "\r\n\r\n")
  )
}

# An app that receives bodies; `make` creates the arguments of receive_body() for each request.
receiving <- function(make) {
  list(onHeaders = function(req) make(req), call = function(req) ok("called"))
}

# An app whose bodies do not end; `log`, an environment, has the calls of its callbacks.
unfinished <- function(log) {
  log$got <- 0
  log$reasons <- c()
  receiving(function(req) {
    receive_body(
      on_data = function(bytes) log$got <- log$got + length(bytes),
      on_end = function() stop("not reached"),
      on_close = function(reason) log$reasons <- c(log$reasons, reason)
    )
  })
}

test_that("a body arrives in chunks as it is sent, and on_end returns the response", {
  chunks <- list()
  reasons <- c()
  server <- local_server(receiving(function(req) {
    receive_body(
      on_data = function(bytes) chunks[[length(chunks) + 1]] <<- bytes,
      on_end = function() ok(paste(length(unlist(chunks)), req$REQUEST_METHOD)),
      on_close = function(reason) reasons <<- c(reasons, reason)
    )
  }))
  client <- local_client(server)
  upload(client, 6)
  send(client, "abc")
  serve_until(function() length(chunks) == 1)
  expect_identical(chunks[[1]], charToRaw("abc"))
  send(client, "def")
  expect_equal(reply(client)$text, "6 POST")
  serve_until(function() length(reasons) == 1)
  expect_equal(reasons, "done")
  # The connection stays open; without a body, on_end is called at once.
  chunks <- list()
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

test_that("a promise delays the next chunk, and the end", {
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

test_that("on_data may return a response, and then no more is read", {
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

test_that("errors result in status 500 and a report", {
  reasons <- c()
  failing <- function(req) {
    receive_body(
      on_data = function(bytes) {
        switch(
          req$PATH_INFO, "/data" = stop("in data"),
          "/promise" = promises::promise_reject("in a promise")
        )
      },
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
    func <- if (path == "/end") "on_end" else "on_data"
    expect_match(
      said, paste0("POST ", path, " \\(receive_body: ", func, "\\): ", what), all = FALSE
    )
  }
  serve_until(function() length(reasons) == 3)
  expect_equal(reasons, rep("error", 3))
  client <- local_client(server)
  said <- stderr_of({
    upload(client, 3, "/null")
    send(client, "abc")
    expect_equal(reply(client)$status, 500)
  })
  expect_match(said, "the response is NULL, not a list", all = FALSE)
})

test_that("a disconnect is reported once", {
  log <- new.env()
  server <- local_server(unfinished(log))
  client <- local_client(server)
  upload(client, 100)
  send(client, "abc")
  serve_until(function() log$got == 3)
  disconnect(client)
  serve_until(function() length(log$reasons) == 1)
  for (i in 1:20) service(5)
  expect_equal(log$reasons, "client")
})

test_that("wrong uses of receive_body() raise errors that explain its use", {
  server <- local_server(function(req) receive_body(function(bytes) NULL, function() ok()))
  client <- local_client(server)
  said <- stderr_of(expect_equal(get(client)$status, 500))
  expect_match(said, "receive_body\\(\\) can only be returned by `onHeaders`", all = FALSE)
  expect_error(receive_body(1, identity), "`on_data` must be a function")
  same <- receive_body(function(bytes) NULL, function() ok("first"))
  server <- local_server(receiving(function(req) same))
  client <- local_client(server)
  expect_equal(get(client)$text, "first")
  said <- stderr_of(expect_equal(get(client)$status, 500))
  expect_match(said, "create one for each request", all = FALSE)
})

test_that("an app whose onHeaders returns NULL gets the body as usual", {
  server <- local_server(list(
    onHeaders = function(req) {
      if (req$PATH_INFO == "/in") receive_body(function(bytes) NULL, function() ok("received"))
    },
    call = function(req) ok(rawToChar(req$rook.input$read()))
  ))
  client <- local_client(server)
  expect_equal(post(client, "/", "whole")$text, "whole")
  expect_equal(post(client, "/in", "chunks")$text, "received")
})

test_that("a body that is refused while it arrives ends with the reason stop", {
  log <- new.env()
  server <- local_server(unfinished(log))
  client <- local_client(server)
  upload(client, 100)
  send(client, "abc")
  serve_until(function() log$got == 3)
  .Call(ffi_refuse, as.integer(server$.__enclos_env__$private$handle), TRUE)
  expect_equal(reply(client)$status, 503)
  serve_until(function() length(log$reasons) == 1)
  expect_equal(log$reasons, "stop")
})

test_that("stopping the server is reported", {
  log <- new.env()
  server <- startServer("127.0.0.1", 0, unfinished(log))
  client <- local_client(server)
  upload(client, 100)
  send(client, "abc")
  serve_until(function() log$got == 3)
  server$stop()
  serve_until(function() length(log$reasons) == 1)
  expect_equal(log$reasons, "stop")
})

# The reasons for the ends of bodies in order, and their text.
recorder <- function() list2env(list(text = "", order = c()))

record <- function(log, what) log$order <- c(log$order, what)

test_that("chunks that arrive while on_data calls service() wait", {
  log <- recorder()
  server <- local_server(receiving(function(req) {
    if (req$PATH_INFO != "/") return(NULL)
    receive_body(
      on_data = function(bytes) {
        text <- rawToChar(bytes)
        record(log, paste("begins", text))
        if (text == "a") {
          send(client, "b")
          for (i in 1:20) service(5)
          expect_equal(get(local_client(server), "/other")$text, "called")
        }
        record(log, paste("ends", text))
      },
      on_end = function() {
        record(log, "end")
        ok("in order")
      },
      on_close = function(reason) record(log, reason)
    )
  }))
  client <- local_client(server)
  upload(client, 2)
  send(client, "a")
  expect_equal(reply(client)$text, "in order")
  expect_equal(log$order, c("begins a", "ends a", "begins b", "ends b", "end", "done"))
})

test_that("an error in on_data after a call of service() ends the body once", {
  log <- recorder()
  server <- local_server(receiving(function(req) {
    receive_body(
      on_data = function(bytes) {
        record(log, rawToChar(bytes))
        send(client, "bc")
        for (i in 1:20) service(5)
        stop("too much")
      },
      on_end = function() stop("not reached"),
      on_close = function(reason) record(log, reason)
    )
  }))
  client <- local_client(server)
  said <- stderr_of({
    upload(client, 3)
    send(client, "a")
    expect_equal(reply(client)$status, 500)
    serve_until(function() length(log$order) == 2)
  })
  expect_equal(log$order, c("a", "error"))
  expect_equal(sum(grepl("receive_body", said)), 1)
})

test_that("on_close is called whatever on_end and on_data do", {
  leaving <- structure(class = c("leaving", "condition"), list(message = "gone", call = NULL))
  for (path in c("/data", "/end")) {
    log <- recorder()
    server <- local_server(receiving(function(req) {
      receive_body(
        on_data = function(bytes) if (path == "/data") stop(leaving),
        on_end = function() stop(leaving),
        on_close = function(reason) record(log, reason)
      )
    }))
    client <- local_client(server)
    said <- stderr_of({
      upload(client, 3, path)
      send(client, "abc")
      expect_equal(reply(client)$status, 500)
      serve_until(function() length(log$order) == 1)
    })
    expect_equal(log$order, "error")
    expect_match(said, "ended by a restart", all = FALSE)
  }
})

test_that("stopping the server in onHeaders ends the body once", {
  for (when in c("inside", "next")) {
    log <- recorder()
    server <- startServer("127.0.0.1", 0, receiving(function(req) {
      if (req$PATH_INFO == "/stop") {
        server$stop()
        return(ok("stopped"))
      }
      if (when == "inside") server$stop()
      receive_body(
        on_data = function(bytes) record(log, "data"),
        on_end = function() stop("not reached"),
        on_close = function(reason) record(log, reason)
      )
    }))
    client <- local_client(server)
    other <- local_client(server)
    upload(client, 100)
    send(other, request("/stop"))
    # Both are in the queue, so the response of the first and the stop are sent together.
    Sys.sleep(0.2)
    serve_until(function() length(log$order) > 0)
    for (i in 1:20) service(5)
    expect_equal(log$order, "stop")
    server$stop()
  }
})

test_that("a value of on_data is used as the response only if it is one", {
  answers <- list(
    data.frame(status = 1), packageVersion("base"), as.POSIXlt(Sys.time()), new.env(),
    list(statuses = 1), 413L,
    list2env(list(status = 202L, headers = list(), body = "an environment"))
  )
  at <- 0
  server <- local_server(receiving(function(req) {
    receive_body(on_data = function(bytes) answers[[at]], on_end = function() ok("end"))
  }))
  said <- stderr_of({
    for (i in seq_along(answers)) {
      at <- i
      expect_equal(
        post(local_client(server), "/", "abc")$text, if (i == 7) "an environment" else "end"
      )
    }
  })
  expect_equal(said, character(0))
})

test_that("a streamed response can be returned before and after the end", {
  server <- local_server(receiving(function(req) {
    chunks <- c("one ", "two", NA)
    at <- 0
    answer <- function() {
      list(status = 200L, headers = list("Content-Type" = "text/plain"), body = function() {
        at <<- at + 1
        if (at < 3) chunks[[at]]
      })
    }
    receive_body(
      on_data = function(bytes) if (req$PATH_INFO == "/early") answer(),
      on_end = function() promises::promise_resolve(answer())
    )
  }))
  for (path in c("/early", "/end")) {
    client <- local_client(server)
    upload(client, if (path == "/early") 100 else 3, path)
    send(client, "abc")
    expect_equal(chunked(client)$text, "one two")
  }
})

test_that("methods, trailers and expectations of any kind are received", {
  log <- recorder()
  server <- local_server(receiving(function(req) {
    receive_body(
      on_data = function(bytes) log$text <- paste0(log$text, rawToChar(bytes)),
      on_end = function() ok(log$text),
      on_close = function(reason) record(log, reason)
    )
  }))
  client <- local_client(server)
  chunks <- "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n2;x=y\r\nbc\r\n0\r\nTrailer: x\r\n\r\n"
  send(
    client, paste0("GET / HTTP/1.1\r\nHost: a\r\n", chunks, "PUT / HTTP/1.1\r\nHost: a\r\n", chunks)
  )
  expect_equal(reply(client)$text, "abc")
  expect_equal(reply(client)$text, "abcabc")
  send(client, paste0("HEAD / HTTP/1.1\r\nHost: a\r\n", chunks))
  head <- reply(client, "HEAD")
  expect_equal(head$headers[["content-length"]], "9")
  send(client, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n")
  read_to(client, "HTTP/1.1 100 Continue\r\n\r\n")
  client$read <- raw(0)
  send(client, "d")
  expect_equal(reply(client)$text, "abcabcabcd")
  serve_until(function() length(log$order) == 4)
  expect_equal(log$order, rep("done", 4))
})

test_that("chunks that an app keeps do not change, and released ones are reused", {
  body <- as.raw(sample(0:255, 3e6, TRUE))
  kept <- list()
  ways <- new.env()
  at <- 0
  same <- 0
  server <- local_server(receiving(function(req) {
    from <- 0
    receive_body(
      on_data = function(bytes) {
        part <- body[from + seq_along(bytes)]
        same <<- same + identical(bytes, part)
        from <<- from + length(bytes)
        at <<- at + 1
        way <- paste(at)
        # All ways in which an app may keep a chunk, and many in which it does not.
        switch(at %% 8 + 1,
          kept[[way]] <<- list(bytes, part),
          kept[[way]] <<- local({
            mine <- bytes
            function() list(mine, part)
          }),
          ways[[way]] <- structure(list(bytes, part), class = "way"),
          delayedAssign(way, list(bytes, part), assign.env = ways),
          {
            attr(bytes, "a") <- 1
            kept[[way]] <<- list(bytes, structure(part, a = 1))
          },
          bytes[1] <- as.raw(1),
          return(bytes)
        )
        NULL
      },
      on_end = function() ok(format(from, scientific = FALSE))
    )
  }))
  for (i in 1:4) {
    client <- local_client(server)
    upload(client, length(body))
    send(client, body)
    expect_equal(reply(client)$text, "3000000")
  }
  expect_equal(same, at)
  expect_gt(at, 40)
  held <- lapply(kept, function(each) if (is.function(each)) each() else each)
  held <- c(held, lapply(as.list(ways), unclass))
  expect_gt(length(held), at / 2)
  for (each in held) expect_identical(each[[1]], each[[2]])
})
