# servr has no tests with testthat: its pages, indices, ranges and redirections, and its live reload's script.

test_that("a folder is served: pages, an index, a range, types", {
  dir <- withr::local_tempdir()
  dir.create(file.path(dir, "sub"))
  writeLines("<p>first</p>", file.path(dir, "page.html"))
  writeLines(strrep("x", 1000), file.path(dir, "sub", "x.txt"))
  it <- in_background(function(port, dir) {
    servr::httd(dir, port = port, browser = FALSE, daemon = FALSE, verbose = FALSE)
  }, dir)
  expect_equal(fetch(paste0(it$url, "/page.html"))$text, "<p>first</p>\n")
  index <- fetch(paste0(it$url, "/"))
  expect_equal(index$status_code, 200)
  expect_match(index$text, "page.html")
  expect_equal(fetch(paste0(it$url, "/none"))$status_code, 404)
  range <- fetch(paste0(it$url, "/sub/x.txt"), range = "10-19")
  expect_equal(range$status_code, 206)
  expect_equal(range$text, strrep("x", 10))
  expect_equal(header(fetch(paste0(it$url, "/sub/x.txt")), "Content-Type"), "text/plain")
})

test_that("its live reload puts a script into pages, and answers over WebSocket", {
  skip_if_not_installed("websocket")
  dir <- withr::local_tempdir()
  writeLines("<html><head></head><body><p>live</p></body></html>", file.path(dir, "index.html"))
  it <- in_background(function(port, dir) {
    servr::httw(dir, port = port, browser = FALSE, daemon = FALSE, verbose = FALSE)
  }, dir)
  expect_match(fetch(paste0(it$url, "/"))$text, "WebSocket")
  heard <- character()
  ws <- websocket::WebSocket$new(sub("^http", "ws", it$url), autoConnect = FALSE)
  ws$onOpen(function(event) ws$send("poll"))
  ws$onMessage(function(event) heard <<- c(heard, event$data))
  ws$connect()
  until <- Sys.time() + 30
  while (length(heard) == 0 && Sys.time() < until) {
    later::run_now(0.1)
    writeLines(paste("<html><head></head><body><p>live", runif(1), "</p></body></html>"), file.path(dir, "index.html"))
    if (ws$readyState() == 1L) ws$send("poll")
  }
  ws$close()
  expect_true(length(heard) > 0)
})
