# The admin listener of one R process, which also responds while R is busy.

skip_if_not_installed("processx")
skip_if_not_installed("curl")
skip_if_not_installed("jsonlite")
skip_on_os(c("mac", "solaris"))

admin_app <- c(
  "list(",
  "  call = function(req) {",
  "    if (req$PATH_INFO == '/busy') while (!file.exists(file.path(Sys.getenv('TEST_DIR'), 'go'))) Sys.sleep(0.02)",
  "    if (req$PATH_INFO == '/missing') return(list(status = 404L, headers = list(), body = ''))",
  "    list(status = 200L, headers = list('Content-Type' = 'text/plain'), body = 'hello')",
  "  },",
  "  onWSOpen = function(ws) ws$onMessage(function(binary, message) ws$send(message))",
  ")"
)

# Runs R's serve() of that app with an admin listener on a socket. `$admin(path)` sends a request to
# it, and `$metric(name)` returns a number.
local_administered <- function(
  at = NULL, lines = admin_app, env = parent.frame(), environment = character()
) {
  dir <- normalizePath(withr::local_tempdir(.local_envir = env))
  writeLines(lines, file.path(dir, "app.R"))
  socket <- at %||% withr::local_tempfile(pattern = "a", tmpdir = "/tmp", .local_envir = env)
  it <- local_r(
    embedded_call(dir, socket),
    env = env, environment = c(environment, TEST_DIR = dir)
  )
  it$dir <- dir
  it$socket <- socket
  it$admin <- function(path) fetch(paste0("http://localhost", path), path = socket)
  it$metric <- function(name) metric_of(rawToChar(it$admin("/metrics")$content), name)
  # The R process that serves the path.
  it$pid <- function() {
    jsonlite::fromJSON(
      rawToChar(it$admin("/status")$content), simplifyVector = FALSE
    )$workers[[1]]$pid
  }
  it
}

metric_of <- function(text, name) {
  lines <- strsplit(text, "\n", fixed = TRUE)[[1]]
  line <- lines[startsWith(lines, paste0("rookery_", name, " "))]
  as.numeric(sub("^.* ", "", line))
}

probes <- function(it) {
  vapply(
    c("live", "ready", "startup"), function(name) it$admin(paste0("/-/", name))$status_code, 0L,
    USE.NAMES = FALSE
  )
}

test_that("the admin listener of one R process responds while R is busy", {
  it <- local_administered()
  url <- sub(" .*", "", expect_serving(it))
  expect_equal(probes(it), c(200L, 200L, 200L))
  for (path in c("/", "/", "/missing")) fetch(paste0(url, path))
  expect_true(wait_until(function() identical(it$metric("requests_total{class=\"2xx\"}"), 2)))
  expect_equal(it$metric("requests_total{class=\"4xx\"}"), 1)
  for (name in c("queue_seconds_count", "upstream_seconds_count", "request_seconds_count")) {
    expect_equal(it$metric(name), 3)
  }
  expect_equal(it$metric("workers{state=\"ready\"}"), 1)
  expect_gt(it$metric("worker_memory_bytes{slot=\"0\"}"), 1e6)
  expect_gt(it$metric("open_fds"), 3)
  # R is busy until the file exists. Requests meanwhile wait and are counted.
  pool <- parallel_pool()
  answers <- 0
  for (path in c("/busy", "/")) {
    curl::multi_add(
      curl::new_handle(url = paste0(url, path), timeout = 120),
      done = function(reply) answers <<- answers + (reply$status_code == 200), pool = pool
    )
    expect_true(wait_until(function() {
      curl::multi_run(timeout = 0.05, pool = pool)
      if (path == "/busy") {
        it$metric("worker_busy_seconds{slot=\"0\"}") > 0.05
      } else {
        identical(it$metric("queue_length"), 1)
      }
    }))
  }
  expect_equal(probes(it), c(200L, 200L, 200L))
  status <- jsonlite::fromJSON(rawToChar(it$admin("/status")$content), simplifyVector = FALSE)
  expect_equal(status$state, "serving")
  expect_equal(status$address, url)
  expect_equal(status$target, it$dir)
  expect_equal(status$queue$length, 1)
  worker <- status$workers[[1]]
  expect_equal(
    worker[c("state", "r_state", "in_flight")],
    list(state = "ready", r_state = "busy", in_flight = 1L)
  )
  expect_equal(worker$route, "GET /busy")
  # The live page, which needs no token on a socket. No supervisor could carry out its actions.
  page <- it$admin("/live/")
  expect_equal(page$status_code, 200)
  expect_match(page$text, "<title>Rookery</title>", fixed = TRUE)
  expect_equal(it$admin("/live/actions/reload")$status_code, 404)
  expect_true(is_alive(worker$pid))
  expect_true(wait_until(function() it$metric("connections") >= 2))
  expect_true(wait_until(function() it$metric("worker_busy_ratio{slot=\"0\"}") > 0))
  file.create(file.path(it$dir, "go"))
  expect_true(wait_until(function() {
    curl::multi_run(timeout = 0.05, pool = pool)
    answers == 2
  }))
  expect_true(wait_until(function() identical(it$metric("worker_busy_seconds{slot=\"0\"}"), 0)))
  expect_gt(it$metric("request_seconds_sum"), 0.05)
})

# Responds to `/stream` with two chunks, and receives the body of `/upload`. R is busy with the
# second chunk, and with the body, until a file exists.
streaming_app <- c(
  "wait_for <- function(name) while (!file.exists(file.path(Sys.getenv('TEST_DIR'), name))) Sys.sleep(0.02)",
  "list(",
  "  call = function(req) {",
  "    count <- 0",
  "    list(status = 200L, headers = list('Content-Type' = 'text/plain'), body = function() {",
  "      count <<- count + 1",
  "      if (count == 2) wait_for('sent')",
  "      if (count == 3) NULL else 'chunk '",
  "    })",
  "  },",
  "  onHeaders = function(req) {",
  "    if (req$PATH_INFO != '/upload') return(NULL)",
  "    rookery::receive_body(",
  "      function(bytes) wait_for('received'),",
  "      function() list(status = 200L, headers = list(), body = 'received')",
  "    )",
  "  }",
  ")"
)

test_that("streams are counted, and the status shows the request that R is streaming", {
  it <- local_administered(lines = streaming_app)
  url <- sub(" .*", "", expect_serving(it))
  worker <- function() {
    jsonlite::fromJSON(
      rawToChar(it$admin("/status")$content), simplifyVector = FALSE
    )$workers[[1]]
  }
  pool <- parallel_pool()
  texts <- character()
  requests <- list(
    list(handle = curl::new_handle(url = paste0(url, "/stream?a=secret")), file = "sent"),
    list(
      handle = curl::new_handle(url = paste0(url, "/upload"), postfields = "body"),
      file = "received"
    )
  )
  shown <- character()
  for (request in requests) {
    curl::handle_setopt(request$handle, timeout = 120)
    curl::multi_add(
      request$handle, done = function(reply) texts <<- c(texts, rawToChar(reply$content)),
      pool = pool
    )
    expect_true(wait_until(function() {
      curl::multi_run(timeout = 0.05, pool = pool)
      seen <- worker()
      identical(seen$streams, 1L) && isTRUE(seen$r_state_ms > 200)
    }))
    shown <- c(shown, worker()$route)
    expect_equal(it$metric("streams{slot=\"0\"}"), 1)
    expect_match(rawToChar(it$admin("/status.txt")$content), "  0         1        ")
    file.create(file.path(it$dir, request$file))
    expect_true(wait_until(function() {
      curl::multi_run(timeout = 0.05, pool = pool)
      identical(worker()$streams, 0L)
    }))
  }
  expect_equal(shown, c("GET /stream", "POST /upload"))
  expect_equal(texts, c("chunk chunk ", "received"))
})

test_that("`rookery status` finds the process by default, by app, by process id and by socket", {
  it <- local_administered()
  expect_serving(it)
  ask <- function(...) {
    asked <- local_cli("status", ...)
    list(status = exit_of(asked), said = asked$tell())
  }
  pid <- it$pid()
  for (which in list(it$dir, pid, paste0("unix:", it$socket))) {
    told <- ask(which)
    expect_equal(told$status, 0L)
    expect_match(
      told$said, paste0("process ", pid, ", up .*: serving, 1 worker\n", it$dir, " is at http")
    )
    expect_match(told$said, "ready +idle")
  }
  it$signal(tools::SIGTERM)
  expect_equal(exit_of(it), 0)
  # The server removes its files when it ends.
  expect_false(file.exists(it$socket))
  expect_length(Sys.glob(file.path(dirname(tempdir()), paste0("rookery-workers-", pid, "-*"))), 0)
  told <- ask(pid)
  expect_equal(told$status, 1L)
  expect_match(told$said, paste("Process", pid, "is not an app server of this user"))
})

test_that("the readiness probe fails before the app listens and during shutdown", {
  lines <- c(
    "while (!file.exists(file.path(Sys.getenv('TEST_DIR'), 'load'))) Sys.sleep(0.02)", admin_app
  )
  it <- local_administered(lines = lines)
  expect_true(wait_until(function() file.exists(it$socket)))
  expect_equal(probes(it), c(200L, 503L, 503L))
  expect_match(rawToChar(it$admin("/-/ready")$content), "the app is not listening yet")
  expect_equal(it$metric("workers{state=\"starting\"}"), 1)
  file.create(file.path(it$dir, "load"))
  url <- sub(" .*", "", expect_serving(it))
  expect_equal(probes(it), c(200L, 200L, 200L))
  pool <- parallel_pool()
  status <- NULL
  curl::multi_add(
    curl::new_handle(url = paste0(url, "/busy"), timeout = 120),
    done = function(reply) status <<- reply$status_code, pool = pool
  )
  expect_true(wait_until(function() {
    curl::multi_run(timeout = 0.05, pool = pool)
    it$metric("worker_in_flight{slot=\"0\"}") == 1
  }))
  it$signal(tools::SIGTERM)
  # R handles a signal between two events, after the current one.
  file.create(file.path(it$dir, "go"))
  expect_true(wait_until(function() {
    curl::multi_run(timeout = 0.05, pool = pool)
    !is.null(status)
  }))
  expect_equal(status, 200L)
  expect_equal(exit_of(it), 0)
})

test_that("a wrong admin address is an error at once, and an object may have an admin listener", {
  app <- list(call = function(req) list(status = 200L, headers = list(), body = ""))
  expect_error(
    serve(app, port = 0, admin = 9100), "`admin` must be an address with a port",
    class = "rookery_bad_address"
  )
  expect_error(
    serve(app, port = 0, admin = "9100"), "must be an address with a port",
    class = "rookery_bad_address"
  )
  folder <- withr::local_tempdir()
  expect_error(
    serve(app, port = 0, admin = paste0("unix:", folder)), "Cannot listen on the admin address",
    class = "rookery_no_address"
  )
  socket <- withr::local_tempfile(pattern = "a", tmpdir = "/tmp")
  it <- local_r(c(
    "app <- list(call = function(req) list(status = 200L, headers = list(), body = ''))",
    paste0("rookery::serve(app, port = 0, admin = 'unix:", socket, "')")
  ))
  expect_serving(it)
  expect_equal(fetch("http://localhost/-/ready", path = socket)$status_code, 200L)
  # The address is in use, so nothing is served.
  taken <- local_administered(socket)
  expect_equal(exit_of(taken), 1)
  expect_match(
    taken$tell(), "Another server is listening there: choose another path, or stop that server."
  )
})

test_that("`admin:` in a `_server.yml` works for one R process, with a path relative to the file", {
  skip_if_not_installed("yaml")
  dir <- normalizePath(withr::local_tempdir(pattern = "y", tmpdir = "/tmp"))
  writeLines(
    "list(call = function(req) list(status = 200L, headers = list(), body = ''))",
    file.path(dir, "app.R")
  )
  writeLines(
    c("engine: rookery", "app: app.R", "options:", "  admin: unix:look"),
    file.path(dir, "_server.yml")
  )
  it <- local_cli("serve", dir, "--port", "0", "--log=none")
  expect_serving(it)
  expect_equal(fetch("http://localhost/-/ready", path = file.path(dir, "look"))$status_code, 200L)
})
