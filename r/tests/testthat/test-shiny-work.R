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
  asked <- local_cli("status", dir, "--json")
  exit_of(asked)
  status <- jsonlite::fromJSON(asked$tell())
  messages <- status$routes[status$routes$route == "messages of WebSockets", ]
  expect_gt(messages$r$sum, 3)
  expect_equal(status$outputs$output, "out")
  expect_gt(status$outputs$r$sum, 2.9)
  expect_lt(status$outputs$r$sum, messages$r$sum)
})
