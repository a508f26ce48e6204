# What Shiny computes outside of handlers: the functions on its stack, and profiles by output and
# observer.

skip_if_not_installed("processx")
skip_if_not_installed("curl")
skip_if_not_installed("shiny")
skip_on_os(c("mac", "solaris"))

# An app of which an output and an observer compute for a while.
computing_app <- c(
  "library(shiny)",
  "compute <- function(seconds) {",
  "  until <- Sys.time() + seconds",
  "  while (Sys.time() < until) sum(sort(runif(1e4)))",
  "}",
  "shinyApp(fluidPage(actionButton('go', 'Go'), textOutput('out')), function(input, output) {",
  "  total <- reactive({ compute(3); input$go })",
  "  output$out <- renderText({ total() })",
  "  observeEvent(input$go, compute(0.3), ignoreNULL = FALSE, priority = 1)",
  "})"
)

test_that("the slow log and a profile name the outputs and observers that compute", {
  dir <- normalizePath(withr::local_tempdir())
  writeLines(computing_app, file.path(dir, "app.R"))
  it <- local_cli("serve", dir, "--port", "0", "--log=none", "--slow-log", "1s")
  expect_serving(it)
  url <- sub(" .*", "", sub(".*Serving on ", "", it$tell()))
  file <- withr::local_tempfile()
  profile <- local_cli("profile", dir, "--output", file, "--seconds", "60")
  expect_true(wait_until(function() grepl("profiling for 60 s", profile$tell())))
  use_shiny_app(url)
  expect_true(wait_until(function() grepl("no longer busy", it$tell())))
  expect_match(it$tell(), "busy for [0-9.]+ s with an event of a WebSocket(: it computes)?; r=\"")
  expect_match(
    it$tell(), "compute < <reactive:total> < <observer:output$out>, app.R#4", fixed = TRUE
  )
  profile$signal(tools::SIGINT)
  expect_equal(exit_of(profile), 0)
  expect_match(profile$tell(), "%  output$out\n", fixed = TRUE)
  expect_match(profile$tell(), "%  observeEvent(input$go)\n", fixed = TRUE)
  shown <- regmatches(profile$tell(), regexpr("[0-9.]+ %  output[$]out", profile$tell()))
  expect_gt(as.numeric(sub(" .*", "", shown)), 30)
  # What Shiny computes after a message counts as time of the message.
  status <- status_of(dir)
  messages <- status$routes[status$routes$route == "messages of WebSockets", ]
  expect_gt(messages$r$sum, 3)
  # The session was closed after its last message.
  expect_equal(status$shiny$idle + status$shiny$computing, 0)
  expect_gte(status$shiny$flushes, 1)
  expect_gt(status$shiny$page_bytes, 100)
  expect_equal(status$outputs$output, "out")
  expect_gt(status$outputs$r$sum, 2.9)
  expect_lt(status$outputs$r$sum, messages$r$sum)
})

# An app of which an observer, an output, a promise or a callback of package later computes for a
# minute, depending on the inputs. The outputs show the inputs.
endless_app <- c(
  "library(shiny)",
  "compute <- function(seconds) {",
  "  until <- Sys.time() + seconds",
  "  while (Sys.time() < until) NULL",
  "}",
  "shinyApp(fluidPage(textOutput('out'), textOutput('slow')), function(input, output) {",
  "  observeEvent(input$go, compute(60), priority = 1)",
  "  observeEvent(input$p, promises::then(promises::promise_resolve(1), function(v) compute(60)))",
  "  observeEvent(input$l, later::later(function() compute(60)))",
  "  output$out <- renderText(paste0('clicks: ', input$go))",
  "  output$slow <- renderText({",
  "    n <- if (is.null(input$n)) 0 else input$n",
  "    if (n == 1) compute(60)",
  "    paste0('n: ', n)",
  "  })",
  "})"
)

test_that("the status has the sessions, and what Shiny computes for each of them", {
  dir <- normalizePath(withr::local_tempdir())
  writeLines(endless_app, file.path(dir, "app.R"))
  it <- local_cli("serve", dir, "--port", "0", "--log=none")
  expect_serving(it)
  url <- sub(" .*", "", sub(".*Serving on ", "", it$tell()))
  shiny <- function() status_of(dir)$shiny
  computing <- local_shiny_session(url)
  waiting <- local_shiny_session(url)
  for (session in list(computing, waiting)) {
    expect_true(wait_until(function() session$has("n: 0"), 30))
  }
  expect_equal(unlist(shiny()[c("idle", "computing", "expected")], use.names = FALSE), c(2, 0, 0))
  id <- function(session) {
    text <- rawToChar(session$read())
    substr(sub(".*\"sessionId\":\"", "", text, useBytes = TRUE), 1, 8)
  }
  computing$update('"go:shiny.action":1')
  seen <- NULL
  expect_true(wait_until(function() {
    seen <<- shiny()
    seen$computing == 1 && isTRUE(grepl("observer", seen$sessions$computes[[1]]))
  }, 30))
  # The one that computes comes first, with the functions on its stack.
  expect_equal(seen$sessions$id, c(id(computing), id(waiting)))
  expect_match(seen$sessions$computes[[1]], "compute < .*<observer:observeEvent.input.go.>, app.R#")
  expect_equal(seen$sessions$computes[[2]], NA_character_)
  expect_gt(seen$sessions$computes_ms[[1]], 200)
  expect_gt(seen$sessions$page_bytes[[2]], 100)
})

test_that("the worker timeout interrupts observers and outputs, and the session goes on", {
  dir <- normalizePath(withr::local_tempdir())
  writeLines(endless_app, file.path(dir, "app.R"))
  it <- local_cli(
    "serve", dir, "--port", "0", "--log=none", "--worker-timeout", "1s", "--interrupt-requests"
  )
  expect_serving(it)
  session <- local_shiny_session(sub(" .*", "", sub(".*Serving on ", "", it$tell())))
  got <- function(text) wait_until(function() session$has(text), 30)
  expect_true(got("clicks: 0") && got("n: 0"))
  session$update('"go:shiny.action":1')
  # The rest of the flush goes on after the observer.
  expect_true(got("clicks: 1"))
  expect_match(
    it$tell(),
    "interrupting it; r=\"[^\"]*compute < observe < <observer:observeEvent.input.go.>, app.R#[47], session [0-9a-f]{8}\""
  )
  expect_match(it$tell(), "observer observeEvent.input.go.: interrupted")
  session$forget()
  session$update('"n":1')
  expect_true(wait_until(function() grepl("output.slow: interrupted", it$tell()), 30))
  session$update('"n":2')
  expect_true(got("n: 2"))
  # The output has kept its value, and the page has got no error.
  expect_false(session$has("n: 1") || session$has("interrupted"))
  times <- function(text) lengths(regmatches(it$tell(), gregexpr(text, it$tell())))
  expect_equal(times("interrupting it"), 2)
  for (input in c("p", "l")) {
    before <- times("interrupting it")
    session$update(paste0('"', input, '":1'))
    expect_true(wait_until(function() times("interrupting it") > before, 30))
    session$update(paste0('"n":"after ', input, '"'))
    expect_true(got(paste0("n: after ", input)))
  }
  expect_match(it$tell(), "a promise: interrupted")
  expect_match(it$tell(), "has finished the task that took too long")
  expect_no_match(it$tell(), "ending it|has stopped its server")
})

test_that("an observer that begins after the interrupt does not fail in place of the one before", {
  env <- new.env()
  assign("<observer:output$a>", function(candidate) {
    list(
      interrupted_observer(candidate, TRUE), interrupted_observer(environment(), TRUE),
      environment()
    )
  }, env)
  found <- eval(as.call(list(as.name("<observer:output$a>"), NULL)), env)
  # It becomes the one that fails if it still runs a moment later.
  expect_identical(found[[1]], found[[3]])
  expect_s3_class(found[[2]], c("shiny.output.cancel", "error"))
  expect_null(interrupted_observer(found[[3]], TRUE))
})
