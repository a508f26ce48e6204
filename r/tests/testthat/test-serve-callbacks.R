# Errors in callbacks of package later, which belong to no request, while servers run.

skip_if_not_installed("processx")
skip_if_not_installed("later")

# Serves an app whose first request runs `schedule`.
local_timers <- function(schedule, env = parent.frame()) {
  dir <- local_app(app.R = c(
    "schedule <- function() {", schedule, "}",
    "function(req) {",
    "  if (req$PATH_INFO == '/first') schedule()",
    "  list(status = 200L, headers = list(), body = 'ok')",
    "}"
  ), env = env)
  it <- local_served(dir, "port = 0, log = FALSE", env = env)
  it$url <- expect_serving(it)
  it$get <- function(path = "/") fetch(paste0(it$url, path))$text
  it
}

test_that("an error in a callback of package later is reported, and serve() continues", {
  it <- local_timers(c(
    "  fail <- function() {",
    "    later::later(fail, 0.01)",
    "    stop('the timer of one user')",
    "  }",
    "  later::later(fail)"
  ))
  expect_identical(it$get("/first"), "ok")
  expect_true(wait_until(function() grepl("the timer of one user", it$tell())))
  for (i in 1:5) expect_identical(it$get(), "ok")
  it$signal(tools::SIGTERM)
  expect_identical(exit_of(it), 0L)
  # Newer versions of package later keep the calls, which are reported as well.
  lines <- grep("^rookery: .*the timer of one user", strsplit(it$tell(), "\n")[[1]], value = TRUE)
  # Older versions of package later change the message.
  expect_match(lines[[1]], "^rookery: a callback of package later: .*the timer of one user[.]?$")
  # The repeated errors are counted.
  expect_match(lines[[2]], "the timer of one user[.]? \\([1-9][0-9]* more in [0-9]+ s\\)$")
  expect_length(lines, 2)
})

test_that("quit(), interrupt() and a signal in a callback of package later end serve()", {
  it <- local_timers("  later::later(function() quit(status = 7))")
  it$get("/first")
  expect_identical(exit_of(it), 7L)
  it <- local_timers("  later::later(function() { rookery::interrupt(); stop('and fails') })")
  it$get("/first")
  expect_identical(exit_of(it), 0L)
  expect_match(it$tell(), "and fails", fixed = TRUE)
  it <- local_timers(c(
    "  later::later(function() {",
    "    tools::pskill(Sys.getpid(), tools::SIGINT)",
    "    later::later(function() cat('served on\\n'))",
    "  })"
  ))
  it$get("/first")
  expect_identical(exit_of(it), 0L)
})

test_that("callbacks of package later that nest without end are an error and no crash", {
  it <- local_timers(c(
    "  nest <- function() {",
    "    later::later(nest, 0)",
    "    rookery::service(1)",
    "  }",
    "  later::later(nest)",
    "  later::later(function() quit(status = 7), 0.5)"
  ))
  it$get("/first")
  # quit() may be the innermost callback, or run after the nested ones have failed.
  expect_identical(exit_of(it), 7L)
})

test_that("a callback of package later may serve, and its errors do not end what it runs in", {
  it <- local_timers(c(
    "  later::later(function() {",
    "    later::later(function() stop('within'))",
    "    for (i in 1:5) rookery::service(5)",
    "    cat('went on\\n')",
    "  })"
  ))
  it$get("/first")
  expect_true(wait_until(function() grepl("went on", it$tell(), fixed = TRUE)))
  expect_match(it$tell(), "a callback of package later: .*within")
  expect_identical(it$get(), "ok")
})

test_that("an error in a callback of package later ends runServer(), as in httpuv", {
  later::later(function() stop("ends it"))
  expect_error(runServer("127.0.0.1", 0, function(req) NULL), "ends it", fixed = TRUE)
  expect_length(listServers(), 0)
})

test_that("a pushed stream does not look complete when an error ends runServer()", {
  port <- free_port()
  it <- local_r(c(
    sprintf("rookery::runServer('127.0.0.1', %d, function(req) {", port),
    "  stream <- rookery::stream_response()",
    "  stream$write('part')",
    "  later::later(function() { force(stream); stop('ends it') }, 0.05)",
    "  stream",
    "})"
  ))
  url <- sprintf("http://127.0.0.1:%d/", port)
  answer <- NULL
  # Until the server listens, no connection can be opened.
  wait_until(function() {
    answer <<- tryCatch(fetch(url)$text, error = function(error) error)
    !inherits(answer, "error") || !grepl("connect to", conditionMessage(answer))
  })
  expect_s3_class(answer, "error")
  expect_match(conditionMessage(answer), "reset|closed|transfer")
  expect_gt(exit_of(it), 0)
})

test_that("stopApp() in a callback of package later ends serve()", {
  skip_if_not_installed("shiny")
  dir <- local_app(app.R = c(
    "library(shiny)",
    "later::later(function() stop('before'), 0.1)",
    "later::later(function() { message('stops'); stopApp() }, 0.5)",
    "shinyApp(fluidPage(), function(input, output) NULL)"
  ))
  it <- local_cli("serve", dir, "--port", "0")
  expect_identical(exit_of(it), 0L)
  expect_match(it$tell(), "a callback of package later: .*before.*stops")
})
