# Package websocket as the client of a server in the same R: both need the one event loop.

echo <- function(env = parent.frame()) {
  server <- httpuv::startServer("127.0.0.1", httpuv::randomPort(), list(onWSOpen = function(ws) {
    ws$onMessage(function(binary, message) ws$send(message))
  }))
  withr::defer(server$stop(), envir = env)
  sprintf("ws://127.0.0.1:%d/", server$getPort())
}

run_until <- function(done, seconds = 30) {
  until <- Sys.time() + seconds
  while (!done() && Sys.time() < until) later::run_now(0.1)
}

test_that("text, bytes and a large message come back, and the close is clean", {
  url <- echo()
  heard <- list()
  closed <- NULL
  sent <- list("text of it \u00e9", as.raw(0:255), strrep("long ", 5e4))
  ws <- websocket::WebSocket$new(url, autoConnect = FALSE)
  ws$onOpen(function(event) for (message in sent) ws$send(message))
  ws$onMessage(function(event) heard[[length(heard) + 1]] <<- event$data)
  ws$onClose(function(event) closed <<- event)
  ws$connect()
  run_until(function() length(heard) == 3)
  expect_equal(heard, sent)
  ws$close()
  run_until(function() !is.null(closed))
  # httpuv closes without a close frame.
  expect_equal(closed$code, if (requireNamespace("rookery", quietly = TRUE)) 1000L else 1006L)
})

test_that("a handshake that the app refuses is an error to the client", {
  failed <- FALSE
  server <- httpuv::startServer("127.0.0.1", httpuv::randomPort(), list(
    onHeaders = function(req) list(status = 404L, headers = list(), body = ""),
    onWSOpen = function(ws) ws$send("opened")
  ))
  withr::defer(server$stop())
  ws <- websocket::WebSocket$new(sprintf("ws://127.0.0.1:%d/", server$getPort()), autoConnect = FALSE, errorLogChannels = "none")
  ws$onError(function(event) failed <<- TRUE)
  ws$connect()
  run_until(function() failed)
  expect_true(failed)
})
