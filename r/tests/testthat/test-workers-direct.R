# A single worker, which accepts connections itself. crates/supervisor and crates/server
# (tests/it/worker/public_listener.rs) have the tests without R.

skip_if_not_installed("processx")
skip_if_not_installed("curl")
skip_if_not_installed("jsonlite")
skip_on_os(c("mac", "solaris"))

direct_lines <- c(
  "list(call = function(req) {",
  "  if (req$PATH_INFO == '/slow') Sys.sleep(2)",
  "  body <- paste(Sys.getpid(), req$rook.url_scheme, req$REMOTE_ADDR)",
  "  status <- if (req$PATH_INFO == '/999') 999L else 200L",
  "  list(status = status, headers = list('Content-Type' = 'text/plain'), body = body)",
  "})"
)

local_direct <- function(
  ..., lines = direct_lines, port = 0, log = "none",
  dir = withr::local_tempdir(.local_envir = env), env = parent.frame()
) {
  writeLines(lines, file.path(dir, "app.R"))
  log <- if (log == "none") "--log=none" else c("--log", log)
  it <- local_cli("serve", dir, "--port", port, "--workers", "1", "--reload", log, ..., env = env)
  expect_serving(it)
  it$dir <- dir
  it$url <- sub("[ \n].*", "", sub(".*Serving on ", "", it$tell()))
  it$port <- as.integer(sub("/.*", "", sub(".*:", "", it$url)))
  it$status <- function() {
    program <- system.file("exec", "rookery", package = "rookery")
    text <- suppressWarnings(system2(
      program, c("status", it$process$get_pid(), "--json"), stdout = TRUE, stderr = TRUE
    ))
    tryCatch(jsonlite::fromJSON(text, simplifyVector = FALSE), error = function(error) NULL)
  }
  it$is_direct <- function() identical(it$status()$accepts, "worker")
  it$pid <- function() strsplit(fetch(it$url, ssl_verifypeer = 0L)$text, " ")[[1]][[1]]
  expect_true(wait_until(it$is_direct))
  it
}

test_that("a single worker accepts connections itself, and no request fails during a reload", {
  head_first <- sub("list(", "list(onHeaders = function(req) NULL, ", direct_lines, fixed = TRUE)
  it <- local_direct(lines = c(head_first[[1]], direct_lines[-1]))
  before <- it$pid()
  status <- it$status()
  # Both processes get the signal.
  expect_equal(status$pid, it$process$get_pid())
  expect_equal(as.character(status$workers[[1]]$pid), before)
  expect_true(status$workers[[1]]$accepts)
  program <- system.file("exec", "rookery", package = "rookery")
  text <- paste(system2(program, c("status", it$process$get_pid()), stdout = TRUE), collapse = "\n")
  expect_match(text, sprintf("\\b%d\\b", it$process$get_pid()))
  expect_match(text, sprintf("\\b%s\\b", before))
  requests <- status$workers[[1]]$requests
  for (i in 1:5) it$pid()
  # For this request with a body, R calls `onHeaders` and then `call`, but the request counts once.
  fetch(it$url, post = TRUE, postfields = "body")
  expect_equal(fetch(paste0(it$url, "/999"))$status_code, 999)
  expect_equal(it$status()$workers[[1]]$requests, requests + 7)
  for (generation in 1:2) {
    before <- it$pid()
    it$signal(tools::SIGUSR2)
    statuses <- integer()
    expect_true(wait_until(function() {
      statuses <<- c(statuses, fetch(it$url)$status_code)
      grepl(paste("reloaded: all workers are of generation", generation), it$tell())
    }))
    expect_true(all(statuses == 200))
    expect_true(wait_until(it$is_direct))
    expect_false(it$pid() == before)
  }
})

test_that("the worker writes the access log, to a file that SIGUSR1 reopens", {
  dir <- withr::local_tempdir()
  log <- file.path(dir, "access.log")
  it <- local_direct(log = log, dir = dir)
  fetch(paste0(it$url, "/first"))
  expect_true(wait_until(function() any(grepl("/first", readLines(log)))))
  file.rename(log, paste0(log, ".1"))
  it$signal(10L)
  expect_true(wait_until(function() {
    fetch(paste0(it$url, "/second"))
    file.exists(log) && any(grepl("/second", readLines(log)))
  }))
  expect_false(any(grepl("/first", readLines(log))))
  # Each request once, in the common format.
  expect_length(grep("/first", readLines(paste0(log, ".1"))), 1)
  # During a reload, both processes append their own requests to the file.
  slow <- local_requests(paste0(it$url, "/slow"), 1)
  expect_true(wait_until(function() it$status()$workers[[1]]$r_state == "busy"))
  it$signal(tools::SIGUSR2)
  expect_true(wait_until(function() identical(it$status()$accepts, "front_end")))
  fetch(paste0(it$url, "/overlap"))
  slow$wait(60000)
  expect_true(wait_until(function() length(grep("/overlap|/slow", readLines(log))) == 2))
  expect_match(
    readLines(log)[[1]],
    "^127\\.0\\.0\\.1 - - \\[.*\\] \"GET /second HTTP/1\\.1\" 200 [0-9]+ [0-9.]+$"
  )
})

test_that("log lines for stdout are written by the program, whichever process they come from", {
  it <- local_direct(log = "-")
  fetch(paste0(it$url, "/direct"))
  expect_true(wait_until(function() grepl("\n127.0.0.1 - - [^\n]*GET /direct", it$tell())))
  it$signal(tools::SIGUSR2)
  expect_true(wait_until(function() grepl("reloading", it$tell())))
  fetch(paste0(it$url, "/passed-on"))
  expect_true(wait_until(function() grepl("\n127.0.0.1 - - [^\n]*GET /passed-on", it$tell())))
  expect_length(gregexpr("GET /passed-on", it$tell())[[1]], 1)
})

test_that("HTTPS, redirects and proxies work as with the front end", {
  dir <- withr::local_tempdir()
  pair <- make_pair(dir, "own")
  redirect <- randomPort()
  it <- local_direct(
    "--tls-cert", pair$cert, "--tls-key", pair$key, "--redirect-from", redirect,
    "--trusted-proxies", "127.0.0.1", "--hsts", "60"
  )
  answer <- fetch(sub("127.0.0.1", "localhost", it$url), cainfo = pair$cert)
  expect_match(answer$text, " https 127.0.0.1$")
  expect_match(
    rawToChar(answer$headers), "strict-transport-security: max-age=60", ignore.case = TRUE
  )
  answer <- fetch(paste0("http://localhost:", redirect, "/x"), followlocation = FALSE)
  expect_equal(answer$status_code, 308)
  expect_match(rawToChar(answer$headers), paste0("https://localhost:", it$port, "/x"), fixed = TRUE)
})

test_that("the successor of a killed supervisor waits until the worker has finished", {
  for (path in list(NULL, withr::local_tempfile())) {
    dir <- withr::local_tempdir()
    done <- file.path(dir, "done")
    writeLines(
      sub(
        "Sys.sleep(2)", sprintf("{ Sys.sleep(2); file.create('%s') }", done), direct_lines,
        fixed = TRUE
      ),
      file.path(dir, "app.R")
    )
    port <- randomPort()
    where <- if (is.null(path)) c("--port", port) else c("--host", paste0("unix:", path))
    url <- if (is.null(path)) paste0("http://127.0.0.1:", port) else "http://a"
    pid <- function() strsplit(fetch(url, path = path)$text, " ")[[1]][[1]]
    start <- function(env = parent.frame()) local_cli("serve", dir, where, "--log=none", env = env)
    status <- function(it) {
      program <- system.file("exec", "rookery", package = "rookery")
      text <- suppressWarnings(system2(
        program, c("status", it$process$get_pid(), "--json"), stdout = TRUE, stderr = TRUE
      ))
      tryCatch(jsonlite::fromJSON(text, simplifyVector = FALSE), error = function(error) NULL)
    }
    it <- start()
    expect_serving(it)
    expect_true(wait_until(function() identical(status(it)$accepts, "worker")))
    worker <- pid()
    slow <- local_requests(paste0(url, "/slow"), 1, path = path)
    expect_true(wait_until(function() identical(status(it)$workers[[1]]$r_state, "busy")))
    it$signal(tools::SIGKILL)
    it$process$wait(60000)
    successor <- start()
    expect_true(wait_until(function() grepl("Serving on", successor$tell())))
    # Only one of the two happens, because the worker had responded before its process ended.
    expect_match(
      successor$tell(),
      "until a worker whose supervisor was killed has finished its requests: R \\(process [0-9]+"
    )
    expect_true(file.exists(done))
    expect_true(wait_until(function() !file.exists(file.path("/proc", worker))))
    slow$wait(60000)
    expect_equal(slow$get_result(), 200L)
    expect_false(pid() == worker)
    successor$signal(tools::SIGTERM)
    successor$process$wait(60000)
    expect_equal(successor$process$get_exit_status(), 0)
    expect_false(!is.null(path) && file.exists(path))
  }
})

test_that("a worker that is being replaced finishes its request if its supervisor is killed", {
  dir <- withr::local_tempdir()
  finish <- file.path(dir, "finish")
  wait <- sprintf("while (!file.exists('%s')) Sys.sleep(0.05)", finish)
  it <- local_direct(lines = sub("Sys.sleep(2)", wait, direct_lines, fixed = TRUE), dir = dir)
  worker <- it$pid()
  slow <- local_requests(paste0(it$url, "/slow"), 1)
  expect_true(wait_until(function() identical(it$status()$workers[[1]]$route, "GET /slow")))
  it$signal(tools::SIGUSR2)
  expect_true(wait_until(function() identical(it$status()$workers[[1]]$state, "draining")))
  # The supervisor's death and a later signal (systemd sends one to the remaining processes) count
  # as one request to stop.
  it$signal(tools::SIGKILL)
  it$process$wait(60000)
  Sys.sleep(0.3)
  tools::pskill(as.integer(worker), tools::SIGTERM)
  Sys.sleep(0.3)
  file.create(finish)
  slow$wait(60000)
  expect_equal(slow$get_result(), 200L)
  expect_true(wait_until(function() !file.exists(file.path("/proc", worker))))
})

test_that("a worker finishes its streams and may print if its supervisor is killed", {
  dir <- withr::local_tempdir()
  begun <- file.path(dir, "begun")
  finish <- file.path(dir, "finish")
  it <- local_direct(dir = dir, lines = c(
    "list(call = function(req) {",
    "  chunk <- function() {",
    sprintf("    if (file.exists('%s')) return(NULL)", finish),
    sprintf("    file.create('%s'); Sys.sleep(0.05)", begun),
    "    cat('to stdout\n'); message('to stderr')",
    "    'chunk'",
    "  }",
    "  body <- if (req$PATH_INFO == '/stream') chunk else ''",
    "  list(status = 200L, headers = list(), body = body)",
    "})"
  ))
  stream <- local_requests(paste0(it$url, "/stream"), 1)
  expect_true(wait_until(function() file.exists(begun)))
  it$signal(tools::SIGKILL)
  it$process$wait(60000)
  Sys.sleep(0.5)
  file.create(finish)
  stream$wait(60000)
  # An incomplete response would give -1.
  expect_equal(stream$get_result(), 200L)
})

test_that("a worker that dies is replaced, and no connection is refused", {
  it <- local_direct()
  before <- it$pid()
  tools::pskill(as.integer(before), tools::SIGKILL)
  pids <- vapply(1:10, function(at) it$pid(), "")
  expect_false(before %in% pids)
  expect_true(wait_until(it$is_direct))
})

test_that("the front end accepts connections if a setting needs it", {
  dir <- withr::local_tempdir()
  writeLines(direct_lines, file.path(dir, "app.R"))
  it <- local_cli(
    "serve", dir, "--port", "0", "--workers", "1", "--reload", "--log=none", "--max-in-flight", "2"
  )
  expect_serving(it)
  program <- system.file("exec", "rookery", package = "rookery")
  Sys.sleep(1)
  text <- system2(program, c("status", it$process$get_pid(), "--json"), stdout = TRUE)
  expect_equal(jsonlite::fromJSON(text, simplifyVector = FALSE)$accepts, "front_end")
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
