# The start-up screen, `open`, and the projects of `rookery new`.

test_that("the screen of an object is that of the program, with the admin and network addresses", {
  withr::local_envvar(NO_COLOR = NA, CLICOLOR_FORCE = NA, CLICOLOR = NA, TERM = "xterm")
  screen <- function(texts, is_terminal = FALSE) {
    lines <- rookery:::text_of("start screen", texts[1:4], 8000L, texts[[5]], is_terminal, TRUE)
    strsplit(lines, "\n", fixed = TRUE)[[1]]
  }
  expect_equal(
    screen(c("Shiny app", "/srv/app", "http://127.0.0.1:8000", "127.0.0.1", "127.0.0.1:9100")),
    c(
      paste0("rookery ", utils::packageVersion("rookery"), ": Shiny app in /srv/app"),
      "Serving on http://127.0.0.1:8000 (Ctrl-C stops)",
      "  Admin:       http://127.0.0.1:9100"
    )
  )
  lines <- screen(c("site", "", "/run/socket", "", "unix:/a"))
  expect_equal(lines[[1]], paste0("rookery ", utils::packageVersion("rookery"), ": site"))
  expect_equal(lines[-1], c("Serving on /run/socket (Ctrl-C stops)", "  Admin:       unix:/a"))
  expect_equal(
    screen(c("site", "", "http://[::1]:80", "", ""), TRUE)[[2]],
    "Serving on \033[1;36mhttp://[::1]:80\033[0m \033[2m(Ctrl-C stops)\033[0m"
  )
})

test_that("an address is opened in the viewer or browser, and over SSH only printed", {
  withr::local_envvar(SSH_CONNECTION = NA, SSH_TTY = NA, DISPLAY = ":0", WAYLAND_DISPLAY = NA)
  opened <- character()
  opens <- function(name) function(url, ...) opened <<- c(opened, paste(name, url))
  open <- function(place, viewer = NULL) open_browser(place, viewer, opens("browser"))
  open("http://127.0.0.1:1")
  open("http://127.0.0.1:1", opens("viewer"))
  open("https://app.example.org", opens("viewer"))
  expect_equal(
    opened,
    c("browser http://127.0.0.1:1", "viewer http://127.0.0.1:1", "browser https://app.example.org")
  )
  expect_message(open("/run/socket"), "cannot open a Unix socket")
  withr::local_envvar(SSH_TTY = "/dev/pts/1", DISPLAY = NA)
  expect_message(
    open("http://127.0.0.1:1"), "over SSH: the address is http://127.0.0.1:1", fixed = TRUE
  )
  expect_length(opened, 3)
  expect_error(
    serve(list(), open = "yes"), "`open` must be TRUE, FALSE or a function",
    class = "rookery_bad_argument"
  )
})

test_that("serve() opens the address of an object and of a path once it listens", {
  skip_if_not_installed("processx")
  skip_if_not_installed("curl")
  dir <- local_app("app.R" = "function(req) list(status = 200L, headers = list(), body = 'hello')")
  open <- "open = function(url) cat('opened', url, rawToChar(curl::curl_fetch_memory(url)$content), '\\n')"
  it <- local_r(sprintf("rookery::serve('%s', port = 0, log = FALSE, %s)", dir, open))
  url <- expect_serving(it)
  expect_true(wait_until(function() grepl(paste("opened", url, "hello"), it$tell(), fixed = TRUE)))
  it$signal(15)
  expect_equal(exit_of(it), 0)
  # While R itself opens the address, it cannot respond.
  it <- local_served(
    dir,
    "port = 0, log = FALSE, open = function(url) { cat('opened', url, '\\n'); stop('no browser') }"
  )
  url <- expect_serving(it)
  expect_true(wait_until(function() grepl("`open` failed: no browser", it$tell(), fixed = TRUE)))
  expect_match(it$tell(), paste("opened", url), fixed = TRUE)
  expect_equal(fetch(url)$text, "hello")
})

test_that("with workers the session opens the address, once", {
  skip_if_not_installed("processx")
  skip_if_not_installed("curl")
  skip_on_os(c("mac", "solaris"))
  dir <- local_app("app.R" = "function(req) list(status = 200L, headers = list(), body = 'hello')")
  bin <- withr::local_tempdir()
  told <- file.path(bin, "told")
  writeLines(c("#!/bin/sh", sprintf("echo \"$1\" >> '%s'", told)), file.path(bin, "xdg-open"))
  Sys.chmod(file.path(bin, "xdg-open"), "755")
  it <- local_r(
    sprintf("rookery::serve('%s', port = 0, log = FALSE, workers = 2, open = TRUE)", dir),
    environment = c(
      R_BROWSER = file.path(bin, "xdg-open"), DISPLAY = ":0",
      SSH_CONNECTION = "", SSH_TTY = "", ROOKERY_PORT = ""
    )
  )
  url <- sub("/$", "", expect_serving(it))
  expect_true(wait_until(function() file.exists(told) && length(readLines(told)) > 0))
  # Both workers are ready, and neither opens the address again.
  expect_true(wait_until(
    function() lengths(regmatches(it$tell(), gregexpr("is ready", it$tell()))) >= 2
  ))
  expect_equal(readLines(told), url)
  expect_equal(fetch(url)$text, "hello")
  it$signal(15)
  expect_equal(exit_of(it), 0)
})

test_that("no screen is shown while a document is knitted", {
  skip_if_not_installed("processx")
  it <- local_r(c(
    "options(knitr.in.progress = TRUE)",
    "later::later(rookery::interrupt, 0.2)",
    "rookery::serve(function(req) list(status = 200L), port = 0, log = FALSE)",
    "cat('after serving\\n')"
  ))
  expect_equal(exit_of(it), 0)
  expect_equal(it$tell(), "after serving")
})

test_that("projects of `rookery new` pass `rookery check` and are served", {
  skip_if_not_installed("processx")
  skip_if_not_installed("curl")
  dir <- withr::local_tempdir()
  pages <- list(
    shiny = c("/" = "Old Faithful", "/style.css" = "color-scheme"),
    api = c(
      "/" = "swagger-ui", "/summary" = "\"eruptions\":272",
      "/eruptions?minutes=95" = "\"waiting\":96",
      "/page/" = "Old Faithful", "/page/style.css" = "color-scheme"
    ),
    chat = c("/" = "<title>Chat", "/style.css" = "color-scheme"),
    site = c("/" = "A new site", "/style.css" = "color-scheme")
  )
  for (kind in names(pages)) {
    package <- c(shiny = "shiny", api = "plumber", chat = "rookery", site = "rookery")[[kind]]
    if (!requireNamespace(package, quietly = TRUE)) next
    made <- local_cli("new", kind, kind, dir = dir)
    expect_equal(exit_of(made), 0)
    expect_match(made$tell(), paste("Next: rookery dev", kind))
    checked <- local_cli("check", kind, "--port", "0", dir = dir)
    expect_equal(exit_of(checked), 0)
    it <- local_cli("serve", kind, "-p", "0", dir = dir)
    url <- expect_serving(it)
    for (path in names(pages[[kind]])) {
      expect_match(fetch(paste0(url, path))$text, pages[[kind]][[path]], fixed = TRUE)
    }
    if (kind == "api") expect_equal(fetch(paste0(url, "/eruptions?minutes=x"))$status_code, 400)
    # The screen appears once, without the label of the worker's R process.
    expect_length(gregexpr("rookery [0-9.]+: ", it$tell())[[1]], 1)
    it$signal(15)
    expect_equal(exit_of(it), 0)
  }
})

test_that("an app that fails at its start is reported once, without its callers", {
  skip_if_not_installed("processx")
  dir <- local_app(
    "app.R" = c("connect <- function() stop('the database is away')", "connect()", "1")
  )
  for (workers in c(1, 2)) {
    it <- local_cli(
      "serve", dir, "-p", "0", "--log", "none", "--workers", workers, "--start-retries", "1"
    )
    expect_equal(exit_of(it), 3)
    lines <- sub("^\\[[0-9 ]+\\] ", "", strsplit(it$tell(), "\n")[[1]])
    at <- which(lines == "Error in connect() (app.R:1): the database is away")
    expect_length(at, 1)
    expect_equal(sum(startsWith(lines, "  at connect() at app.R:2")), 1)
    folded <- lines[startsWith(lines, "  (")]
    expect_match(folded, "^  \\([0-9]+ calls of packages are not shown\\)$")
    expect_length(folded, 1)
    expect_no_match(lines, "at rookery::")
    expect_match(
      it$tell(),
      "rookery: The app did not start: Error in connect() (app.R:1): the database is away",
      fixed = TRUE
    )
  }
})

test_that("the screen of serve() with an app whose engine is rookery is shown once it is served", {
  skip_if_not_installed("processx")
  skip_if_not_installed("curl")
  skip_if_not_installed("yaml")
  dir <- local_app(
    "_server.yml" = c("engine: rookery", "app: app.R"),
    app.R = "function(req) list(status = 200L, headers = list(), body = 'served')"
  )
  it <- local_r(sprintf("rookery::serve('%s', port = 0, log = FALSE)", dir))
  expect_serving(it)
  url <- sub(" .*", "", sub(".*Serving on ", "", it$tell()))
  expect_identical(rawToChar(curl::curl_fetch_memory(url)$content), "served")
  expect_length(gregexpr("Serving on", it$tell())[[1]], 1)
})
