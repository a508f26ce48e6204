files_of_plumber2 <- function(dir) {
  dir.create(file.path(dir, "routes"))
  writeLines(c(
    "#* An item", "#* @get /item/<id>", "#* @query n:integer", "#* @serializer json",
    "function(id, query) list(id = id, n = query$n + 1L)",
    "",
    "#* What came", "#* @post /echo", "#* @parser json", "#* @serializer text",
    "function(body) paste(unlist(body), collapse = '|')",
    "",
    "#* @get /fail", "function() stop('on purpose')"
  ), file.path(dir, "routes", "api.R"))
  writeLines(c("engine: plumber2", "routes: routes/api.R"), file.path(dir, "_server.yml"))
  dir
}

answers_as_plumber2 <- function(it) {
  item <- fetch(paste0(it$url, "/item/7?n=4"))
  expect_equal(item$status_code, 200)
  expect_equal(unlist(jsonlite::fromJSON(item$text)), c(id = "7", n = "5"))
  posted <- fetch(paste0(it$url, "/echo"), postfields = "{\"a\":1,\"b\":\"x\"}", httpheader = "Content-Type: application/json")
  expect_equal(posted$text, "1|x")
  expect_equal(fetch(paste0(it$url, "/fail"))$status_code, 500)
  expect_equal(fetch(paste0(it$url, "/none"))$status_code, 404)
  expect_match(fetch(paste0(it$url, "/__docs__/"))$text, "rapi-doc")
}

test_that("an API of annotated files answers, and shows its documentation", {
  it <- in_background(function(port, dir) {
    plumber2::api_run(plumber2::api(dir, port = port), block = TRUE, showcase = FALSE)
  }, files_of_plumber2(withr::local_tempdir()))
  answers_as_plumber2(it)
})

test_that("rookery::serve() serves the API, and its folder by the engine that _server.yml names", {
  skip_if_not(requireNamespace("rookery", quietly = TRUE))
  dir <- files_of_plumber2(withr::local_tempdir())
  it <- in_background(function(port, dir) rookery::serve(plumber2::api(dir), port = port, log = FALSE), dir)
  answers_as_plumber2(it)
  it$process$interrupt()
  it$process$wait(20000)
  expect_match(it$process$read_all_output(), "plumber2 API")
  answers_as_plumber2(in_background(function(port, dir) rookery::serve(dir, port = port, log = FALSE), dir))
})
