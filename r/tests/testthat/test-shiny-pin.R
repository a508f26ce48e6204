# A worker serves the version of a Shiny app that it read at its start, whatever happens to the
# files.

skip_if_not_installed("processx")
skip_if_not_installed("curl")
skip_if_not_installed("shiny")
skip_on_os(c("mac", "solaris"))

local_pinned <- function(dir, ..., env = parent.frame()) {
  it <- local_cli("serve", dir, "--port", "0", "--log=none", "--workers", "2", ..., env = env)
  it$url <- expect_serving(it)
  # Both workers have read the app.
  stopifnot(wait_until(
    function() lengths(regmatches(it$tell(), gregexpr(" is ready, ", it$tell()))) == 2
  ))
  it$page <- function() {
    answer <- fetch(it$url)
    paste(answer$status_code, answer$text)
  }
  it
}

# With a later time, because Shiny compares times.
change <- function(dir, file, lines) {
  path <- file.path(dir, file)
  writeLines(lines, path)
  Sys.setFileTime(path, Sys.time() + 60)
}

one_page <- function(text) {
  paste0("shiny::shinyApp(shiny::fluidPage('", text, "', helper), function(input, output) {})")
}

test_that("an edit of app.R affects running workers only through a successful reload", {
  dir <- local_app("app.R" = one_page("first"), "R/helper.R" = "helper <- 'old helper'")
  it <- local_pinned(dir)
  expect_match(it$page(), "^200 .*first.*old helper")
  change(dir, "app.R", one_page("second"))
  expect_match(it$page(), "^200 .*first")
  change(dir, "app.R", "shiny::fluidPage(")
  expect_match(it$page(), "^200 .*first")
  it$signal(tools::SIGHUP)
  expect_true(wait_until(function() grepl("the reload has failed", it$tell())))
  expect_match(it$page(), "^200 .*first")
  change(dir, "app.R", one_page("third"))
  change(dir, "R/helper.R", "helper <- 'new helper'")
  expect_match(it$page(), "^200 .*first.*old helper")
  it$signal(tools::SIGHUP)
  expect_true(wait_until(function() grepl("^200 .*third.*new helper", it$page())))
})

test_that("an app with ui.R, server.R and global.R is pinned, and a reload finds a broken server.R", {
  dir <- local_app(
    "ui.R" = "shiny::fluidPage('first', shared)", "server.R" = "function(input, output) {}",
    "global.R" = "shared <- 'old global'",
    "R/helper.R" = "helper <- 1"
  )
  it <- local_pinned(dir)
  expect_match(it$page(), "^200 .*first.*old global")
  change(dir, "ui.R", "shiny::fluidPage('second', no_such_thing)")
  change(dir, "global.R", "stop('broken')")
  expect_match(it$page(), "^200 .*first")
  change(dir, "ui.R", "shiny::fluidPage('second', shared)")
  change(dir, "global.R", "shared <- 'new global'")
  change(dir, "server.R", "function(input, output {}")
  it$signal(tools::SIGHUP)
  expect_true(wait_until(function() grepl("the reload has failed", it$tell())))
  expect_match(it$page(), "^200 .*first")
  change(dir, "server.R", "function(input, output) {}")
  it$signal(tools::SIGHUP)
  expect_true(wait_until(function() grepl("^200 .*second.*new global", it$page())))
})

test_that("of an object, or with Shiny's own reloading, an edit is used at once", {
  dir <- local_app("app.R" = one_page("first"), "R/helper.R" = "helper <- 'x'")
  one <- local_r(sprintf("rookery::serve(shiny::shinyAppDir('%s'), port = 0, log = FALSE)", dir))
  url <- expect_serving(one)
  expect_match(fetch(url)$text, "first")
  change(dir, "app.R", one_page("second"))
  expect_match(fetch(url)$text, "second")
  other <- local_app(
    "app.R" = one_page("first"), "R/helper.R" = "helper <- 'x'",
    ".Rprofile" = "options(shiny.autoreload = TRUE)"
  )
  it <- local_pinned(other)
  expect_match(it$page(), "first")
  change(other, "app.R", one_page("second"))
  expect_match(it$page(), "second")
})

test_that("an unknown version of Shiny is reported, and the app is served", {
  expect_false(pin_sources(NULL))
  expect_false(pin_sources(function() NULL))
  beside <- new.env()
  count <- 0
  beside$appObj <- function() {
    count <<- count + 1
    count
  }
  start <- function() NULL
  environment(start) <- beside
  expect_true(pin_sources(start))
  expect_equal(c(beside$appObj(), beside$appObj("x"), count), c(1, 1, 1))
})

test_that("an app that app.R returns from another folder or file is pinned as well", {
  skip_if_not_installed("shiny")
  page <- function(app) {
    as.character(app$httpHandler(list2env(list(PATH_INFO = "/", REQUEST_METHOD = "GET")))$content)
  }
  for (code in c("shiny::shinyAppDir('inner')", "shiny::shinyAppFile('inner/app.R')")) {
    dir <- local_app(
      "app.R" = code, "inner/app.R" = one_page("first"), "inner/R/helper.R" = "helper <- 'old'"
    )
    app <- shiny::shinyAppDir(dir)
    app$onStart()
    expect_true(pin_sources(app$onStart))
    change(dir, "inner/app.R", one_page("second"))
    change(dir, "app.R", one_page("third"))
    expect_match(page(app), "first")
    app$onStop()
  }
})

test_that("an app whose files cannot be pinned is reported", {
  app <- shiny::shinyApp("a page", function(input, output) {})
  expect_true(pin_inner(app))
  read <- app$serverFuncSource
  app$serverFuncSource <- function(...) read(...)
  environment(app$serverFuncSource) <- new.env(parent = globalenv())
  expect_false(pin_inner(app))
})
