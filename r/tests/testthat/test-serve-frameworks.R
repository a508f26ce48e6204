# plumber2, fiery and ambiorix. Debian does not have them, so these are packages of the same names
# with the functions that serve() uses. `make dependants` serves the real ones.

skip_if_not_installed("processx")
skip_if_not_installed("curl")

# Like fiery: does not accept port 0, serves in a loop with the default of service(), and passes
# further arguments to its handlers.
fiery_lines <- c(
  "Fire <- R6::R6Class('Fire', public = list(",
  "  greeting = 'of fiery', handlers = list(),",
  "  on = function(event, handler) { self$handlers[[event]] <- handler; invisible(self) },",
  "  ignite = function(block = TRUE, showcase = FALSE, ..., silent = FALSE) {",
  "    stopifnot(block, isFALSE(showcase))",
  "    if (!silent) message('Fire started')",
  "    if (length(list(...))) message('told ', names(list(...)))",
  "    server <- httpuv::startServer(self$host, self$port, list(call = function(req) {",
  "      list(status = 200L, headers = list(), body = paste(self$greeting, self$port))",
  "    }))",
  "    on.exit({ httpuv::stopServer(server); message('end handler ran') })",
  "    repeat httpuv::service()",
  "  }",
  "), active = list(",
  "  host = function(value) if (missing(value)) private$HOST else private$HOST <- value,",
  "  port = function(value) {",
  "    if (missing(value)) return(private$PORT)",
  "    stopifnot(value >= 1)",
  "    private$PORT <- value",
  "  }",
  "), private = list(HOST = '127.0.0.1', PORT = 8080))"
)

serves <- function(it, text) {
  url <- expect_serving(it)
  expect_match(fetch(url)$text, text)
  it$signal(15)
  expect_equal(exit_of(it), 0)
  url
}

test_that("objects of fiery, plumber2 and ambiorix are detected", {
  label <- function(class) {
    detect_object(structure(
      list2env(list(start = function() 1, call = function(req) 1)), class = c(class, "R6")
    ))$label
  }
  expect_equal(label("Fire"), "fiery app")
  expect_equal(label(c("Plumber2", "Fire")), "plumber2 API")
  expect_equal(label(c("Ambiorix", "Routing")), "ambiorix app")
})

test_that("a fiery app is served on the given port, as an object and as a file", {
  local_package("fiery", fiery_lines, "Fire", c("httpuv", "R6"))
  made <- "app <- fiery::Fire$new()"
  it <- local_r(c(
    "rookery::use_compat(quiet = TRUE)", made, "rookery::serve(app, port = 0, hello = 1)",
    "cat(app$port)"
  ))
  url <- serves(it, "of fiery")
  expect_match(it$tell(), ": fiery app\nServing on", fixed = TRUE)
  expect_match(it$tell(), "told hello")
  expect_match(it$tell(), "end handler ran")
  expect_no_match(it$tell(), "Fire started")
  # The object is not changed.
  expect_match(it$tell(), "8080$")

  port <- free_port()
  dir <- local_app("api.R" = c("# An API of its own.", made, "app$on('start', function(...) 1)"))
  it <- local_cli("serve", file.path(dir, "api.R"), "--port", port)
  # expect_match() evaluates its argument twice.
  url <- serves(it, paste("of fiery", port))
  expect_match(url, paste0(":", port, "$"))
  expect_match(it$tell(), "the app that api.R ends with", fixed = TRUE)

  refused <- local_cli(
    "serve", file.path(dir, "api.R"), "--host", paste0("unix:", file.path(dir, "s"))
  )
  expect_equal(exit_of(refused), 3)
  expect_match(refused$tell(), "A fiery app.* can only be served on a port")
})

test_that("plumber2: an API, and a folder that names it as its engine", {
  local_package("fiery", fiery_lines, "Fire", c("httpuv", "R6"))
  local_package(
    "plumber2", c(
      "api <- function(settings = NULL) {",
      "  made <- R6::R6Class('Plumber2', inherit = fiery::Fire)$new()",
      "  made$greeting <- paste('of plumber2', basename(as.character(settings)))",
      "  made",
      "}",
      "launch_server <- function(settings, host = NULL, port = NULL, ...) {",
      "  made <- api(settings)",
      "  made$host <- host",
      "  made$port <- port",
      "  made$ignite(block = TRUE, showcase = FALSE, silent = TRUE)",
      "}"
    ), c("api", "launch_server"), c("fiery", "R6")
  )
  it <- local_r(c("rookery::use_compat(quiet = TRUE)", "rookery::serve(plumber2::api(), port = 0)"))
  serves(it, "of plumber2")
  expect_match(it$tell(), ": plumber2 API\nServing on", fixed = TRUE)
  skip_if_not_installed("yaml")
  # plumber2 does not accept port 0, so a port is chosen.
  it <- local_cli(
    "serve", local_app("_server.yml" = c("engine: plumber2", "routes: api")), "--port", "0"
  )
  serves(it, "of plumber2 _server.yml")
  expect_match(it$tell(), "_server.yml (engine plumber2)", fixed = TRUE)
})

# Like ambiorix 2: the environment has precedence over arguments, and start() serves until the end.
ambiorix_lines <- c(
  "Ambiorix <- R6::R6Class('Ambiorix', public = list(",
  "  host = NULL, port = NULL,",
  "  initialize = function(host = getOption('ambiorix.host', '0.0.0.0'), port = NULL) {",
  "    self$host <- host",
  "    self$port <- port",
  "  },",
  "  start = function(port = NULL, host = NULL, open = interactive()) {",
  "    stopifnot(!open)",
  "    port <- as.integer(Sys.getenv('AMBIORIX_PORT', if (is.null(port)) self$port else port))",
  "    stopifnot(port > 0)",
  "    server <- httpuv::startServer(if (is.null(host)) self$host else host, port, list(call = function(req) {",
  "      list(status = 200L, headers = list(), body = paste('of ambiorix', server$getHost()))",
  "    }))",
  "    on.exit(httpuv::stopServer(server))",
  "    while (TRUE) httpuv::service(timeoutMs = Inf)",
  "  }",
  "))"
)

test_that("ambiorix: an object, a file that ends with one, and an app.R that starts it", {
  local_package("ambiorix", ambiorix_lines, "Ambiorix", c("httpuv", "R6"))
  it <- local_r(
    c(
      "rookery::use_compat(quiet = TRUE)", "rookery::serve(ambiorix::Ambiorix$new(), port = 0)",
      "cat('port', Sys.getenv('AMBIORIX_PORT'), 'host', getOption('ambiorix.host', 'none'))"
    ),
    environment = c(AMBIORIX_PORT = "1")
  )
  serves(it, "of ambiorix 127.0.0.1")
  expect_match(it$tell(), ": ambiorix app\nServing on", fixed = TRUE)
  expect_match(it$tell(), "port 1 host none$")

  port <- free_port()
  dir <- local_app("app.R" = c("app <- ambiorix::Ambiorix$new(port = 3000L)", "app$start()"))
  it <- local_cli("serve", dir, "--port", port)
  url <- serves(it, "of ambiorix 127.0.0.1")
  expect_match(url, paste0(":", port, "$"))
  expect_match(it$tell(), "ambiorix app (app.R)", fixed = TRUE)

  it <- local_cli("serve", local_app("app.R" = "ambiorix::Ambiorix$new()"), "--port", "0")
  serves(it, "of ambiorix 127.0.0.1")
})
