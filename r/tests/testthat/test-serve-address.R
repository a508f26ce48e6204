test_that("a host is an address", {
  expect_equal(
    serve_address("127.0.0.1", 8000), list(host = "127.0.0.1", port = 8000L, socket = NULL)
  )
  expect_equal(serve_address("::", 0)$host, "::")
  expect_identical(serve_address("localhost", 1)$host, "127.0.0.1")
  expect_error(
    serve_address("example.org", 1), "or an IP address.*\"127.0.0.1\"",
    class = "rookery_bad_address"
  )
  expect_error(
    serve_address("example.org", 1), "not \"example.org\"", class = "rookery_bad_address"
  )
  expect_error(serve_address(c("a", "b"), 1), "must be localhost", class = "rookery_bad_address")
  expect_error(serve_address(NULL, 1), "must be localhost", class = "rookery_bad_address")
})

test_that("a port is a whole number in range", {
  for (port in list("http", -1, 65536, 1.5, NA, NULL, c(1, 2), Inf)) {
    expect_error(serve_address("127.0.0.1", port), "from 0 to 65535", class = "rookery_bad_address")
  }
})

test_that("`unix:` names a socket in an existing folder", {
  dir <- normalizePath(withr::local_tempdir())
  expect_equal(serve_address(paste0("unix:", dir, "/s"), 8000)$socket, file.path(dir, "s"))
  expect_error(
    serve_address("unix:/no/such/folder/s", 1), "does not exist", class = "rookery_bad_address"
  )
})

test_that("the error for a port in use names the process and another port", {
  server <- startServer("127.0.0.1", 0, list())
  withr::defer(server$stop())
  port <- as.integer(server$getPort())
  error <- tryCatch(probe(serve_address("127.0.0.1", port)), error = identity)
  expect_s3_class(error, "rookery_port_in_use")
  expect_match(conditionMessage(error), paste0("Port ", port, " of 127.0.0.1 is in use"))
  expect_match(conditionMessage(error), paste0("`port = ", port + 1, "`"))
  skip_if_not(file.exists("/proc/net/tcp"), "a system without /proc/net/tcp")
  expect_match(
    conditionMessage(error), paste0("this R session (process ", Sys.getpid()), fixed = TRUE
  )
})

test_that("the process that holds a port is found", {
  skip_if_not(file.exists("/proc/net/tcp"), "a system without /proc/net/tcp")
  skip_if_not_installed("processx")
  port <- free_port()
  it <- local_r(paste0("rookery::serve(function(req) NULL, port = ", port, ")"))
  expect_serving(it)
  error <- expect_error(probe(serve_address("127.0.0.1", port)), class = "rookery_port_in_use")
  message <- conditionMessage(error)
  expect_match(message, paste0("(process ", it$process$get_pid(), ": "), fixed = TRUE)
  expect_match(message, paste0(", in ", normalizePath(tempdir()), ")"), fixed = TRUE)
})

test_that("an address without an interface is reported as such", {
  # TEST-NET-1 of RFC 5737, which is not assigned.
  expect_error(
    probe(serve_address("192.0.2.1", 0)), "Cannot listen on 192.0.2.1", class = "rookery_no_address"
  )
})

test_that("probing leaves the port free, and finds a port for 0", {
  address <- probe(serve_address("127.0.0.1", 0))
  expect_gt(address$port, 0)
  expect_equal(probe(address), address)
  expect_length(listServers(), 0)
})

test_that("addresses are shown as URLs", {
  expect_equal(url_of("127.0.0.1", 80), "http://127.0.0.1:80")
  expect_equal(url_of("0.0.0.0", 80), "http://127.0.0.1:80")
  expect_equal(url_of("::1", 8000), "http://[::1]:8000")
  expect_equal(url_of("::", 8000), "http://[::1]:8000")
  expect_equal(url_of("::", 443, "https", "app.example.org"), "https://app.example.org")
})
