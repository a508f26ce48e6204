# A server with one worker: the program accepts the connections, and R can be replaced or crash
# without the loss of a connection.

skip_if_not_installed("processx")
skip_if_not_installed("curl")
skip_if_not_installed("jsonlite")
skip_on_os(c("mac", "solaris"))

hello_lines <- c(
  "list(call = function(req) {",
  "  status <- if (req$PATH_INFO == '/999') 999L else 200L",
  "  list(status = status, headers = list(), body = as.character(Sys.getpid()))",
  "})"
)

local_one <- function(..., lines = hello_lines, env = parent.frame()) {
  dir <- withr::local_tempdir(.local_envir = env)
  writeLines(lines, file.path(dir, "app.R"))
  it <- local_cli("serve", dir, "--port", "0", "--workers", "1", "--log=none", ..., env = env)
  expect_serving(it)
  it$url <- sub("[ \n].*", "", sub(".*Serving on ", "", it$tell()))
  it$status <- function() {
    program <- system.file("exec", "rookery", package = "rookery")
    text <- system2(program, c("status", it$process$get_pid(), "--json"), stdout = TRUE)
    jsonlite::fromJSON(text, simplifyVector = FALSE)
  }
  it$pid <- function() fetch(it$url)$text
  it
}

test_that("reloads and crashes of the only worker lose no connection", {
  head_first <- sub("list(", "list(onHeaders = function(req) NULL, ", hello_lines, fixed = TRUE)
  it <- local_one(lines = c(head_first[[1]], hello_lines[-1]))
  worker <- it$status()$workers[[1]]
  expect_equal(as.character(worker$pid), it$pid())
  # For this request with a body, R calls `onHeaders` and then `call`, but the request counts once.
  fetch(it$url, post = TRUE, postfields = "body")
  expect_equal(fetch(paste0(it$url, "/999"))$status_code, 999)
  expect_equal(it$status()$workers[[1]]$requests, worker$requests + 3)
  # All requests use this connection.
  connection <- curl::new_handle()
  get <- function() curl::curl_fetch_memory(it$url, connection)
  get()
  expect_reused <- function() {
    expect_equal(get()$status_code, 200)
    expect_equal(curl::handle_data(connection)$times[["connect"]], 0)
  }
  for (generation in 1:2) {
    before <- it$pid()
    it$signal(tools::SIGUSR2)
    expect_true(wait_until(function() {
      expect_equal(get()$status_code, 200)
      grepl(paste("reloaded: all workers are of generation", generation), it$tell())
    }))
    expect_false(it$pid() == before)
  }
  before <- it$pid()
  tools::pskill(as.integer(before), tools::SIGKILL)
  # The request waits for the next worker.
  expect_reused()
  expect_false(it$pid() == before)
})

test_that("a worker reports settings that only the program can apply", {
  it <- local_one(lines = c(
    "options(rookery.max_body_size = '1MB', rookery.error_detail = 'message')", hello_lines
  ))
  expect_match(it$tell(), paste(
    "The option `rookery.max_body_size` has no effect in worker 0, because `rookery serve` accepts",
    "the connections: set `limits.max_body_size` in `_server.yml`"
  ), fixed = TRUE)
  expect_false(grepl("error_detail", it$tell(), fixed = TRUE))
})

test_that("one and several workers log refused requests, and requests during which R ends, alike", {
  lines <- c(
    "list(call = function(req) {",
    "  if (req$PATH_INFO == '/quit') quit('no', 3)",
    "  list(status = 200L, headers = list(), body = 'hello')",
    "})"
  )
  # Sends bytes in pieces, and waits until the server closes the connection.
  send_pieces <- function(port, pieces) {
    client <- socketConnection(port = port, blocking = TRUE, open = "r+b", timeout = 20)
    on.exit(close(client))
    for (piece in pieces) {
      writeBin(piece, client)
      flush(client)
      Sys.sleep(0.05)
    }
    readBin(client, "raw", 1e5)
  }
  good <- charToRaw("GET /good HTTP/1.1\r\nHost: h\r\n\r\n")
  targets <- list("foo" = "foo", "/a\\x01" = "/a\001", "/\\xe9" = as.raw(c(0x2f, 0xe9)), "/?a b" = "/?a b")
  for (workers in c("1", "2")) {
    path <- withr::local_tempfile()
    dir <- withr::local_tempdir()
    writeLines(lines, file.path(dir, "app.R"))
    it <- local_cli("serve", dir, "--port", "0", "--workers", workers, "--log", path)
    expect_serving(it)
    port <- as.integer(sub(".*Serving on http://[^:]*:([0-9]+).*", "\\1", it$tell()))
    for (target in targets) {
      target <- if (is.raw(target)) target else charToRaw(target)
      bad <- c(charToRaw("GET "), target, charToRaw(" HTTP/1.1\r\nHost: h\r\n\r\n"))
      send_pieces(port, list(bad))
      send_pieces(port, list(bad[1:6], bad[-(1:6)]))
      send_pieces(port, list(c(good, bad)))
    }
    send_pieces(port, list(charToRaw("GET /quit HTTP/1.1\r\nHost: h\r\n\r\n")))
    expect_true(wait_until(function() any(grepl("GET /quit", readLines(path)))))
    requests <- sub("^[^\"]*\"(.*) HTTP/1.1\" ([0-9]+) .*", "\\1 \\2", readLines(path))
    refused <- rep(paste("GET", names(targets), "400"), each = 3)
    expect_equal(requests[grepl(" 400$", requests)], refused, info = workers)
    expect_equal(tail(requests, 1), "GET /quit 502", info = workers)
    it$signal(tools::SIGTERM)
    exit_of(it)
  }
})
