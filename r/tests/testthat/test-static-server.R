# The messages are those in httpuv's documentation and dependent packages.

local_site <- function(env = parent.frame()) {
  dir <- withr::local_tempdir(.local_envir = env)
  writeLines("<h1>Hello</h1>", file.path(dir, "index.html"))
  dir
}

# Returns the messages of `code`; its value is assigned to `server` in the caller.
messages_of <- function(code) {
  said <- character(0)
  withCallingHandlers(code, message = function(message) {
    said <<- c(said, conditionMessage(message))
    invokeRestart("muffleMessage")
  })
  said
}

test_that("in the background, the server is returned and its address printed", {
  dir <- local_site()
  port <- free_port()
  said <- messages_of(
    server <- expect_invisible(runStaticServer(dir, port = port, background = TRUE, browse = FALSE))
  )
  withr::defer(server$stop())
  expect_identical(
    said, c(sprintf("Serving: '%s'\n", dir), sprintf("View at: http://127.0.0.1:%d\n", port))
  )
  expect_true(server$isRunning())
  expect_identical(server$getPort(), port)
  expect_identical(server$getStaticPaths()[["/"]]$path, normalizePath(dir))
})

test_that("options apply to the folder", {
  server <- suppressMessages(
    runStaticServer(
      local_site(), indexhtml = FALSE, headers = list(a = "b"), background = TRUE, browse = FALSE
    )
  )
  withr::defer(server$stop())
  options <- server$getStaticPaths()[["/"]]$options
  expect_false(options$indexhtml)
  expect_identical(options$headers, c(a = "b"))
})

test_that("in the foreground, it serves until it is interrupted", {
  later::later(interrupt, 0.05)
  said <- messages_of(expect_true(runStaticServer(local_site(), browse = FALSE)))
  expect_identical(said[[3]], "Press Esc or Ctrl + C to stop the server\n")
  port <- as.integer(sub(".*:(\\d+)\n", "\\1", said[[2]]))
  expect_true(is_port_available(port))
})

test_that("the default port is 7446, or another one if that is in use", {
  skip_if_not(is_port_available(7446))
  site <- local_site()
  first <- suppressMessages(runStaticServer(site, background = TRUE, browse = FALSE))
  withr::defer(first$stop())
  second <- suppressMessages(runStaticServer(site, background = TRUE, browse = FALSE))
  withr::defer(second$stop())
  expect_identical(first$getPort(), 7446L)
  expect_false(second$getPort() == 7446L)
})

test_that("a port in use is an error with a specific class, and leaves no server", {
  taken <- startServer("127.0.0.1", 0, list())
  withr::defer(taken$stop())
  before <- length(listServers())
  error <- tryCatch(
    runStaticServer(local_site(), port = taken$getPort(), browse = FALSE), error = identity
  )
  expect_s3_class(error, "httpuv_unavailable_port")
  expect_identical(
    conditionMessage(error),
    paste("Port", taken$getPort(), "is not available on host 127.0.0.1")
  )
  expect_identical(length(listServers()), before)
})

test_that("a port must be one whole number", {
  site <- local_site()
  for (port in list("8080", 8080.5, c(8080, 8081), 0, -1, 65536, NA_real_)) {
    expect_error(runStaticServer(site, port = port, background = TRUE, browse = FALSE), "port")
  }
})

test_that("a browser that cannot be opened is reported without an error", {
  withr::local_options(browser = function(url) stop("no display"))
  said <- messages_of(server <- runStaticServer(local_site(), background = TRUE, browse = TRUE))
  withr::defer(server$stop())
  expect_match(said[[3]], "Cannot open a browser: no display", fixed = TRUE)
})

test_that("a missing folder is an error, and leaves no server", {
  before <- length(listServers())
  expect_error(
    runStaticServer(file.path(tempdir(), "missing"), browse = FALSE), "No such file or directory"
  )
  expect_identical(length(listServers()), before)
})
