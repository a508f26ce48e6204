# Failures of the I/O thread: it cannot start, or it ends.

hello <- function(req) list(status = 200L, headers = list(), body = "hello")

test_that("if the I/O thread ends, service() raises an error and all servers are stopped", {
  for (timeout in list(0, 60000, NA)) {
    server <- startServer("127.0.0.1", 0, hello)
    withr::defer(stopAllServers())
    client <- socketConnection(
      "127.0.0.1", server$getPort(), open = "r+b", blocking = TRUE, timeout = 60
    )
    .Call(ffi_fail_for_test)
    # With a timeout of 0, the first calls may return before the thread has ended.
    serve <- function() for (attempt in 1:600) {
      service(timeout)
      Sys.sleep(0.1)
    }
    expect_error(serve(), "thread has ended \\(broken for a test\\).*startServer")
    expect_false(server$isRunning())
    expect_length(listServers(), 0)
    expect_identical(readBin(client, raw(), 1), raw())
    close(client)
    # The failure is reported only once, and a new server works.
    expect_true(service(NA))
  }
  server <- startServer("127.0.0.1", 0, hello)
  client <- socketConnection("127.0.0.1", server$getPort(), open = "r+b", blocking = FALSE)
  writeBin(charToRaw("GET / HTTP/1.0\r\n\r\n"), client)
  answer <- raw()
  wait_until(function() {
    service(10)
    answer <<- c(answer, readBin(client, raw(), 10000))
    grepl("hello$", rawToChar(answer))
  })
  close(client)
  expect_match(rawToChar(answer), "200 OK.*hello$")
})

test_that("if the I/O thread ends while only package later runs, stderr has a message", {
  it <- local_r(c(
    "library(rookery)",
    "server <- startServer('127.0.0.1', 0, function(req) NULL)",
    ".Call(rookery:::ffi_fail_for_test)",
    "for (i in 1:100) later::run_now(0.1)",
    "cat('running:', server$isRunning(), '\\n')"
  ))
  expect_identical(exit_of(it), 0L)
  expect_match(it$tell(), "thread has ended \\(broken for a test\\)")
  expect_match(it$tell(), "running: FALSE")
})

test_that("startServer() raises an error if the I/O thread cannot start", {
  skip_on_os(c("mac", "windows"))
  text <- c(
    "library(rookery)",
    # The first server loads package later, which needs descriptors. Here only the server lacks
    # them.
    "loadNamespace('later')",
    "for (left in 0:12) {",
    "  files <- list()",
    "  repeat {",
    "    file <- try(suppressWarnings(file('/dev/null', 'r')), silent = TRUE)",
    "    if (inherits(file, 'try-error')) break",
    "    files <- c(files, list(file))",
    "  }",
    "  for (file in tail(files, left)) close(file)",
    "  said <- tryCatch({startServer('127.0.0.1', 0, list()); 'started'}, error = conditionMessage)",
    "  stopAllServers()",
    "  for (file in head(files, max(0, length(files) - left))) close(file)",
    "  cat(left, said, '\\n')",
    "}"
  )
  script <- withr::local_tempfile(lines = text, fileext = ".R")
  # R refuses a much lower limit, and opens at most 128 files itself; the others are inherited.
  shell <- paste(
    "ulimit -n 256; for fd in {30..200}; do eval \"exec $fd</dev/null\"; done;",
    "exec", file.path(R.home("bin"), "Rscript"), script, "2>&1"
  )
  output <- suppressWarnings(system2(
    "bash",
    c("-c", shQuote(shell)),
    stdout = TRUE,
    env = paste0("R_LIBS=", paste(.libPaths(), collapse = .Platform$path.sep))
  ))
  said <- paste(output, collapse = "\n")
  expect_match(said, "cannot start the I/O thread: [^\n]*ulimit -n")
  expect_match(said, "12 started")
})

test_that("limited address space is left to R", {
  # Of 1.6 GB, R with a vector of 0.7 GB takes 1.1 GB.
  vector <- function(before) {
    script <- withr::local_tempfile(
      lines = c(before, "x <- numeric(9e7)", "cat('fine\\n')"), fileext = ".R"
    )
    shell <- paste("ulimit -v 1600000; exec", file.path(R.home("bin"), "Rscript"), script, "2>&1")
    suppressWarnings(system2(
      "bash",
      c("-c", shQuote(shell)),
      stdout = TRUE,
      env = paste0("R_LIBS=", paste(.libPaths(), collapse = .Platform$path.sep))
    ))
  }
  skip_if_not(identical(vector("library(promises)"), "fine"), "R itself has no room, or no limit")
  expect_identical(
    vector(c("library(rookery)", "s <- startServer('127.0.0.1', 0, list())")), "fine"
  )
})
