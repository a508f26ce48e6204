# The object that onWSOpen gets: it is made in C, and equals that of WebSocket$new().

given_objects <- function(count = 1, env = parent.frame()) {
  objects <- list()
  server <- local_server(list(onWSOpen = function(ws) objects[[length(objects) + 1]] <<- ws), env)
  for (i in seq_len(count)) upgrade(local_client(server, env), headers = "X-Who: me")
  objects
}

test_that("the object of the server equals that of the class", {
  given <- given_objects()[[1]]
  made <- WebSocket$new(given$handle, given$request)
  expect_identical(class(given), class(made))
  expect_identical(ls(given, all.names = TRUE), ls(made, all.names = TRUE))
  expect_identical(environmentName(parent.env(given)), environmentName(parent.env(made)))
  expect_identical(parent.env(given$.__enclos_env__), parent.env(made$.__enclos_env__))
  expect_identical(given$.__enclos_env__$self, given)
  for (name in ls(given)) {
    expect_identical(bindingIsLocked(name, given), bindingIsLocked(name, made), info = name)
    if (is.function(given[[name]])) {
      expect_identical(formals(given[[name]]), formals(made[[name]]), info = name)
      expect_identical(body(given[[name]]), body(made[[name]]), info = name)
      expect_identical(environment(given[[name]]), given$.__enclos_env__, info = name)
    } else {
      expect_identical(given[[name]], made[[name]], info = name)
    }
  }
  expect_true(environmentIsLocked(given))
  expect_error(given$another <- 1, "cannot add")
  expect_error(given$send <- identity, "locked")
  expect_identical(capture.output(print(given)), capture.output(print(made)))
  copy <- given$clone()
  expect_identical(class(copy), class(given))
  expect_identical(copy$handle, given$handle)
})

test_that("objects share no mutable state", {
  both <- given_objects(2)
  both[[1]]$onMessage(identity)
  both[[1]]$onClose(function() NULL)
  expect_length(both[[1]]$messageCallbacks, 1)
  expect_length(both[[2]]$messageCallbacks, 0)
  expect_length(both[[2]]$closeCallbacks, 0)
  expect_length(WebSocket$new(NULL, NULL)$closeCallbacks, 0)
  expect_identical(both[[2]]$request$HEADERS, both[[1]]$request$HEADERS)
})

test_that("callbacks are added in order, and the value is invisible", {
  ws <- WebSocket$new(NULL, NULL)
  expect_invisible(ws$onMessage(identity))
  first <- ws$messageCallbacks
  ws$onMessage(print)
  expect_identical(first, list(identity))
  expect_identical(ws$messageCallbacks, list(identity, print))
  ws$closeCallbacks <- NULL
  ws$onClose(print)
  expect_identical(ws$closeCallbacks, list(print))
})

test_that("headers with the names of the previous request have their own values", {
  seen <- list()
  server <- local_server(function(req) {
    seen[[length(seen) + 1]] <<- req$HEADERS
    ok()
  })
  client <- local_client(server)
  for (value in c("one", "two", "three")) get(client, headers = paste("X-Value:", value))
  expect_identical(vapply(seen, `[[`, "", "x-value"), c("one", "two", "three"))
  expect_identical(names(seen[[1]]), names(seen[[3]]))
  names(seen[[3]])[[1]] <- "changed"
  get(client, headers = "X-Value: four")
  expect_identical(names(seen[[4]]), names(seen[[1]]))
})

test_that("an open WebSocket keeps few cells", {
  env <- environment()
  open <- 0
  server <- local_server(list(onWSOpen = function(ws) open <<- open + 1))
  # R allows 125 connections in all.
  clients <- lapply(1:90, function(i) local_client(server, env))
  before <- NULL
  for (i in seq_along(clients)) {
    if (i == 31) before <- cells()
    upgrade(clients[[i]])
    serve_until(function() open >= i)
  }
  # 54 with R 4.2: 32 for the object, 22 for the request.
  expect_lt((cells() - before) / 60, 70)
})

test_that("using a WebSocket in a forked process is an error that says why", {
  skip_on_os("windows")
  said <- NULL
  server <- local_server(list(call = function(req) ok(), onWSOpen = function(ws) {
    ws$onMessage(function(binary, message) {
      said <<- in_fork(function() {
        theirs <- list(
          tryCatch(ws$send("lost"), error = conditionMessage),
          tryCatch(ws$send(raw(1e6)), error = conditionMessage),
          tryCatch(ws$close(), error = conditionMessage)
        )
        # The child may use what it opens itself.
        own <- startServer(
          "127.0.0.1", 0, list(call = function(req) ok(), onWSOpen = function(ws) ws$send("mine"))
        )
        client <- local_client(own, env = globalenv())
        upgrade(client)
        c(theirs, rawToChar(next_frame(client)$payload))
      })
      ws$send("here")
    })
  }))
  client <- local_client(server)
  upgrade(client)
  send(client, frame("go"))
  expect_identical(rawToChar(next_frame(client)$payload), "here")
  expect_length(said, 4)
  for (text in said[1:3]) {
    expect_match(text, "belongs to the process from which this one was forked: return the message")
  }
  expect_identical(said[[4]], "mine")
})
