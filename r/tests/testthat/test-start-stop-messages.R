# Messages of starting and stopping, for which scripts search.

test_that("a port in use is reported with httpuv's message", {
  server <- local_server(list())
  said <- stderr_of(expect_error(
    startServer("127.0.0.1", server$getPort(), list()), "Failed to create server"
  ))
  expect_match(said, "^createTcpServer: address already in use: 127.0.0.1:[0-9]+ is used by another server")
  path <- withr::local_tempfile()
  pipe <- startPipeServer(path, NULL, list())
  withr::defer(pipe$stop())
  said <- stderr_of(expect_error(startPipeServer(path, NULL, list()), "Failed to create server"))
  expect_match(said, "^createPipeServer: address already in use: ")
})

test_that("the examples of the help pages stop no server of the user", {
  server <- local_server(list())
  for (topic in c("startServer", "stopServer", "service", "interrupt", "runStaticServer")) {
    run <- function() utils::example(topic, "rookery", character.only = TRUE, echo = FALSE, local = TRUE)
    utils::capture.output(suppressMessages(run()))
    expect_true(server$isRunning(), info = topic)
  }
})

test_that("localhost is this machine's own address", {
  server <- startServer("localhost", 0, list())
  withr::defer(server$stop())
  expect_identical(server$getHost(), "localhost")
  expect_error(
    startServer("127.0.0.1", server$getPort(), list(), quiet = TRUE), "already in use"
  )
  expect_gt(randomPort(host = "localhost"), 0)
  expect_error(startServer("example.org", 0, list(), quiet = TRUE), "example.org is not a valid")
})

test_that("an IPv6 address may have a zone", {
  skip_if_not(file.exists("/proc/net/if_inet6"), "no IPv6 here")
  server <- startServer("::1%lo", 0, list())
  withr::defer(server$stop())
  expect_identical(server$getHost(), "::1%lo")
  said <- stderr_of(expect_error(startServer("::1%nowhere", 0, list()), "Failed to create server"))
  expect_match(said, "::1%nowhere is not a valid IPv4 or IPv6 address")
})

test_that("static paths and options are printed with an empty line after them, as in httpuv", {
  expect_identical(
    utils::tail(utils::capture.output(print(staticPath(tempdir()))), 2),
    c("  Exclude path:      FALSE", "")
  )
  expect_identical(
    utils::tail(utils::capture.output(print(staticPathOptions())), 2),
    c("  Exclude path:      FALSE", "")
  )
})

test_that("a server that is not registered is reported with httpuv's message", {
  expect_warning(
    deregisterServer(new.env()),
    "Unable to deregister server: server not found in list of running servers."
  )
})

test_that("after its end, a WebSocket returns FALSE from send() and NULL from close()", {
  ws <- WebSocket$new(NULL, NULL)
  expect_identical(withVisible(ws$send("x")), list(value = FALSE, visible = FALSE))
  expect_identical(withVisible(ws$close()), list(value = NULL, visible = TRUE))
})
