# `rookery check`: mistakes in the code of an app that R finds without serving it.

check_of <- function(...) mistakes_of(detect_target(local_app(..., env = parent.frame())))

plain_app <- "function(req) list(status = 200L, headers = list(), body = 'x')"

test_that("syntax errors are found in the files that each kind of app reads when it starts", {
  wrong <- c("x <- 1", "", "y <- 2 3")
  text <- "is not valid R:\nNAME:3:8: unexpected numeric constant\n2: \n3: y <- 2 3\n          ^"
  in_three <- list(ui.R = "fluidPage()", server.R = "function(input, output) {}")
  plumbed <- c("#* @get /", "function() 1")
  for (files in list(
    list("R/module.R" = wrong, app.R = c("library(shiny)", shiny_app)),
    c(list(global.R = wrong), in_three),
    utils::modifyList(in_three, list(Ui.r = wrong, ui.R = NULL)),
    utils::modifyList(in_three, list(server.R = wrong)),
    list(plumber.R = wrong),
    list("lib/helper.R" = wrong, plumber.R = c("source('lib/helper.R')", plumbed)),
    list(api.R = wrong, entrypoint.R = "plumber::plumb('api.R')"),
    list("lib/helper.R" = wrong, app.R = c("source(file.path('lib', 'helper.R'))", plain_app)),
    list("code/app.R" = c("source('other.R')", plain_app), "code/other.R" = wrong,
      "_server.yml" = c("engine: rookery", "app: code/app.R"))
  )) {
    name <- names(Filter(function(lines) identical(lines, wrong), files))
    found <- do.call(check_of, files)$errors
    found <- grep("valid R", found, value = TRUE)
    expect_length(found, 1)
    expect_match(found, sub("NAME", basename(name), text), fixed = TRUE, info = name)
  }
  expect_error(check_of(app.R = wrong), "app.R:3:8: unexpected", class = "rookery_bad_target")
  document <- c("---", "runtime: shiny", "---", "", "```{r, eval = FALSE}", "2 3", "```")
  skip_if_not_installed("yaml")
  expect_false(any(grepl("valid R", check_of(index.Rmd = document)$errors)))
  document <- c(document, "", "```{r}", "2 3", "```")
  expect_match(check_of(index.Rmd = document)$errors, "index.Rmd:10:3: unexpected", all = FALSE)
})

test_that("files that an app does not read when it starts are not checked", {
  expect_length(check_of("R/old.R" = "x y", "notes.R" = "x y", app.R = plain_app)$errors, 0)
  found <- check_of(
    "R/_disable_autoload.R" = "", "R/old.R" = "x y", global.R = "x y",
    app.R = c("library(shiny)", shiny_app)
  )
  expect_false(any(grepl("valid R", found$errors)))
  expect_length(check_of(
    "a.R" = "x y", app.R = c("if (FALSE) source('a.R')", "f <- function() source('a.R')", plain_app)
  )$errors, 0)
})

test_that("packages that are not installed are found, with their lines and the remedy", {
  withr::local_envvar(RENV_PROJECT = "")
  found <- check_of(app.R = c(
    "library(stats)", "library(noSuch1)", "suppressWarnings({", "  library('noSuch2')", "})",
    "x <- list(", "  a = 1,", "  b = noSuch3::f(2)", ")", "require(noSuch4)", plain_app
  ))
  expect_equal(found$errors, c(
    "  app.R:2: library(noSuch1)", "Error (app.R:2): package `noSuch1` is not installed.",
    "  app.R:4:   library('noSuch2')", "Error (app.R:4): package `noSuch2` is not installed.",
    "  app.R:8:   b = noSuch3::f(2)", "Error (app.R:8): package `noSuch3` is not installed.",
    "  app.R:10: require(noSuch4)", "Error (app.R:10): package `noSuch4` is not installed.",
    "To install: install.packages(c(\"noSuch1\", \"noSuch2\", \"noSuch3\", \"noSuch4\"))"
  ))
  withr::local_envvar(RENV_PROJECT = "/x")
  found <- check_of(app.R = c("library(statz)", plain_app))
  expect_match(found$errors[[2]], "`statz` is not installed. Did you mean `stats`?", fixed = TRUE)
  expect_equal(found$errors[[3]], "To install: renv::install(\"statz\")")
})

test_that("packages that an app can do without are not errors", {
  found <- check_of(app.R = c(
    "if (requireNamespace('noSuch1', quietly = TRUE)) noSuch1::f()",
    "if (!require(noSuch2)) message('none')", "ok <- require(noSuch3)", "try(library(noSuch4))",
    "code <- quote(library(noSuch5))", "name <- 'noSuch6'", "library(name, character.only = TRUE)",
    "f <- function() {", "  noSuch1::g()", "  noSuch7::h()", "}", plain_app
  ))
  expect_length(found$errors, 0)
  expect_equal(found$notes, paste0(
    "Note (app.R:", c(3, 10), "): package `noSuch", c(3, 7), "` is not installed."
  ))
  installs <- "if (!requireNamespace('noSuch1')) install.packages('noSuch1')"
  expect_length(check_of(app.R = c(installs, "library(noSuch1)", plain_app))$errors, 0)
  libraries <- ".libPaths('/srv/library')"
  expect_length(check_of(app.R = c(libraries, "library(noSuch1)", plain_app))$errors, 0)
})

test_that("packages in a DESCRIPTION are needed, except for that of the app itself", {
  found <- check_of(
    DESCRIPTION = c(
      "Package: mine", "Version: 0.1", "Depends: R (>= 4.0), stats", "Imports:",
      "    noSuch.one (>= 1.0),", "    utils"
    ),
    app.R = c("library(mine)", plain_app)
  )
  expect_equal(found$errors[1:2], c(
    "  DESCRIPTION:5:     noSuch.one (>= 1.0),",
    "Error (DESCRIPTION:5): package `noSuch.one` is not installed."
  ))
  expect_length(found$errors, 3)
})

test_that("the package that runs an app is named if it is not installed", {
  target <- new_target("ambiorix", NULL, tempdir(), "an ambiorix app")
  skip_if(is_installed("ambiorix"))
  found <- mistakes_of(target)$errors
  expect_match(found, "^rookery: .*install.packages\\(\"ambiorix\"\\)", all = FALSE)
})

# Loads an app without serving it. The time suffices on a machine that is busy.
local_load <- function(dir, port = 0, env = parent.frame()) {
  local_cli("check", dir, "--port", port, "--load", "--start-timeout", "280", env = env)
}

test_that("`rookery check --load` names the line that would keep each kind of app from starting", {
  skip_if_not_installed("processx")
  skip_on_os(c("windows", "mac", "solaris"))
  env <- environment()
  apps <- Filter(can_run, broken_starts)
  running <- lapply(apps, function(app) {
    dir <- do.call(local_app, c(app$files, env = env))
    local_load(dir, env = env)
  })
  for (name in names(apps)) {
    app <- apps[[name]]
    it <- running[[name]]
    expect_equal(exit_of(it, 300), 1, info = name)
    lines <- strsplit(it$tell(), "\n")[[1]]
    expect_true(paste0("  ", app$place, ": ", app$source) %in% lines, info = it$tell())
    expect_match(lines, paste0("^Error.* \\(", app$place, "\\): "), all = FALSE, info = it$tell())
    expect_match(tail(lines, 1), "^rookery: .*cannot be served: the reason is above", info = name)
  }
})

test_that("`rookery check --load` runs the code of an app, and serves nothing", {
  skip_if_not_installed("processx")
  skip_on_os(c("windows", "mac", "solaris"))
  env <- environment()
  say <- function(text) paste0("cat('", text, "\\n')")
  apps <- list(
    "a plain R file" = list(
      files = list(app.R = c(say("LOADED"), plain_app)), says = "LOADED"
    ),
    "a file that starts a server" = list(
      files = list(app.R = c(
        "port <- as.integer(Sys.getenv('PORT'))",
        paste0("rookery::runServer('127.0.0.1', port, ", plain_app, ")"), say("SERVED")
      )),
      says = character()
    ),
    "Shiny in one file" = list(
      needs = "shiny", says = "LOADED",
      files = list(app.R = c(
        "library(shiny)", say("LOADED"),
        paste0("start <- function() ", say("STARTED")),
        sub(")$", ", onStart = start)", shiny_app)
      ))
    ),
    "Shiny in three files" = list(
      needs = "shiny", says = c("GLOBAL", "UI", "SERVER"),
      files = list(
        global.R = c("library(shiny)", say("GLOBAL")), ui.R = c(say("UI"), "fluidPage()"),
        server.R = c(say("SERVER"), "function(input, output) {}")
      )
    ),
    "plumber" = list(
      needs = "plumber", says = c("FILE", "ROUTER"),
      files = list(plumber.R = c(
        say("FILE"), "#* @get /", "function() 1", "#* @plumber",
        paste0("function(pr) {", say("ROUTER"), "; pr }")
      ))
    ),
    "a _server.yml" = list(
      says = "LOADED",
      files = list(
        "_server.yml" = c("engine: rookery", "app: app.R"), app.R = c(say("LOADED"), plain_app)
      )
    )
  )
  apps <- Filter(can_run, apps)
  # The port is in use, so that a server that listens would fail.
  taken <- startServer("127.0.0.1", 0, list())
  withr::defer(taken$stop())
  running <- lapply(apps, function(app) {
    dir <- do.call(local_app, c(app$files, env = env))
    local_load(dir, taken$getPort(), env = env)
  })
  for (name in names(apps)) {
    it <- running[[name]]
    expect_equal(exit_of(it, 300), 0, info = paste(name, it$tell()))
    lines <- strsplit(it$tell(), "\n")[[1]]
    expect_equal(grep("^[A-Z]+$", lines, value = TRUE), apps[[name]]$says, info = it$tell())
    expect_match(lines, "can be served: ", all = FALSE, info = name)
  }
})

test_that("the line at which an app was is named if the program interrupts its loading", {
  skip_if_not_installed("processx")
  skip_on_os(c("windows", "mac", "solaris"))
  dir <- local_app(app.R = c(
    "wait <- function() {", "  tools::pskill(Sys.getpid(), tools::SIGINT)", "  Sys.sleep(600)", "}",
    "wait()", plain_app
  ))
  it <- local_load(dir)
  expect_equal(exit_of(it, 300), 1)
  expect_match(it$tell(), "  app.R:3:   Sys.sleep(600)\n", fixed = TRUE)
  expect_match(it$tell(), "(app.R:3): the time for loading the app is over\n", fixed = TRUE)
})

test_that("a failed start shows the parser's error last, and all calls with --verbose", {
  skip_if_not_installed("processx")
  skip_on_os(c("windows", "mac", "solaris"))
  serve <- function(..., words = character()) {
    dir <- local_app(..., env = parent.frame())
    it <- local_cli("serve", dir, "-p", "0", "--log=none", "--start-retries", "0", words)
    expect_equal(exit_of(it, 300), 3)
    grep("^rookery: ", strsplit(it$tell(), "\n")[[1]], invert = TRUE, value = TRUE)
  }
  lines <- serve(app.R = c("f <- function() stop('wrong')", "f()"), words = "--verbose")
  expect_match(lines, "^  at rookery::run_script", all = FALSE)
  expect_no_match(lines, "calls of packages are not shown")
  expect_equal(tail(lines, 1), "Error in f() (app.R:1): wrong")
  skip_if_not_installed("shiny")
  lines <- serve("R/module.R" = c("x <- 1", "y <- 2 3"), app.R = c("library(shiny)", shiny_app))
  expect_match(tail(lines, 5)[[1]], "^Error: `.*/R/module.R` is not valid R:$")
  expect_equal(tail(lines, 4)[1:3], c(
    "module.R:2:8: unexpected numeric constant", "1: x <- 1", "2: y <- 2 3"
  ))
})
