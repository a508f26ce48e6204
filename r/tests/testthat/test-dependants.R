# Packages that use httpuv, unmodified, with rookery's httpuv. Each runs in an R process of its own,
# because a loaded httpuv cannot be replaced.

skip_if_not_installed("processx")

# Evaluates text in an R process that has called use_compat(); returns its output.
run_with_compat <- function(..., seconds = 180) {
  it <- local_r(c(
    "invisible(rookery::use_compat(quiet = TRUE))", ...,
    "stopifnot(rookery::which_httpuv()$kind == 'rookery')"
  ))
  status <- exit_of(it, seconds)
  if (status != 0) {
    stop("it failed with status ", status, ":\n", it$tell())
  }
  it$tell()
}

test_that("curl::curl_echo() shows what it sends", {
  skip_if_not_installed("curl")
  said <- run_with_compat(
    "h <- curl::new_handle(url = 'http://example.org/post?x=1', copypostfields = 'a=1&b=2', httpheader = c('X-Test: yes', 'Content-Type: application/json'))",
    "out <- curl::curl_echo(h)",
    "stopifnot(out$method == 'POST', out$path == '/post', out$query == '?x=1', rawToChar(out$body) == 'a=1&b=2')",
    "stopifnot(out$headers[['x-test']] == 'yes', out$content_type == 'application/json')",
    "h <- curl::new_handle()",
    "curl::handle_setform(h, text = 'x', file = curl::form_file(system.file('DESCRIPTION', package = 'curl')))",
    "out <- curl::curl_echo(h)",
    "stopifnot(grepl('multipart/form-data', out$content_type), grepl('Package: curl', rawToChar(out$body)))",
    "cat('echoed')"
  )
  expect_match(said, "echoed$")
})

test_that("httr2::req_dry_run() shows the request", {
  skip_if_not_installed("httr2")
  said <- run_with_compat(
    "library(httr2)",
    "req <- request('http://example.org/path?x=1')",
    "req <- req_headers(req, Accept = 'text/turtle')",
    "req <- req_body_json(req, list(a = 1))",
    "req_dry_run(req)"
  )
  # httr2 1.1 leaves out the query, writes field names in lower case, and JSON in several lines.
  expect_match(said, "POST /path(\\?x=1)? HTTP/1\\.1")
  expect_match(said, "accept: text/turtle", ignore.case = TRUE)
  expect_match(said, "\\{\\s*\"a\":\\s*1\\s*\\}")
})

# Requests the URL to which the provider would send the browser, until a server listens.
visit <- function(url) {
  c(
    "asking <- callr::r_bg(function() {",
    "  for (i in 1:600) {",
    "    Sys.sleep(0.1)",
    sprintf("    answer <- try(curl::curl_fetch_memory('%s'), silent = TRUE)", url),
    "    if (!inherits(answer, 'try-error')) return(answer)",
    "  }",
    "})"
  )
}

test_that("httr's OAuth listener gets the code, and its page arrives", {
  skip_if_not_installed("httr")
  skip_if_not_installed("curl")
  port <- free_port()
  said <- run_with_compat(
    sprintf("Sys.setenv(HTTR_PORT = '%d')", port),
    visit(sprintf("http://localhost:%d/?code=abc&state=s%%20t", port)),
    "got <- httr::oauth_listener('http://localhost/authorize', is_interactive = TRUE)",
    "stopifnot(got$code == 'abc', got$state == 's t')",
    "asking$wait(60000)",
    "answer <- asking$get_result()",
    "cat('page:', answer$status_code, rawToChar(answer$content), '\\n')"
  )
  expect_match(said, "page: 200 Authentication complete", fixed = TRUE)
})

test_that("httr2's OAuth listener gets the code, and its page arrives", {
  skip_if_not_installed("httr2")
  skip_if_not_installed("curl")
  port <- free_port()
  said <- run_with_compat(
    visit(sprintf("http://127.0.0.1:%d/?code=abc&state=xyz", port)),
    # Until httr2 1.0, the port was an argument of its own.
    "listen <- httr2::oauth_flow_auth_code_listen",
    sprintf("at <- list(port = %d, redirect_uri = 'http://127.0.0.1:%d/')", port, port),
    "got <- do.call(listen, at[names(at) %in% names(formals(listen))])",
    "stopifnot(got$code == 'abc', got$state == 'xyz')",
    "asking$wait(60000)",
    "answer <- asking$get_result()",
    "cat('page:', answer$status_code, rawToChar(answer$content), '\\n')"
  )
  expect_match(said, "page: 200 Authentication complete", fixed = TRUE)
})

test_that("webutils receives a form with a file", {
  skip_if_not_installed("webutils")
  skip_if_not_installed("curl")
  port <- free_port()
  dir <- withr::local_tempdir()
  it <- local_r(dir = dir, c(
    "invisible(rookery::use_compat(quiet = TRUE))",
    # Stands for a browser.
    "options(browser = function(url) cat('opened', url, rookery::which_httpuv()$kind, '\\n'))",
    sprintf("webutils::demo_httpuv(%d)", port)
  ))
  url <- sprintf("http://127.0.0.1:%d/", port)
  expect_true(wait_until(function() grepl("opened http\\S+ rookery", it$tell())))
  expect_match(fetch(url)$text, "<form")
  picture <- file.path(withr::local_tempdir(), "a b.bin")
  writeBin(as.raw(0:255), picture)
  handle <- curl::new_handle(timeout = 60)
  curl::handle_setform(
    handle,
    username = "ada", email_address = "ada@example.org", food = "\u00e9clair",
    picture = curl::form_file(picture)
  )
  answer <- rawToChar(curl::curl_fetch_memory(url, handle)$content)
  Encoding(answer) <- "UTF-8"
  expect_match(answer, "User: ada\nEmail: ada@example.org\n.*Food: \u00e9clair")
  expect_equal(readBin(file.path(dir, "a b.bin"), "raw", 1000), as.raw(0:255))
})

test_that("servr's site server serves, and makes pages reload", {
  skip_if_not_installed("servr")
  skip_if_not_installed("curl")
  site <- local_app(
    "index.html" = "<html><head></head><body>first</body></html>", "a/b.txt" = "text",
    "data.bin" = strrep("0123456789", 100)
  )
  port <- free_port()
  it <- local_r(c(
    "invisible(rookery::use_compat(quiet = TRUE))",
    "stopifnot(rookery::which_httpuv()$kind == 'rookery')",
    sprintf(
      "servr::httw('%s', port = %d, browser = FALSE, interval = 0.2, daemon = TRUE)", site, port
    ),
    "cat('up\\n')",
    "repeat later::run_now(1)"
  ))
  expect_true(wait_until(function() grepl("up\n?$", it$tell())))
  url <- sprintf("http://127.0.0.1:%d", port)
  page <- fetch(url)
  expect_equal(page$status_code, 200)
  expect_match(page$text, "first")
  # servr adds the script that listens for reloads to pages.
  expect_match(page$text, "new WebSocket")
  expect_equal(fetch(paste0(url, "/a/b.txt"))$text, "text\n")
  part <- fetch(paste0(url, "/data.bin"), range = "10-19")
  expect_equal(part$status_code, 206)
  expect_equal(part$text, "0123456789")
  expect_equal(fetch(paste0(url, "/none"))$status_code, 404)

  # The page's side of live reload: it sends "", and receives TRUE after a change.
  socket <- socketConnection("127.0.0.1", port, open = "r+b", blocking = TRUE, timeout = 60)
  withr::defer(close(socket))
  writeBin(charToRaw(request("/websocket/", headers = c(
    "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
  ))), socket)
  read <- raw(0)
  while (find_raw(read, "\r\n\r\n") == 0) {
    byte <- readBin(socket, "raw", 1)
    if (length(byte) == 0) stop("no answer to the handshake")
    read <- c(read, byte)
  }
  expect_match(rawToChar(read), "^HTTP/1.1 101 ")
  ask_reload <- function() {
    writeBin(frame(""), socket)
    head <- readBin(socket, "raw", 2)
    rawToChar(readBin(socket, "raw", as.integer(head[[2]])))
  }
  expect_equal(ask_reload(), "false")
  writeLines("<html><head></head><body>second</body></html>", file.path(site, "index.html"))
  expect_true(wait_until(function() ask_reload() == "true"))
  expect_match(fetch(url)$text, "second")
})

test_that("jrc opens a page and calls into it", {
  skip_if_not_installed("jrc")
  skip_if_not_installed("curl")
  # Stands for a browser: fetches the page, opens its WebSocket, and prints what R makes the page
  # do.
  page <- withr::local_tempfile(fileext = ".R", lines = c(
    "url <- commandArgs(TRUE)[[1]]",
    "text <- rawToChar(curl::curl_fetch_memory(url)$content)",
    "port <- as.integer(sub('^.*:([0-9]+).*$', '\\\\1', url))",
    "socket <- socketConnection('localhost', port, open = 'r+b', blocking = TRUE, timeout = 60)",
    "writeBin(charToRaw(paste0('GET / HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n',",
    "  'Sec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n\\r\\n')), socket)",
    "read <- raw(0)",
    "while (length(byte <- readBin(socket, 'raw', 1)) > 0) {",
    "  read <- c(read, byte)",
    "  if (length(grepRaw('END', read, fixed = TRUE)) > 0) break",
    "}",
    "read <- rawToChar(read[read != 0 & read < 128])",
    "writeLines(c(paste('page', grepl('WebSocket|<script', text)), regmatches(read, regexpr('HTTP/1.1 [0-9]+', read)),",
    "  if (grepl('from R END', read)) 'told'), Sys.getenv('TOLD'))"
  ))
  told <- withr::local_tempfile()
  browser <- withr::local_tempfile(lines = c(
    "#!/bin/sh",
    sprintf("exec '%s' '%s' \"$1\" &", file.path(R.home("bin"), "Rscript"), page)
  ))
  Sys.chmod(browser, "755")
  withr::local_envvar(TOLD = told)
  run_with_compat(
    "library(jrc)",
    sprintf("openPage(useViewer = FALSE, browser = '%s', port = %d)", browser, free_port()),
    "sendData('x', 'from R END')",
    "until <- Sys.time() + 60",
    "while (!file.exists(Sys.getenv('TOLD')) && Sys.time() < until) httpuv::service(20)",
    "closePage()"
  )
  expect_equal(readLines(told), c("page TRUE", "HTTP/1.1 101", "told"))
})

test_that("Shiny's runApp() runs on rookery after use_compat()", {
  skip_if_not_installed("shiny")
  skip_if_not_installed("curl")
  port <- free_port()
  it <- local_r(c(
    "rookery::use_compat(quiet = TRUE)",
    "library(shiny)",
    "app <- shinyApp(fluidPage(tags$p('of shiny')), function(input, output) NULL)",
    sprintf("runApp(app, port = %d, launch.browser = FALSE)", port)
  ))
  expect_true(wait_until(function() grepl("Listening on", it$tell())))
  url <- sprintf("http://127.0.0.1:%d", port)
  # Shiny prints this before it listens.
  wait_until(function() {
    !inherits(try(fetch(url), silent = TRUE), "try-error") || !it$process$is_alive()
  })
  expect_match(fetch(url)$text, "of shiny")
  expect_equal(fetch(paste0(url, "/shared/shiny.min.js"))$status_code, 200)
  expect_match(fetch(paste0(url, "/nothing-here"))$text, "Not Found")
})

test_that("objects of Shiny and plumber are served by the session that created them", {
  skip_if_not_installed("shiny")
  skip_if_not_installed("plumber")
  skip_if_not_installed("curl")
  it <- local_r(c(
    "rookery::use_compat(quiet = TRUE)",
    "app <- shiny::shinyApp(",
    "  shiny::fluidPage(shiny::tags$p('of shiny')),",
    "  function(input, output) NULL,",
    "  onStart = function() shiny::onStop(function() cat('stopped\\n'))",
    ")",
    "rookery::serve(app, port = 0)"
  ))
  expect_match(fetch(expect_serving(it))$text, "of shiny")
  expect_match(it$tell(), "rookery [0-9.]+: Shiny app\nServing on")
  it$signal(15)
  expect_equal(exit_of(it), 0)
  expect_match(it$tell(), "\nstopped$")

  router <- c(
    "rookery::use_compat(quiet = TRUE)",
    "router <- plumber::pr_get(plumber::pr(), '/x', function() 'of plumber')"
  )
  it <- local_r(c(router, "rookery::serve(router, port = 0, log = FALSE)"))
  expect_equal(fetch(paste0(expect_serving(it), "/x"))$text, "[\"of plumber\"]")
  it$signal(15)
  expect_equal(exit_of(it), 0)

  # plumber's own run() cannot listen on a socket.
  socket <- file.path(withr::local_tempdir(), "api.sock")
  it <- local_r(c(router, sprintf("rookery::serve(router, 'unix:%s')", socket)))
  expect_serving(it)
  expect_equal(fetch("http://localhost/x", path = socket)$text, "[\"of plumber\"]")
  it$signal(15)
  expect_equal(exit_of(it), 0)
  expect_false(file.exists(socket))
})

test_that("R Markdown with runtime: shiny is served", {
  skip_if_not_installed("rmarkdown")
  skip_if_not_installed("shiny")
  skip_if_not(rmarkdown::pandoc_available(), "pandoc is not installed")
  dir <- local_app(
    "doc.Rmd" = c(
      "---", "title: A document", "runtime: shiny", "output: html_document", "---", "",
      "Text of it."
    )
  )
  it <- local_cli("serve", file.path(dir, "doc.Rmd"), "--port", "0")
  url <- expect_serving(it)
  expect_match(it$tell(), "R Markdown document with Shiny (doc.Rmd)", fixed = TRUE)
  expect_equal(fetch(url)$status_code, 200)
  it$signal(15)
  expect_equal(exit_of(it), 0)
})

test_that("a folder with _server.yml is run by its engine", {
  # An engine is any package with launch_server(); this one is created here.
  library <- withr::local_tempdir()
  source <- local_app(
    "DESCRIPTION" = c(
      "Package: tinyengine", "Version: 0.1", "Title: T", "Description: D.", "License: MIT",
      "Author: A", "Maintainer: A <a@example.org>", "Imports: httpuv"
    ),
    "NAMESPACE" = "importFrom(httpuv, runServer)",
    "R/engine.R" = c(
      "launch_server <- function(settings, host = NULL, port = NULL, ...) {",
      "  greeting <- sub('greeting: ', '', readLines(settings)[2])",
      "  runServer(host, port, list(call = function(req) list(status = 200L, headers = list(), body = greeting)))",
      "}"
    )
  )
  installed <- processx::run(
    file.path(R.home("bin"), "R"), c("CMD", "INSTALL", "--no-test-load", "-l", library, source),
    env = c(
      "current", R_TESTS = "",
      R_LIBS = paste(c(compat_library(), .libPaths()), collapse = .Platform$path.sep)
    ),
    error_on_status = FALSE, stderr_to_stdout = TRUE
  )
  expect_equal(installed$status, 0, info = installed$stdout)
  withr::local_libpaths(library, action = "prefix")
  dir <- local_app("_server.yml" = c("engine: tinyengine", "greeting: from the engine"))
  it <- local_cli("serve", dir, "--port", "0")
  expect_equal(fetch(expect_serving(it))$text, "from the engine")
  it$signal(15)
  expect_equal(exit_of(it), 0)
  expect_match(it$tell(), "_server.yml (engine tinyengine)", fixed = TRUE)
})

test_that("rookery can be the engine of a _server.yml", {
  dir <- local_app(
    "_server.yml" = c("engine: rookery", "app: api/hello.R", "options:", "  host: 127.0.0.1"),
    "api/hello.R" = "function(req) list(status = 200L, headers = list(), body = 'by rookery')"
  )
  it <- local_cli("serve", dir, "--port", "0")
  expect_equal(fetch(expect_serving(it))$text, "by rookery")
  it$signal(15)
  expect_equal(exit_of(it), 0)
  broken <- local_cli("serve", local_app("_server.yml" = "engine: rookery"), "--port", "0")
  expect_equal(exit_of(broken), 1)
  expect_match(broken$tell(), "needs `app:`, the file or folder to serve")
})
