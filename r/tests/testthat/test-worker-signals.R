# Signals to a single process of a server, or to all of them.

test_that("a worker leaves signals to its supervisor while that runs", {
  dir <- local_app(app.R = c(
    "function(req) {",
    "  if (req$PATH_INFO == '/slow') {",
    "    file.create('begun')",
    "    Sys.sleep(2)",
    "  }",
    "  list(status = 200L, headers = list(), body = 'finished')",
    "}"
  ))
  worker <- local_serving_worker(dir)
  worker$expect_ready()
  asking <- local_requests("http://worker/slow", 1, worker$path)
  expect_true(wait_until(function() file.exists(file.path(dir, "begun"))))
  # HUP, USR1, USR2 and TERM, as they are sent to a process group.
  for (signal in c(1, 10, 12, 15, 15)) worker$ask("kill", signal)
  asking$wait(60000)
  expect_identical(asking$get_result(), 200L)
  # R itself handles Ctrl-C during `Sys.sleep()`; otherwise we do.
  worker$ask("kill", 2)
  # The worker has not reported that it leaves, and continues to respond.
  expect_identical(worker$get("/fast")$text, "finished")
  expect_identical(worker$ask("receive", 0.2), "nothing")
  worker$ask("close")
  expect_identical(worker$ask("wait"), "0")
})

test_that("a worker ends if its supervisor is killed, whatever signals it got before", {
  skip_on_os(c("mac", "windows", "solaris"))
  dir <- local_app(app.R = c(
    "told <- paste(Sys.getpid(), dirname(Sys.getenv('TMPDIR')))",
    "function(req) list(status = 200L, headers = list(), body = told)"
  ))
  it <- local_cli("serve", dir, "--port", "0", "--log=none", "--workers", "2")
  expect_serving(it)
  url <- sub(" .*", "", sub(".*Serving on ", "", it$tell()))
  # A worker that is still starting R is killed with the supervisor, and cannot remove its folder.
  both <- "worker 0 .* is ready.*worker 1 .* is ready|worker 1 .* is ready.*worker 0 .* is ready"
  expect_true(wait_until(function() grepl(both, it$tell())))
  told <- strsplit(rawToChar(curl::curl_fetch_memory(url)$content), " ")[[1]]
  pid <- told[[1]]
  expect_true(file.exists(file.path(told[[2]], "admin")))
  tools::pskill(as.integer(pid), tools::SIGTERM)
  expect_true(nzchar(rawToChar(curl::curl_fetch_memory(url)$content)))
  expect_true(file.exists(file.path("/proc", pid)))
  it$signal(tools::SIGKILL)
  expect_true(wait_until(function() !file.exists(file.path("/proc", pid))))
  # The last worker removes the folder of the server.
  expect_true(wait_until(function() !file.exists(told[[2]])))
})

test_that("a single R process continues after SIGUSR2", {
  skip_on_os(c("mac", "windows", "solaris"))
  dir <- local_app(app.R = "function(req) list(status = 200L, headers = list(), body = 'hello')")
  it <- local_cli("serve", dir, "--port", "0", "--log=none")
  expect_serving(it)
  url <- sub(" .*", "", sub(".*Serving on ", "", it$tell()))
  for (at in 1:3) {
    it$signal(12)
    expect_equal(rawToChar(curl::curl_fetch_memory(url)$content), "hello")
  }
  it$signal(tools::SIGTERM)
  expect_equal(exit_of(it), 0)
})

test_that("a signal ends R at once while the app is loading", {
  skip_on_os(c("mac", "windows", "solaris"))
  dir <- local_app(
    app.R = c(
      "cat('loading\\n', file = stderr())", "for (i in 1:6000) Sys.sleep(0.1)", "function(req) NULL"
    )
  )
  for (signal in c(tools::SIGTERM, tools::SIGINT)) {
    it <- local_cli("serve", dir, "--port", "0", "--log=none")
    expect_true(wait_until(function() grepl("loading", it$tell())))
    asked <- proc.time()[["elapsed"]]
    it$signal(signal)
    expect_equal(exit_of(it), 0)
    # Requests in progress would have 9 s.
    expect_lt(proc.time()[["elapsed"]] - asked, 8)
    expect_match(it$tell(), "nothing is being served yet")
  }
})

test_that("a signal to all processes loses no request of a child process of serve()", {
  skip_on_os(c("mac", "windows", "solaris"))
  dir <- local_app(app.R = c(
    "function(req) {",
    "  if (req$PATH_INFO == '/slow') {",
    "    cat(Sys.getpid(), file = 'begun')",
    "    Sys.sleep(2)",
    "  }",
    "  list(status = 200L, headers = list(), body = 'finished')",
    "}"
  ))
  it <- local_r(sprintf("rookery::serve(%s, port = 0, log = FALSE)", deparse(dir)))
  expect_serving(it)
  url <- sub("[ \n].*", "", sub(".*(http://[0-9.:]+).*", "\\1", it$tell()))
  asking <- local_requests(paste0(url, "/slow"), 1)
  begun <- file.path(dir, "begun")
  expect_true(wait_until(function() file.exists(begun) && file.size(begun) > 0))
  tools::pskill(as.integer(readLines(begun, warn = FALSE)), tools::SIGTERM)
  Sys.sleep(0.2)
  it$signal(tools::SIGTERM)
  asking$wait(60000)
  expect_identical(asking$get_result(), 200L)
  expect_equal(exit_of(it), 0)
})
