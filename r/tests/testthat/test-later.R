# Package later, which is loaded only when it is needed: src/later_scheduling.c.

# Runs an R process with a server whose body says whether `later` is loaded, and then evaluates
# code.
serving <- function(then, env = parent.frame()) {
  port <- free_port()
  started <- local_r(
    c(
      "library(rookery)",
      "loaded <- function() if (isNamespaceLoaded('later')) 'loaded' else 'not loaded'",
      "ran <- FALSE",
      "app <- function(req) {",
      "  if (req$PATH_INFO == '/later') later::later(function() ran <<- TRUE)",
      "  list(status = 200L, headers = list(), body = if (req$PATH_INFO == '/ran') format(ran) else loaded())",
      "}",
      paste0("server <- startServer('127.0.0.1', ", port, ", app)"),
      "cat('ready', loaded(), '\\n')",
      then
    ),
    env = env
  )
  expect_true(wait_until(function() grepl("ready", started$tell())))
  expect_match(started$tell(), "ready not loaded")
  started$url <- paste0("http://127.0.0.1:", port)
  started
}

body_of <- function(started, path = "/") {
  rawToChar(
    curl::curl_fetch_memory(paste0(started$url, path), curl::new_handle(timeout = 60))$content
  )
}

skip_if_not_installed("processx")
skip_if_not_installed("curl")

test_that("a script serves without package later until its app loads it", {
  started <- serving("while (TRUE) service()")
  expect_identical(body_of(started), "not loaded")
  # A wait that no event ends.
  Sys.sleep(0.3)
  expect_identical(body_of(started), "not loaded")
  expect_identical(body_of(started, "/later"), "loaded")
  expect_true(wait_until(function() body_of(started, "/ran") == "TRUE"))
})

test_that("without package later, service() returns after its timeout and can be interrupted", {
  started <- serving(c(
    "took <- system.time(service(200))[['elapsed']]",
    "tryCatch({ cat('took', took, '\\n'); service(0) }, interrupt = function(condition) cat('interrupted', loaded(), '\\n'))"
  ))
  expect_true(wait_until(function() grepl("took", started$tell())))
  expect_gte(as.numeric(sub(".*took ([0-9.]+) .*", "\\1", started$tell())), 0.19)
  started$process$interrupt()
  expect_true(wait_until(function() grepl("interrupted not loaded", started$tell())))
})

test_that("a script that only runs package later serves, also requests from before it was loaded", {
  started <- serving(c("Sys.sleep(1)", "while (TRUE) later::run_now(1)"))
  expect_identical(body_of(started), "loaded")
})

test_that("an idle R process loads package later for a request, but not while a function runs", {
  started <- serving(c(
    "Sys.sleep(1)",
    "cat('then', loaded(), '\\n')",
    "until <- Sys.time() + 60",
    # No function is running, as at R's prompt.
    "while (!ran && Sys.time() < until) .Internal(Sys.sleep(0.1))",
    # A forked child has its own pipe.
    "child <- parallel::mcparallel({ Sys.sleep(0.2); 'well' })",
    "cat('child', parallel::mccollect(child)[[1]], '\\n')"
  ))
  expect_identical(body_of(started, "/later"), "loaded")
  expect_identical(exit_of(started), 0L)
  expect_match(started$tell(), "then not loaded")
  expect_match(started$tell(), "child well")
})

test_that("the time limit of a request is not lost in the input handler that loads package later", {
  app <- local_app(handler.R = c(
    "function(req) {",
    "  if (req$PATH_INFO == '/slow') {",
    # The input handler calls it, again and again while a request waits.
    "    quick <- base::sys.nframe",
    "    set <- function(value) assign('sys.nframe', value, baseenv())",
    "    unlockBinding('sys.nframe', baseenv())",
    "    on.exit(set(quick))",
    "    set(function() { for (i in seq_len(1e5)) sqrt(i); 2L })",
    "    Sys.sleep(20)",
    "  }",
    "  list(status = 200L, headers = list(), body = 'ok')",
    "}"
  ))
  it <- local_cli(
    "serve", file.path(app, "handler.R"), "--port", "0", "--log", "none", "--interrupt-requests",
    "--request-timeout", "1s"
  )
  url <- expect_serving(it)
  slow <- local_requests(paste0(url, "/slow"), 1)
  Sys.sleep(0.5)
  # Waits for R. Its own limit ends before that of R's task at the earliest.
  local_requests(url, 1)
  expect_true(wait_until(function() grepl("GET /slow", it$tell()), 15))
  expect_no_match(it$tell(), "cannot be loaded")
})
