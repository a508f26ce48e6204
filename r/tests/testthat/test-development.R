# What a worker of `rookery dev` does besides serving, without the program.

local_dev <- function(editor = NULL, env = parent.frame()) {
  folder <- withr::local_tempdir(.local_envir = env)
  withr::local_envvar(TMPDIR = folder, .local_envir = env)
  dev_begin(list(editor = editor))
  withr::defer(.globals$dev <- NULL, env)
  folder
}

test_that("the place of an error in R's parser is found in its message", {
  withr::local_dir(withr::local_tempdir())
  dir.create("R")
  writeLines(c("a <- 1", ")"), "R/f.R")
  message <- function(expr) conditionMessage(tryCatch(expr, error = identity))
  expect_equal(dev_parse_place(message(parse("R/f.R"))), list(file = "R/f.R", line = 2L))
  expect_equal(
    dev_parse_place(paste0(
      "`R/f.R` is not valid R:\n", message(parse(text = "a <- 1\n)", srcfile = "f.R"))
    )),
    list(file = "R/f.R", line = 2L)
  )
  for (other in c("", "none.R:1:2: unexpected", "no column", "<text>:1:2: unexpected", "a:b:c")) {
    expect_null(dev_parse_place(other), info = other)
  }
})

test_that("an error at the start is described as text and as a page", {
  dev_write_start_error(simpleError("not in development"), NULL, "no")
  folder <- local_dev()
  withr::local_dir(withr::local_tempdir())
  writeLines(c("first <- 1", "second <- )"), "app.R")
  error <- tryCatch(parse("app.R"), error = identity)
  dev_write_start_error(error, NULL, "the text")
  expect_setequal(list.files(folder), c("rookery-start-error.html", "rookery-start-error.txt"))
  expect_equal(readLines(file.path(folder, "rookery-start-error.txt"), warn = FALSE), "the text")
  page <- readLines(file.path(folder, "rookery-start-error.html"), encoding = "UTF-8")
  expect_match(page, "<b>2 second &lt;- )</b>", fixed = TRUE, all = FALSE)
  expect_match(page, "Save a file of the app", all = FALSE)
})

test_that("packages in the app's folder are not loaded in advance", {
  loadNamespace("later")
  folder <- local_dev()
  listed <- function() {
    dev_write_packages()
    scan(file.path(folder, "rookery-packages"), "", quiet = TRUE)
  }
  expect_true(all(c("later", "utils") %in% listed()))
  expect_false(any(c("base", "rookery") %in% listed()))
  withr::local_dir(dirname(getNamespaceInfo("later", "path")))
  expect_false("later" %in% listed())
})

test_that("a link opens a line in the editor", {
  path <- withr::local_tempfile(lines = "x", fileext = " a.R")
  expect_null(dev_editor_link(srcfile(path), 1L))
  local_dev("vscode://file{file}:{line}")
  link <- dev_editor_link(srcfile(path), 12L)
  expect_equal(link, paste0("vscode://file", utils::URLencode(normalizePath(path)), ":12"))
  expect_match(link, "%20a.R:12", fixed = TRUE)
  withr::local_dir(dirname(path))
  expect_equal(dev_editor_link(srcfile(basename(path)), 12L), link)
  expect_null(dev_editor_link(srcfile(path), NA))
  expect_null(dev_editor_link(srcfilecopy("<text>", "x"), 1L))
  expect_null(dev_editor_link(NULL, 1L))
})

test_that("responses with details are marked, and their page may load the server's script", {
  report <- function(format, detail = "full") {
    list(
      detail = detail, stage = "call", label = "call", route = "GET /", request_id = "", text = NULL,
      condition = simpleError("a mistake"), trace = NULL, req = NULL, format = format
    )
  }
  marked <- function(...) error_response(report(...))$headers[["X-Rookery-Error-Details"]]
  for (format in c("page", "json", "text")) expect_null(marked(format))
  local_dev()
  for (format in c("page", "json", "text")) {
    expect_equal(marked(format), "1")
    expect_null(marked(format, "message"))
  }
  policy <- error_response(report("page"))$headers[["Content-Security-Policy"]]
  expect_match(policy, "^default-src 'none'; .*script-src 'self'; connect-src 'self'")
  # The style of the page is the same.
  hash <- function(policy) regmatches(policy, regexpr("sha256-[^']*", policy))
  expect_equal(hash(policy), hash(page_headers[["Content-Security-Policy"]]))
  html <- list2env(list(HTTP_ACCEPT = "text/html,*/*;q=0.8"))
  expect_equal(dev_error_report(c(report("text")[-9], list(req = html)))$format, "page")
  expect_equal(dev_error_report(report("text"))$format, "text")
})

test_that("the response to a failed stream has no details, because it cannot be marked", {
  report <- list(
    detail = "full", stage = "stream", label = "the stream", route = "GET /", request_id = "a-1",
    text = NULL, condition = simpleError("a mistake"), trace = NULL, format = "text",
    req = list2env(list(HTTP_ACCEPT = "text/html"))
  )
  body <- function() error_response(dev_error_report(report))$body
  expect_match(body(), "a mistake")
  local_dev()
  expect_equal(body(), "500 Internal Server Error\nRequest a-1\n")
})

test_that("an error of a session is described for its page, without passwords", {
  folder <- local_dev()
  report <- list(
    detail = "full", stage = "output", label = "output$mean", route = "", request_id = "",
    text = NULL, condition = simpleError("no mean of hunter2!"), req = NULL, session = "4f2a0c11",
    trace = list(call = character(), left_out = 0L, folded = 12L), inputs = c(name = "Ada <a>"),
    secrets = "hunter2!"
  )
  written <- function() list.files(folder, "^rookery-error-")
  dev_write_session_error(replace(report, "session", ""))
  dev_write_session_error(replace(report, "detail", "message"))
  expect_length(written(), 0)
  dev_write_session_error(report)
  dev_write_session_error(report)
  expect_setequal(written(), c("rookery-error-1.html", "rookery-error-2.html"))
  lines <- readLines(file.path(folder, "rookery-error-1.html"), encoding = "UTF-8")
  expect_equal(lines[1:2], c("4f2a0c11", "<!doctype html>"))
  expect_match(lines, "<meta http-equiv=Content-Security-Policy", fixed = TRUE, all = FALSE)
  expect_match(lines, "no mean of [masked]", fixed = TRUE, all = FALSE)
  expect_match(lines, "<tr><th>name</th><td>Ada &lt;a&gt;</td></tr>", fixed = TRUE, all = FALSE)
  expect_match(lines, "output$mean", fixed = TRUE, all = FALSE)
  expect_length(grep("hunter2", lines), 0)
  .globals$dev <- NULL
  dev_write_session_error(report)
  expect_length(written(), 2)
})

test_that("the inputs of a session are shown without those of passwords and files", {
  skip_if_not_installed("shiny")
  session <- shiny::MockShinySession$new()
  expect_length(shiny_inputs(session)$values, 0)
  session$setInputs(
    n = c(7, 20), name = "Ada", pin = "hunter2!", api_key = "k-123456", day = as.Date("2026-01-02"),
    table = data.frame(name = "a.csv", datapath = "/tmp/0.csv"), many = 1:1000,
    none = NULL
  )
  for (name in c("pin", "table")) shiny::setSerializer(name, function(...) NULL, session)
  inputs <- shiny_inputs(session)
  expect_equal(
    inputs$values[c("api_key", "day", "n", "name", "none")],
    c(api_key = "[masked]", day = "2026-01-02", n = "7, 20", name = "Ada", none = "NULL")
  )
  expect_setequal(names(inputs$values), c("api_key", "day", "many", "n", "name", "none"))
  expect_match(inputs$values[["many"]], "^1, .*, 20$")
  expect_true(all(c("hunter2!", "k-123456") %in% inputs$secrets))
  expect_null(shiny_inputs(NULL))
})

test_that("in development, the page with an error of Shiny's ui function replaces its response", {
  skip_if_not_installed("shiny")
  withr::local_options(rookery.error_detail = "full", keep.source = TRUE)
  withr::defer(.globals$shiny <- NULL)
  # Returns the response to a request that prints an error as Shiny does, and has `status`.
  respond <- function(path, status, accept = "text/html", is_error = TRUE) {
    req <- list2env(list(
      REQUEST_METHOD = "GET", PATH_INFO = path, REQUEST_ID = "a-1", HTTP_ACCEPT = accept,
      HEADERS = c(accept = accept), QUERY_STRING = ""
    ))
    app <- list(call = function(req) {
      if (is_error) try(shiny::withLogErrors(stop("no page")), silent = TRUE)
      list(status = status, headers = list(), body = "Shiny's")
    })
    response <- NULL
    .globals$error_reports <- NULL
    stderr_of(with_shiny_errors(response <- observed_app(app)$call(req)))
    response
  }
  expect_equal(respond("/", 500L)$body, "Shiny's")
  local_dev()
  page <- respond("/", 500)
  expect_match(page$body, "<h1>no page</h1>", fixed = TRUE)
  expect_equal(page$headers[["X-Rookery-Error-Details"]], "1")
  expect_match(respond("/", 500L, "*/*")$body, "^500 Internal Server Error\nRequest a-1\nno page\n")
  # What Shiny does with an error stays: a response without failure, and a failed download.
  expect_equal(respond("/", 200L)$body, "Shiny's")
  expect_equal(respond("/session/0123abcd/download/file", 500L)$body, "Shiny's")
  expect_equal(respond("/", 500L, is_error = FALSE)$body, "Shiny's")
})
