# The export of spans by R's own serve() when it ends. The collector is a socket of this process.

skip_if_not_installed("processx")
skip_if_not_installed("curl")
skip_on_os(c("mac", "solaris"))
skip_if(getRversion() < "4.0.0", "no serverSocket()")

# Runs serve() with a collector at a port, and sends a request to it.
local_traced <- function(port, env = parent.frame()) {
  it <- local_r(
    "rookery::serve(function(req) list(status = 200L, headers = list(), body = 'x'), port = 0, log = FALSE)",
    env = env,
    environment = c(
      OTEL_EXPORTER_OTLP_ENDPOINT = paste0("http://me:pass%20word@127.0.0.1:", port),
      # The spans are exported only when the process ends.
      OTEL_BSP_SCHEDULE_DELAY = "600000", OTEL_SDK_DISABLED = "", OTEL_TRACES_EXPORTER = ""
    )
  )
  url <- expect_serving(it)
  expect_equal(fetch(url)$status_code, 200L)
  it
}

# A listening socket of this process at a free port.
local_collector <- function(env = parent.frame()) {
  for (attempt in 1:20) {
    port <- sample(20000:40000, 1)
    socket <- tryCatch(serverSocket(port), error = function(error) NULL)
    if (!is.null(socket)) break
  }
  withr::defer(close(socket), envir = env)
  list(port = port, socket = socket)
}

# Accepts the connection of the exporter, and reads a request from it.
accept_export <- function(collector, env = parent.frame()) {
  connection <- socketAccept(collector$socket, open = "r+b", blocking = FALSE, timeout = 60)
  withr::defer(close(connection), envir = env)
  got <- raw()
  is_complete <- function() {
    got <<- c(got, readBin(connection, "raw", 65536))
    text <- rawToChar(got[got != 0])
    head <- regmatches(text, regexpr("(?s)^.*?\r\n\r\n", text, perl = TRUE, useBytes = TRUE))
    length(head) == 1 &&
      length(got) >= nchar(head, "bytes") + as.numeric(sub("(?is)^.*content-length: ([0-9]+).*$", "\\1", head, perl = TRUE))
  }
  expect_true(wait_until(is_complete))
  list(connection = connection, text = rawToChar(got[got != 0]))
}

test_that("serve() exports its last spans before the process ends, with the endpoint's credentials", {
  collector <- local_collector()
  it <- local_traced(collector$port)
  it$signal(tools::SIGINT)
  export <- accept_export(collector)
  expect_true(it$process$is_alive())
  writeBin(charToRaw("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), export$connection)
  expect_equal(exit_of(it), 0)
  expect_match(export$text, "^POST /v1/traces HTTP/1.1\r\n", useBytes = TRUE)
  # me:pass word
  expect_match(export$text, "authorization: Basic bWU6cGFzcyB3b3Jk\r\n", ignore.case = TRUE, useBytes = TRUE)
  expect_match(export$text, "rookery.call", fixed = TRUE, useBytes = TRUE)
  expect_no_match(it$tell(), "traces cannot be exported")
})

test_that("the end of the process waits for a collector, but not after a second signal", {
  seconds_until_end <- function(signal) {
    collector <- local_collector()
    it <- local_traced(collector$port)
    it$signal(tools::SIGINT)
    # The collector does not respond.
    accept_export(collector)
    expect_true(it$process$is_alive())
    since <- proc.time()[["elapsed"]]
    if (!is.null(signal)) it$signal(signal)
    exit_of(it)
    proc.time()[["elapsed"]] - since
  }
  without <- seconds_until_end(NULL)
  expect_gt(without, 1)
  for (signal in c(tools::SIGINT, tools::SIGTERM)) {
    expect_lt(seconds_until_end(signal), without / 2)
  }
})
