# Errors of apps name the app's own line (helper-broken-apps.R).

skip_if_not_installed("processx")
skip_on_os(c("windows", "mac", "solaris"))

test_that("the terminal names the line of the app that causes a failed start, as the last reason", {
  env <- environment()
  apps <- Filter(can_run, broken_starts)
  running <- lapply(apps, function(app) {
    dir <- do.call(local_app, c(app$files, env = env))
    local_cli("serve", dir, "-p", "0", "--log=none", "--start-retries", "0", env = env)
  })
  for (name in names(apps)) {
    app <- apps[[name]]
    it <- running[[name]]
    expect_equal(exit_of(it, 300), 3, info = name)
    lines <- strsplit(it$tell(), "\n")[[1]]
    expect_lte(length(lines), 24, label = name)
    # Only messages of the program, and knitr's progress, follow.
    reason <- tail(grep("^rookery: |  [|][ .]|^ *$", lines, invert = TRUE, value = TRUE), 1)
    expect_match(reason, "^Error", info = name)
    expect_match(reason, paste0("(", app$place, "): "), fixed = TRUE, info = name)
    expect_true(paste0("  ", app$place, ": ", app$source) %in% lines, info = name)
    # The frames of packages are folded.
    expect_length(grep("  at (shiny|base|rookery)::", lines), 0)
    expect_length(grep("^  \\([0-9]+ calls of packages are not shown\\)$", lines), 1)
  }
})

test_that("the page of a failed start opens the line of the app that has failed", {
  skip_if_not_installed("shiny")
  withr::local_options(keep.source = TRUE)
  for (name in c(
    "a missing package in app.R", "an argument of a package's function in app.R", "a module in R/"
  )) {
    app <- broken_starts[[name]]
    withr::with_dir(do.call(local_app, app$files), {
      html <- NULL
      try(silent = TRUE, withCallingHandlers(
        shiny::as.shiny.appobj("."),
        error = function(error) {
          # Called directly in the handler, because trace_of() counts frames.
          trace <- trace_of(error)
          html <<- error_html(list(
            condition = error, trace = trace, req = NULL, request_id = "", route = "",
            label = "The app could not be started", stage = "start"
          ))
        }
      ))
    })
    opened <- sub("</details>.*", "", sub(".*?<details open>", "", html))
    line <- sub(".*:", "", app$place)
    expect_match(
      opened, paste0("<b>", line, " ", html_text(app$source), "</b>"), fixed = TRUE, info = name
    )
  }
})

test_that("errors while Shiny runs are reported once, with the line, the name and the session", {
  skip_if_not_installed("curl")
  env <- environment()
  apps <- Filter(can_run, broken_runs)
  running <- lapply(apps, function(app) {
    dir <- do.call(local_app, c(app$files, env = env))
    local_r(embedded_call(dir, file.path(dir, "admin.sock")), dir, env)
  })
  for (name in names(apps)) {
    app <- apps[[name]]
    it <- running[[name]]
    use_shiny_app(expect_serving(it))
    expected <- paste0("    ", app$place, ": ", app$source)
    expect_true(
      wait_until(function() grepl(expected, it$tell(), fixed = TRUE), 30),
      label = paste(name, it$tell())
    )
    lines <- strsplit(it$tell(), "\n")[[1]]
    reports <- grep("^rookery: (?!Shiny)", lines, perl = TRUE, value = TRUE)
    expect_length(reports, 1)
    expect_match(reports, app$label, fixed = TRUE, info = name)
    if (name != "the ui function") expect_match(reports, "session [0-9a-f]{8}\\]$", info = name)
    # Shiny has printed nothing, and the calls of packages are folded.
    expect_length(grep("^Warning: Error in|^ +[0-9]+: ", lines), 0)
    expect_length(grep("^    \\([0-9]+ calls of packages are not shown\\)$", lines), 1)
    it$process$kill()
  }
})

test_that("with httpuv's error texts, Shiny prints its errors itself", {
  skip_if_not_installed("shiny")
  withr::local_options(rookery.error_detail = "httpuv")
  fail <- function(message) try(shiny::withLogErrors(stop(message)), silent = TRUE)
  expect_warning(
    stderr_of(with_shiny_errors(fail("as before"))), "Error in .*: as before"
  )
  withr::local_options(rookery.error_detail = "none")
  .globals$error_reports <- NULL
  said <- stderr_of(with_shiny_errors(fail("as rookery does")))
  expect_match(said, "^rookery: .*: as rookery does", all = FALSE)
  expect_length(grep("^rookery: ", said), 1)
  expect_null(.globals$shiny)
})

test_that("warnings of the app are not taken for errors of Shiny", {
  skip_if_not_installed("shiny")
  withr::local_options(rookery.error_detail = "none")
  expect_warning(with_shiny_errors(warning("one of the app", call. = FALSE)), "one of the app")
  expect_equal(with_shiny_errors(suppressWarnings({
    warning("muffled", call. = FALSE)
    1
  })), 1)
})

test_that("the lines that Shiny puts before those of a file do not count", {
  path <- withr::local_tempfile(lines = c("x <- 1", "f(", "  x", ")"), fileext = ".R")
  lines <- c("..stacktraceon..({", sprintf('#line 1 "%s"', path), readLines(path), "})")
  source <- srcfilecopy(path, lines, isFile = TRUE)
  block <- parse(text = lines, keep.source = FALSE, srcfile = source)[[1]][[2]]
  call <- structure(block[[3]], srcref = attr(block, "srcref")[[3]])
  place <- place_of(call)
  expect_equal(place$line, 2)
  expect_equal(source_lines(place$source, 2)[["2"]], "f(")
  named <- with_name_line(list(call), simpleError("object 'x' not found"))[[1]]
  expect_equal(place_of(named)$line, 3)
  expect_equal(source_lines(place_of(named)$source, 3)[["3"]], "  x")
})
