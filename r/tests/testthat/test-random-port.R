# Holds a port until the calling test ends.
take_port <- function(env = parent.frame()) {
  port <- randomPort(20000, 30000)
  server <- startServer("127.0.0.1", port, list(), quiet = TRUE)
  withr::defer(server$stop(), envir = env)
  port
}

# Returns the condition itself.
failure_of <- function(expr) {
  tryCatch(expr, error = identity)
}

test_that("a port is a free integer of the range", {
  port <- randomPort(20000, 20100)
  expect_type(port, "integer")
  expect_true(port >= 20000 && port <= 20100)
  expect_true(is_port_available(port))
})

test_that("a range of one port is that port", {
  port <- randomPort(20000, 30000)
  expect_identical(randomPort(port, port), port)
})

test_that("ports in use are skipped", {
  port <- take_port()
  expect_false(is_port_available(port))
  expect_identical(
    conditionMessage(failure_of(randomPort(port, port))), "Cannot find an available port."
  )
  expect_identical(randomPort(port, port + 1L), port + 1L)
})

test_that("ports that browsers refuse are never tried", {
  error <- failure_of(randomPort(6000, 6000))
  expect_identical(
    class(error),
    c("httpuv_unavailable_port", "rookery_no_port", "rookery_error", "error", "condition")
  )
  expect_identical(conditionMessage(error), "Cannot find an available port.")
  expect_identical(conditionCall(error), quote(randomPort(6000, 6000)))
  expect_s3_class(failure_of(randomPort(6665, 6669)), "httpuv_unavailable_port")
  # The ports of httpuv 1.6.9, a subset.
  known <- c(1, 22, 53, 111, 563, 2049, 3659, 4045, 6000, 6665, 6666, 6667, 6668, 6669, 6697)
  expect_true(all(known %in% unsafe_ports))
  expect_type(unsafe_ports, "double")
})

test_that("the range is limited to valid ports, and n = 0 finds none", {
  expect_identical(randomPort(65535, 1e6), 65535L)
  expect_s3_class(failure_of(randomPort(-5, 1)), "httpuv_unavailable_port")
  expect_s3_class(failure_of(randomPort(n = 0)), "httpuv_unavailable_port")
})

test_that("the same seed gives the same port, and `host` is used", {
  port <- withr::with_seed(1, randomPort(20000, 30000))
  expect_identical(withr::with_seed(1, randomPort(20000, 30000)), port)
  expect_s3_class(failure_of(randomPort(host = "example.org")), "httpuv_unavailable_port")
})

test_that("arguments that are not numbers are refused", {
  expect_error(randomPort("a"), "`min` must be one number.", fixed = TRUE)
  expect_error(randomPort(max = NA), "`max` must be one number.", fixed = TRUE)
  expect_error(randomPort(n = NULL), "`n` must be one number.", fixed = TRUE)
})
