# The Rook input of a request: created when it is first used, and invalid after the response.

local_call <- function(handler, onHeaders = NULL, env = parent.frame()) {
  app <- list(call = function(req) {
    handler(req)
    ok()
  })
  app$onHeaders <- onHeaders
  local_client(local_server(app, env), env)
}

# With and without `onHeaders`, the body is bound in different ways.
both_ways <- list(NULL, function(req) NULL)

test_that("a request with a body is a plain environment like any other", {
  for (on_headers in both_ways) {
    seen <- NULL
    client <- local_call(function(req) {
      seen <<- list(
        names = ls(req, all.names = TRUE),
        active = vapply(ls(req, all.names = TRUE), bindingIsActive, NA, env = req),
        parent = parent.env(req),
        locked = environmentIsLocked(req),
        all = as.list(req, all.names = TRUE),
        clone = rawToChar(as.environment(as.list(req, all.names = TRUE))$rook.input$read())
      )
      req$mine <- 1
      rm("rook.input", envir = req)
    }, on_headers)
    get(client)
    without <- seen
    post(client, body = "abc")
    expect_setequal(
      setdiff(seen$names, without$names), c(".bodyData", "CONTENT_LENGTH", "HTTP_CONTENT_LENGTH")
    )
    expect_false(any(seen$active))
    expect_identical(seen$parent, emptyenv())
    expect_false(seen$locked)
    expect_s3_class(seen$all$.bodyData, "connection")
    expect_identical(class(seen$all$rook.input), c("InputStream", "R6"))
    expect_identical(seen$clone, "abc")
  }
})

test_that("the number of headers changes nothing but the headers of a request", {
  lines <- function(count) {
    vapply(rev(seq_len(count)), function(i) sprintf("X-H-%03d: v%d", i, i), "")
  }
  # From 25 headers on, the bindings are in a hash table; HEADERS with more than 256 is not reused.
  counts <- c(0, 22, 23, 24, 25, 90, 200, 257, 270)
  for (on_headers in both_ways) {
    seen <- NULL
    client <- local_call(function(req) {
      rest <- as.list(req, all.names = TRUE)
      seen <<- list(
        listed = ls(req, all.names = TRUE),
        named = unlist(mget(sprintf("HTTP_X_H_%03d", seq_len(99)), req, ifnotfound = "absent")),
        headers = req$HEADERS[startsWith(names(req$HEADERS), "x-h-")],
        types = vapply(rest[sort(names(rest))], typeof, ""),
        parent = parent.env(req),
        read = rawToChar(req$rook.input$read()),
        body = if (!is.null(req$.bodyData)) rawToChar(readBin(req$.bodyData, "raw", 9)),
        absent = req$HTTP_X_H_999,
        size = length(unserialize(serialize(rest[!names(rest) %in% ".bodyData"], NULL)))
      )
      rm("HTTP_HOST", envir = req)
      req$mine <- 1
      expect_identical(setdiff(ls(req), seen$listed), "mine")
      expect_identical(setdiff(seen$listed, ls(req, all.names = TRUE)), "HTTP_HOST")
    }, on_headers)
    for (body in c("", "abc")) {
      ask <- function(count) {
        if (body == "") get(client, "/", lines(count)) else post(client, "/", body, lines(count))
        seen
      }
      plain <- ask(0)
      # The second request with the same headers gets the strings of the first.
      for (count in rep(counts, each = 2)) {
        many <- ask(count)
        bound <- sprintf("HTTP_X_H_%03d", seq_len(count))
        expect_setequal(many$listed, c(plain$listed, bound))
        expect_identical(unname(many$named), c(
          sprintf("v%d", seq_len(min(count, 99))), rep("absent", max(0, 99 - count))
        ))
        expect_identical(unname(many$headers), sprintf("v%d", seq_len(count)))
        expect_identical(names(many$headers) %||% character(), sprintf("x-h-%03d", seq_len(count)))
        expect_identical(many$types[names(plain$types)], plain$types)
        expect_identical(many$parent, emptyenv())
        expect_identical(many[c("read", "body")], plain[c("read", "body")])
        expect_identical(many$read, body)
        expect_null(many$absent)
        expect_identical(many$size, plain$size + as.integer(count))
      }
    }
  }
})

test_that("functions that use a whole environment accept a request", {
  skip_if_not_installed("rlang")
  for (on_headers in list(NULL, function(req) NULL, function(req) {
    eapply(req, class, all.names = TRUE)
    NULL
  })) {
    seen <- list()
    client <- local_call(function(req) {
      copies <- list(
        eapply = eapply(req, identity, all.names = TRUE),
        list = as.list(req, all.names = TRUE),
        mget = mget(ls(req, all.names = TRUE), envir = req),
        clone = as.list(rlang::env_clone(req), all.names = TRUE),
        get_list = rlang::env_get_list(req, ls(req, all.names = TRUE))
      )
      seen[[length(seen) + 1]] <<- lapply(copies, function(copy) {
        input <- copy$rook.input
        if (inherits(input, "InputStream")) input$rewind()
        c(body = rawToChar(input$read()), vapply(copy[sort(names(copy))], typeof, ""))
      })
    }, on_headers)
    expect_identical(get(client)$status, 200L)
    expect_identical(post(client, body = "abc")$status, 200L)
    send(
      client,
      "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    )
    expect_identical(reply(client)$status, 200L)
    expect_length(seen, 3)
    for (copies in seen) {
      expect_length(unique(copies), 1)
    }
    expect_identical(seen[[2]]$clone[["body"]], "abc")
  }
})

test_that("rook.input has httpuv's methods and is locked", {
  seen <- NULL
  client <- local_call(function(req) {
    input <- req$rook.input
    seen <<- list(
      is_same = identical(input, req$rook.input),
      names = ls(input),
      add = tryCatch(input$more <- 1, error = identity),
      change = tryCatch(input$read <- NULL, error = identity),
      parts = list(
        input$read(2), input$rewind(), input$read(2.9), input$read(0), input$read(), input$read(5)
      ),
      lines = {
        input$rewind()
        list(input$read_lines(1), input$read(1), input$read_lines())
      },
      wrong = lapply(list(NA, NULL, c(1, 2), "2"), function(n) {
        tryCatch(input$read(n), error = conditionMessage)
      })
    )
  })
  post(client, body = "l1\nl2\r\nl3")
  expect_true(seen$is_same)
  expect_identical(seen$names, c("read", "read_lines", "rewind"))
  expect_s3_class(seen$add, "error")
  expect_s3_class(seen$change, "error")
  expect_identical(
    seen$parts, list(charToRaw("l1"), 2, charToRaw("l1"), raw(0), charToRaw("\nl2\r\nl3"), raw(0))
  )
  expect_identical(seen$lines, list("l1", charToRaw("l"), c("2", "l3")))
  expect_identical(seen$wrong, rep(list("`l` must be one number."), 4))
})

test_that("reading a body after the response is an error that says why", {
  for (on_headers in both_ways) {
    for (looked_at in c(TRUE, FALSE)) {
      kept <- NULL
      connection <- NULL
      client <- local_call(function(req) {
        if (looked_at) {
          req$rook.input$read(1)
          connection <<- req$.bodyData
        }
        kept <<- req
      }, on_headers)
      post(client, body = "abc")
      for (method in c("read", "read_lines")) {
        expect_error(
          kept$rook.input[[method]](),
          "no longer available, because the response has been sent: read it before"
        )
      }
      expect_null(kept$.bodyData)
      if (looked_at) {
        expect_error(isOpen(connection), "invalid connection")
      }
    }
  }
})

test_that("a body stays readable until its promise is resolved", {
  kept <- NULL
  resolve_it <- NULL
  server <- local_server(function(req) {
    kept <<- req
    promises::promise(function(resolve, reject) resolve_it <<- resolve)
  })
  client <- local_client(server)
  send(client, request("/", "POST", body = "abc"))
  serve_until(function() !is.null(resolve_it))
  for (i in 1:5) service(5)
  expect_identical(rawToChar(kept$rook.input$read()), "abc")
  expect_identical(rawToChar(readBin(kept$.bodyData, "raw", 10)), "abc")
  resolve_it(ok())
  expect_identical(reply(client)$text, "ok")
  expect_null(kept$.bodyData)
  expect_error(kept$rook.input$read(), "the response has been sent")
})

test_that("reading a body in a forked process is an error that says why", {
  skip_on_os("windows")
  said <- NULL
  client <- local_call(function(req) {
    child <- parallel::mcparallel(list(
      tryCatch(req$rook.input$read(), error = conditionMessage),
      tryCatch(req$.bodyData, error = conditionMessage)
    ))
    said <<- c(parallel::mccollect(child)[[1]], rawToChar(req$rook.input$read()))
  })
  post(client, body = "abc")
  expect_match(
    said[[1]], "belongs to the process from which this one was forked: read it before the fork"
  )
  expect_match(
    said[[2]], "belongs to the process from which this one was forked: read it before the fork"
  )
  expect_identical(said[[3]], "abc")
})

test_that("connections to bodies are closed when a stopping server itself responds", {
  kept <- NULL
  connection <- NULL
  server <- local_server(function(req) {
    kept <<- req
    connection <<- req$.bodyData
    promises::promise(function(resolve, reject) NULL)
  })
  client <- local_client(server)
  send(client, request("/", "POST", body = "abc"))
  serve_until(function() !is.null(connection))
  .Call(ffi_refuse, server$.__enclos_env__$private$handle, TRUE)
  expect_null(kept$.bodyData)
  expect_error(isOpen(connection), "invalid connection")
  expect_identical(reply(client)$status, 503L)
})

test_that("requests with a body leak no memory", {
  some <- 0
  server <- local_server(list(call = function(req) {
    some <<- some + 1
    if (some %% 2 == 0) req$rook.input$read()
    if (some %% 10 == 0) readBin(req$.bodyData, "raw", 1)
    ok()
  }))
  client <- local_client(server)
  batch <- charToRaw(strrep(request("/", "POST", body = "x"), 100))
  round <- function(n) {
    for (i in seq_len(n)) {
      want <- some + 100
      send(client, batch)
      serve_until(function() {
        fill(client)
        some >= want
      })
      client$read <- raw(0)
    }
  }
  round(20)
  before <- cells()
  round(200)
  # 20,000 requests with one cell each would be 20,000. Other cells are R's own, or of earlier tests
  # in this process (502 once).
  expect_lt(cells() - before, 2000)
})

test_that("WebSockets leak no memory", {
  closed <- 0
  server <- local_server(list(
    call = function(req) ok(), onWSOpen = function(ws) ws$onClose(function() closed <<- closed + 1)
  ))
  visit <- function(n) {
    for (i in seq_len(n)) {
      client <- local_client(server, environment())
      upgrade(client)
      want <- closed + 1
      disconnect(client)
      serve_until(function() closed >= want)
    }
  }
  visit(50)
  before <- cells()
  visit(500)
  expect_lt(cells() - before, 1000)
})

test_that("an AppWrapper lists the open WebSockets by names that are reused", {
  app <- list(call = function(req) ok(), onWSOpen = function(ws) NULL)
  server <- local_server(app)
  # Package livecode finds the WebSockets in this way.
  sockets <- function() server$.__enclos_env__$private$appWrapper$.__enclos_env__$private$wsconns
  expect_identical(names(sockets()), character(0))
  clients <- lapply(1:3, function(i) {
    client <- local_client(server, environment(sockets))
    upgrade(client)
    client
  })
  expect_length(names(sockets()), 3)
  first <- names(sockets())
  for (name in first) {
    expect_s3_class(sockets()[[name]], "WebSocket")
    sockets()[[name]]$send("hello")
  }
  for (client in clients) expect_identical(rawToChar(next_frame(client)$payload), "hello")
  for (client in clients) disconnect(client)
  serve_until(function() length(names(sockets())) == 0)
  again <- local_client(server)
  upgrade(again)
  expect_true(names(sockets()) %in% first)
})

test_that("reading a large body too late in a finalizer is an error that says so", {
  kept <- NULL
  said <- NULL
  client <- local_call(function(req) {
    holder <- new.env()
    # Created before the body, so that R finalizes the holder after it.
    reg.finalizer(holder, function(holder) {
      kept <<- holder$body
      said <<- list(
        tryCatch(holder$body[1:3], error = conditionMessage),
        tryCatch(holder$body[[1]], error = conditionMessage),
        tryCatch(rawToChar(holder$body), error = conditionMessage),
        rawToChar(holder$copy[1:3])
      )
    })
    holder$body <- req$rook.input$read()
    holder$copy <- c(holder$body)
  })
  lent <- .Call(ffi_lent_blocks)
  post(client, body = strrep("abc", 1e5))
  expect_gt(.Call(ffi_lent_blocks), lent)
  for (i in 1:3) gc()
  expect_identical(.Call(ffi_lent_blocks), lent)
  for (text in said[1:3]) {
    expect_match(
      text, "was collected together with the object that referred to it: for use in a finalizer"
    )
  }
  expect_identical(said[[4]], "abc")
  expect_error(sum(as.integer(kept)), "was collected together")
  expect_length(kept, 3e5)
})
