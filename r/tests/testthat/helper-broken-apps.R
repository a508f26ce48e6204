# Apps with one mistake each. `mark` is part of the line that causes the error, and `at` names the
# file of that line.

broken_app <- function(at, mark, ..., needs = character(), target = ".") {
  files <- list(...)
  lines <- files[[at]]
  line <- grep(mark, lines, fixed = TRUE)[[1]]
  list(
    files = files, needs = needs, target = target,
    place = paste0(basename(at), ":", line), source = lines[[line]]
  )
}

shiny_app <- "shinyApp(fluidPage(textOutput('out')), function(input, output) {})"

# Apps that cannot be started.
broken_starts <- list(
  "a missing package in app.R" = broken_app(
    "app.R", "plotlyy",
    app.R = c("library(shiny)", "x <- 1", "library(plotlyy)", shiny_app), needs = "shiny"
  ),
  "an argument of a package's function in app.R" = broken_app(
    "app.R", "no title",
    app.R = c(
      "library(shiny)", "ui <- fluidPage(", "  h1('x'),", "  h2(stop('no title'))", ")", shiny_app
    ),
    needs = "shiny"
  ),
  "a variable that does not exist in ui.R" = broken_app(
    "ui.R", "choises",
    ui.R = c(
      "library(shiny)", "choices <- 1:3", "", "fluidPage(", "  selectInput(",
      "    'x', 'X', choises", "  )", ")"
    ),
    server.R = "function(input, output) {}", needs = "shiny"
  ),
  "a function of global.R" = broken_app(
    "global.R", "database is away",
    global.R = c(
      "library(shiny)", "connect <- function(to) {", "  stop('the database is away')", "}", "",
      "con <- connect('db')"
    ),
    ui.R = "fluidPage()", server.R = "function(input, output) {}", needs = "shiny"
  ),
  "a module in R/" = broken_app(
    "R/module.R", "noSuchFunction",
    app.R = c("library(shiny)", shiny_app),
    "R/module.R" = c("moduleUI <- function(id) div(id)", "", "setup <- noSuchFunction(1)"),
    needs = "shiny"
  ),
  "an app as a package" = broken_app(
    "R/run.R", "no configuration",
    DESCRIPTION = c("Package: broken", "Version: 0.1", "Imports: shiny"),
    NAMESPACE = c("export(run)", "import(shiny)"),
    "R/run.R" = c(
      "run <- function() {", "  config <- read_config()", "  shinyApp(fluidPage(), config)", "}",
      "read_config <- function() {", "  stop('no configuration')", "}"
    ),
    app.R = c("pkgload::load_all('.', quiet = TRUE)", "run()"), needs = c("shiny", "pkgload")
  ),
  "a plumber file" = broken_app(
    "plumber.R", "plotlyy",
    plumber.R = c("x <- 1", "", "library(plotlyy)", "", "#* @get /", "function() x"),
    needs = "plumber"
  ),
  "a plain R file" = broken_app(
    "app.R", "wrong",
    app.R = c(
      "x <- 1", "check <- function(x) {", "  if (x == 1) stop('wrong')", "}", "check(x)",
      "function(req) list(status = 200L, headers = list(), body = 'x')"
    )
  ),
  "a document" = broken_app(
    "index.Rmd", "no_such_data",
    index.Rmd = c(
      "---", "title: x", "runtime: shiny_prerendered", "output: html_document", "---", "", "Text",
      "", "```{r}", "library(stats)", "summary(no_such_data)", "```"
    ),
    needs = c("shiny", "rmarkdown")
  )
)

# Shiny apps that fail while they run. `label` is the name of what fails.
broken_run <- function(at, mark, label, ...) {
  c(broken_app(at, mark, ..., needs = "shiny"), list(label = label))
}

# Returns the lines of an app whose `server` has a body.
shiny_lines <- function(body, ui = "fluidPage(textOutput('out'), downloadButton('dl'))") {
  c(
    "library(shiny)", "ui <-", paste0("  ", ui), "server <- function(input, output, session) {",
    paste0("  ", body), "}", "shinyApp(ui, server)"
  )
}

broken_runs <- list(
  "an output" = broken_run(
    "app.R", "no mean", "output$out",
    app.R = c(
      "mean_of <- function(x) {", "  stop('no mean')", "}",
      shiny_lines(c("output$out <- renderText({", "  x <- 1", "  mean_of(x)", "})"))
    )
  ),
  "an output in three files" = broken_run(
    "server.R", "no_such_data", "output$out",
    ui.R = "fluidPage(textOutput('out'))", global.R = "library(shiny)",
    server.R = c(
      "function(input, output) {", "  output$out <- renderText({", "    paste(", "      'rows:',",
      "      nrow(no_such_data)", "    )", "  })", "}"
    )
  ),
  "an observer" = broken_run(
    "app.R", "cannot save", "observer observeEvent(input$go)",
    app.R = shiny_lines(c("observeEvent(input$go, {", "  x <- 1", "  stop('cannot save')", "})"))
  ),
  "the server function" = broken_run(
    "app.R", "no server", "server", app.R = shiny_lines("stop('no server')")
  ),
  "the ui function" = broken_run(
    "app.R", "no page", "ui",
    app.R = shiny_lines("", c("function(req) {", "  stop('no page')", "}"))
  ),
  "a module" = broken_run(
    "R/counter.R", "no count", "output$m-out",
    "R/counter.R" = c(
      "counterServer <- function(id) {", "  moduleServer(id, function(input, output, session) {",
      "    output$out <- renderText(stop('no count'))", "  })", "}"
    ),
    app.R = shiny_lines("counterServer('m')", "fluidPage(textOutput(NS('m')('out')))")
  ),
  "a promise" = broken_run(
    "app.R", "too late", "output$out",
    app.R = shiny_lines(c(
      "output$out <- renderText({",
      "  wait <- promises::promise(function(resolve, reject) later::later(~resolve(1), 0.05))",
      "  promises::then(wait, function(value) {", "    stop('too late')", "  })", "})"
    ))
  ),
  "a download" = broken_run(
    "app.R", "no file", "download output$dl",
    app.R = shiny_lines(c(
      "output$dl <- downloadHandler('x.txt', function(file) {", "  stop('no file')", "})"
    ))
  ),
  "the end of a session" = broken_run(
    "app.R", "no goodbye", "end of a session",
    app.R = shiny_lines(c("session$onSessionEnded(function() {", "  stop('no goodbye')", "})"))
  )
)

# Opens a session of a Shiny app as its page does, with some outputs and a button. Returns functions:
# `update` changes inputs, given as JSON; `has` returns whether the page has got a text, `read` all
# bytes that it has got, and `forget` drops these.
local_shiny_session <- function(url, env = parent.frame()) {
  port <- as.integer(sub(".*:([0-9]+)/?$", "\\1", url))
  client <- new.env()
  client$socket <- socketConnection("127.0.0.1", port, open = "r+b", blocking = FALSE)
  withr::defer(close(client$socket), envir = env)
  client$read <- raw(0)
  outputs <- c("out", "m-out", "dl", "slow")
  visible <- paste0('".clientdata_output_', outputs, '_hidden":false', collapse = ",")
  send(
    client,
    request("/websocket/", headers = c(
      "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    )),
    frame(paste0('{"method":"init","data":{"go:shiny.action":0,', visible, "}}"))
  )
  list(
    update = function(inputs) {
      send(client, frame(paste0('{"method":"update","data":{', inputs, "}}")))
    },
    has = function(text) {
      fill(client)
      find_raw(client$read, text) > 0
    },
    read = function() client$read[client$read != 0],
    forget = function() client$read <- raw(0)
  )
}

# Does what a browser does with an app: opens the page and a session, presses a button, downloads a
# file and leaves.
use_shiny_app <- function(url) {
  try(fetch(url), silent = TRUE)
  session <- local_shiny_session(url)
  session$update('"go:shiny.action":1')
  has <- session$has
  # Either the values of the outputs or the end of the session.
  wait_until(function() has('"values":') || has("Error executing"), 30)
  text <- rawToChar(session$read())
  link <- regmatches(text, regexpr("session/[0-9a-f]+/download/dl[^\"]*", text, useBytes = TRUE))
  if (length(link) > 0) try(fetch(paste0(sub("/?$", "/", url), link)), silent = TRUE)
  # The promise, and the second message, may still be running.
  wait_until(function() has("\"busy\":\"idle\"") && has("never"), 1)
}

# Returns whether the packages that an app needs are installed.
can_run <- function(app) {
  has_pandoc <- !"rmarkdown" %in% app$needs ||
    (requireNamespace("rmarkdown", quietly = TRUE) && rmarkdown::pandoc_available())
  has_pandoc && all(vapply(app$needs, requireNamespace, NA, quietly = TRUE))
}
