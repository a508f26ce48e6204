app_of_fiery <- function(port, serve = NULL) {
  app <- fiery::Fire$new(host = "127.0.0.1", port = port)
  app$on("request", function(server, request, ...) {
    response <- request$respond()
    response$status <- 200L
    response$type <- "text/plain"
    response$set_header("X-Method", request$method)
    request$parse(txt = reqres::parse_plain())
    response$body <- paste(request$path, paste(unlist(request$body), collapse = "|"))
    TRUE
  })
  app$on("message", function(server, id, binary, message, request, ...) server$send(paste("back:", message), id))
  if (is.null(serve)) app$ignite(block = TRUE, silent = TRUE) else serve(app, port)
}

test_that("a fiery app answers requests, and keeps connections", {
  it <- in_background(app_of_fiery)
  answer <- fetch(paste0(it$url, "/a/b"))
  expect_equal(answer$status_code, 200)
  expect_match(answer$text, "^/a/b")
  expect_equal(header(answer, "X-Method"), "get")
  posted <- fetch(paste0(it$url, "/p"), postfields = "text of it", httpheader = "Content-Type: text/plain")
  expect_match(posted$text, "text of it")
  expect_equal(header(posted, "X-Method"), "post")
  for (i in 1:50) expect_equal(fetch(paste0(it$url, "/", i))$status_code, 200)
})

test_that("a fiery app speaks WebSocket", {
  skip_if_not_installed("websocket")
  it <- in_background(app_of_fiery)
  heard <- NULL
  ws <- websocket::WebSocket$new(sub("^http", "ws", it$url), autoConnect = FALSE)
  ws$onOpen(function(event) ws$send("a message"))
  ws$onMessage(function(event) heard <<- event$data)
  ws$connect()
  until <- Sys.time() + 60
  while (is.null(heard) && Sys.time() < until) later::run_now(0.1)
  ws$close()
  expect_equal(heard, "back: a message")
})

test_that("rookery::serve() serves the object", {
  skip_if_not(requireNamespace("rookery", quietly = TRUE))
  it <- in_background(app_of_fiery, function(app, port) rookery::serve(app, port = port, log = FALSE))
  expect_match(fetch(paste0(it$url, "/x"))$text, "^/x")
  it$process$interrupt()
  it$process$wait(20000)
  expect_match(it$process$read_all_output(), "fiery app")
})
