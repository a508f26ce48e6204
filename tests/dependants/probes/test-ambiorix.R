app_of_ambiorix <- function(port, serve = NULL) {
  app <- ambiorix::Ambiorix$new(host = "127.0.0.1", port = port, log = FALSE)
  app$get("/", function(req, res) res$send("hello"))
  app$get("/item/:id", function(req, res) res$json(list(id = req$params$id, q = req$query$q)))
  app$post("/echo", function(req, res) {
    body <- req$rook.input$read()
    res$header("X-Length", as.character(length(body)))
    res$send(rawToChar(body))
  })
  app$get("/fail", function(req, res) stop("on purpose"))
  dir <- tempfile()
  dir.create(dir)
  writeLines("a text", file.path(dir, "a.txt"))
  app$static(dir, "static")
  if (is.null(serve)) app$start(open = FALSE) else serve(app, port)
}

test_that("an ambiorix app answers", {
  it <- in_background(app_of_ambiorix)
  expect_equal(fetch(it$url)$text, "hello")
  expect_equal(unlist(jsonlite::fromJSON(fetch(paste0(it$url, "/item/7?q=x"))$text)), c(id = "7", q = "x"))
  posted <- fetch(paste0(it$url, "/echo"), postfields = strrep("ab", 5e4))
  expect_equal(header(posted, "X-Length"), "100000")
  expect_equal(posted$text, strrep("ab", 5e4))
  expect_equal(fetch(paste0(it$url, "/fail"))$status_code, 500)
  expect_equal(fetch(paste0(it$url, "/none"))$status_code, 404)
  expect_equal(fetch(paste0(it$url, "/static/a.txt"))$text, "a text\n")
})

test_that("rookery::serve() serves the object, on the port that it is told", {
  skip_if_not(requireNamespace("rookery", quietly = TRUE))
  it <- in_background(app_of_ambiorix, function(app, port) rookery::serve(app, port = port, log = FALSE))
  expect_equal(fetch(it$url)$text, "hello")
  it$process$interrupt()
  it$process$wait(20000)
  expect_match(it$process$read_all_output(), "ambiorix app")
})

test_that("rookery::serve() serves an app.R that starts itself", {
  skip_if_not(requireNamespace("rookery", quietly = TRUE))
  dir <- withr::local_tempdir()
  writeLines(c(
    "app <- ambiorix::Ambiorix$new(port = 3000L)",
    "app$get('/', function(req, res) res$send('from app.R'))",
    "app$start()"
  ), file.path(dir, "app.R"))
  it <- in_background(function(port, dir) rookery::serve(dir, port = port, log = FALSE), dir)
  expect_equal(fetch(it$url)$text, "from app.R")
})
