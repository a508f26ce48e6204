# Error reports for endpoints of plumber, unmodified.

skip_if_not_installed("plumber")
skip_if_not_installed("processx")
skip_if_not_installed("curl")

api <- c(
  "#* @filter check",
  "function(req) {",
  "  if (req$PATH_INFO == '/filtered') stop('in a filter')",
  "  plumber::forward()",
  "}",
  "inner <- function(what) stop(what)",
  "#* @get /fail",
  "function() inner('in an endpoint')",
  "#* @get /async",
  "function() promises::promise(function(resolve, reject) later::later(function() reject('in a promise'), 0.05))",
  "#* @get /handled",
  "#* @serializer text",
  "function() tryCatch(stop('handled'), error = function(error) 'handled')",
  "#* @get /argument",
  "#* @serializer text",
  "function(a = 'none') a",
  "#* @get /unserialised",
  "#* @serializer unboxedJSON",
  "function() structure(1, class = 'unknown')",
  "#* @get /unwell",
  "function(res) { res$status <- 500; 'as it is' }",
  "#* @get /fine",
  "#* @serializer text",
  "function(req) req$REQUEST_ID",
  "#* @plumber",
  "function(pr) {",
  "  below <- plumber::pr_get(plumber::pr(), '/fail', function() stop('in a mounted router'))",
  "  ##HERE",
  "  plumber::pr_mount(pr, '/below', below)",
  "}"
)

local_api <- function(..., env = parent.frame()) {
  here <- c(...)
  lines <- if (length(here) == 0) {
    api
  } else {
    unlist(lapply(api, function(line) if (grepl("##HERE", line)) here else line))
  }
  it <- local_cli("serve", local_app("plumber.R" = lines, env = env), "--port", "0", env = env)
  url <- expect_serving(it)
  list(
    it = it,
    # Returns the response, its id, and the output until then.
    ask = function(path, ...) {
      answer <- fetch(paste0(url, path), ...)
      answer$id <- curl::parse_headers_list(answer$headers)[["x-request-id"]]
      # The supervisor forwards the output of its worker, so it may arrive after the response.
      wait_until(function() is.null(answer$id) || grepl(answer$id, it$tell(), fixed = TRUE), 5)
      answer$said <- it$tell()
      answer
    }
  )
}

test_that("errors are reported with calls and request id, and plumber responds as usual", {
  served <- local_api()
  texts <- c(
    "/fail" = "in an endpoint", "/filtered" = "in a filter", "/async" = "in a promise",
    "/below/fail" = "in a mounted router"
  )
  for (path in names(texts)) {
    answer <- served$ask(path)
    expect_equal(answer$status_code, 500, info = path)
    expect_equal(answer$text, '{"error":"500 - Internal server error"}', info = path)
    route <- sub("/below", "", path)
    stage <- if (path == "/async") "a promise" else "call"
    told <- paste0(
      "rookery: GET ", route, " (", stage, "): ", texts[[path]], " [", answer$id, "]\n"
    )
    expect_match(answer$said, told, fixed = TRUE, info = path)
    # Each error is reported once, and not also as a response of plumber itself.
    expect_length(
      grep(
        answer$id,
        strsplit(answer$said, "\n")[[1]][!grepl("HTTP/1.1", strsplit(answer$said, "\n")[[1]])],
        fixed = TRUE
      ),
      1
    )
  }
  # The endpoint's calls, without those of plumber around them.
  lines <- strsplit(served$it$tell(), "\n")[[1]]
  at <- grep("in an endpoint [", lines, fixed = TRUE)
  trace <- grep("^    ", lines[at + 1:4], value = TRUE)
  expect_match(trace[[1]], "function", fixed = TRUE)
  expect_match(trace, "inner(\"in an endpoint\")", fixed = TRUE, all = FALSE)
  expect_no_match(trace, "plumber::|rookery::|handleSimpleError")
})

test_that("handled errors are not reported, and successful requests are unchanged", {
  served <- local_api()
  expect_equal(served$ask("/handled")$text, "handled")
  fine <- served$ask("/fine")
  expect_equal(fine$text, fine$id)
  for (query in c("", "?.next=1", "?.next=1&a=yes", "?req=1&res=2&re=3", "?a=yes&i=2&value=3")) {
    answer <- served$ask(paste0("/argument", query))
    expect_equal(answer$status_code, 200, info = query)
    expect_equal(answer$text, if (grepl("a=yes", query)) "yes" else "none", info = query)
  }
  expect_no_match(served$it$tell(), "rookery: GET ")
})

test_that("a status 500 of plumber without an error in an endpoint is logged with its id", {
  served <- local_api()
  # When a serializer fails, plumber's response is invalid.
  places <- c(
    "/unwell" = "the app's response): the app itself responded with status 500",
    "/unserialised" = "the response): `status` must be a number from 200 to 999"
  )
  for (path in names(places)) {
    answer <- served$ask(path)
    expect_equal(answer$status_code, 500, info = path)
    expect_match(
      answer$said, paste0("rookery: GET ", path, " (", places[[path]], " [", answer$id, "]"),
      fixed = TRUE
    )
  }
})

test_that("onError is called for errors of an API, and may return the response", {
  served <- local_api(
    "  pr <- plumber::pr_mount(pr, '/below', below)",
    "  rookery::plumber_errors(pr, on_error = function(cond, req, info) {",
    "    cat('TOLD', req$PATH_INFO, conditionMessage(cond), info$stage, info$request_id, nrow(info$frames), info$headers['cookie'], '\\n')",
    "    if (conditionMessage(cond) != 'in a filter') {",
    "      list(status = 503L, headers = list('Retry-After' = '7', 'Content-Type' = 'text/plain'), body = 'come again')",
    "    }",
    "  })"
  )
  told <- list(
    "/fail" = "TOLD /fail in an endpoint call", "/async" = "TOLD /async in a promise promise",
    "/below/fail" = "TOLD /fail in a mounted router call"
  )
  for (path in names(told)) {
    answer <- served$ask(path, httpheader = "Cookie: a=b")
    expect_equal(answer$status_code, 503, info = path)
    expect_equal(answer$text, "come again", info = path)
    headers <- curl::parse_headers_list(answer$headers)
    expect_equal(headers[["retry-after"]], "7", info = path)
    expect_true(
      wait_until(function() grepl(paste(told[[path]], answer$id), served$it$tell(), fixed = TRUE)),
      info = path
    )
  }
  # Once for each error, although serve() has processed the router as well.
  expect_length(grep("^TOLD", strsplit(served$it$tell(), "\n")[[1]]), 3)
  answer <- served$ask("/filtered")
  expect_equal(answer$text, '{"error":"500 - Internal server error"}')
  expect_true(wait_until(function() grepl("TOLD /filtered in a filter call", served$it$tell())))
})

test_that("the response of on_error replaces what an endpoint does while it ends", {
  pr <- plumber::pr()
  pr <- plumber::pr_get(pr, "/twice", function(res) {
    on.exit(stop("cannot close"))
    stop("first")
  })
  pr <- plumber::pr_get(pr, "/sets", function(res) {
    on.exit({
      res$status <- 200L
      res$body <- "own"
    })
    stop("first")
  })
  pr <- plumber::pr_get(pr, "/rescued", function(res) {
    on.exit(return("rescued"))
    stop("first")
  })
  capture.output(type = "message", plumber_errors(pr, on_error = function(cond) {
    list(status = 418L, headers = list("X-A" = "1"), body = "answer")
  }))
  ask <- function(path) {
    req <- list2env(list(
      REQUEST_METHOD = "GET", PATH_INFO = path, QUERY_STRING = "", HTTP_HOST = "x", pr = pr,
      rook.input = list(read_lines = function() character(), read = function(...) raw(),
        rewind = function() NULL)
    ))
    capture.output(type = "message", answer <- pr$call(req))
    list(status = answer$status, body = answer$body, told = sum(names(answer$headers) == "X-A"))
  }
  expect_identical(ask("/twice"), list(status = 418L, body = "answer", told = 1L))
  expect_identical(ask("/sets"), list(status = 418L, body = "answer", told = 1L))
  expect_match(as.character(ask("/rescued")$body), "rescued")
})

test_that("errors of an API that is not run by serve() are reported as well", {
  it <- local_r(c(
    "library(rookery)",
    "use_compat(quiet = TRUE)",
    "pr <- plumber::pr_get(plumber::pr(), '/fail', function() stop('as such'))",
    "told <- plumber_errors(pr, on_error = function(cond) cat('TOLD', conditionMessage(cond), '\\n'))",
    "stopifnot(identical(told, pr))",
    "server <- startServer('127.0.0.1', 0, pr)",
    "cat('Serving on http://127.0.0.1:', server$getPort(), ' \\n', sep = '')",
    "service(0)"
  ))
  url <- expect_serving(it)
  expect_equal(fetch(paste0(url, "/fail"))$status_code, 500)
  expect_match(it$tell(), "TOLD as such", fixed = TRUE)
})

test_that("a file with an error is read once", {
  reads <- 0
  plumb <- function() {
    reads <<- reads + 1
    stop("boom")
  }
  expect_error(run_plumber(plumb(), list(host = "127.0.0.1", port = 0L), list()), "boom")
  expect_equal(reads, 1)
})
