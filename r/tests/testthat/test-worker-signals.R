# Signals that somebody sends to a process of a server, or to all of them.

test_that("a worker leaves signals to its supervisor until that has gone", {
  dir <- local_app(app.R = c(
    "function(req) {",
    "  if (req$PATH_INFO == '/slow') {",
    "    file.create('begun')",
    "    Sys.sleep(2)",
    "  }",
    "  list(status = 200L, headers = list(), body = 'finished')",
    "}"
  ))
  worker <- local_serving_worker(dir, "--port", "0")
  worker$expect_ready()
  asking <- local_requests("http://worker/slow", 1, worker$path)
  expect_true(wait_until(function() file.exists(file.path(dir, "begun"))))
  # As a signal to a whole group of processes: HUP, USR1, USR2 and TERM.
  for (signal in c(1, 10, 12, 15, 15)) worker$ask("kill", signal)
  asking$wait(60000)
  expect_identical(asking$get_result(), 200L)
  # Ctrl-C of a terminal is R's own in `Sys.sleep()`, and ours else.
  worker$ask("kill", 2)
  # It has not told that it leaves, and answers on.
  expect_identical(worker$get("/fast")$text, "finished")
  expect_identical(worker$ask("receive", 0.2), "nothing")
  worker$ask("close")
  expect_identical(worker$ask("wait"), "0")
})

test_that("a worker whose supervisor is killed ends, whatever it was sent before", {
  skip_on_os(c("mac", "windows", "solaris"))
  dir <- local_app(app.R = "function(req) list(status = 200L, headers = list(), body = as.character(Sys.getpid()))")
  it <- local_cli("serve", dir, "--port", "0", "--no-log", "--workers", "2")
  expect_serving(it)
  url <- sub(" .*", "", sub(".*Serving on ", "", it$tell()))
  pid <- rawToChar(curl::curl_fetch_memory(url)$content)
  tools::pskill(as.integer(pid), tools::SIGTERM)
  expect_true(nzchar(rawToChar(curl::curl_fetch_memory(url)$content)))
  expect_true(file.exists(file.path("/proc", pid)))
  it$signal(tools::SIGKILL)
  expect_true(wait_until(function() !file.exists(file.path("/proc", pid))))
})

test_that("one R process that serves goes on after SIGUSR2", {
  skip_on_os(c("mac", "windows", "solaris"))
  dir <- local_app(app.R = "function(req) list(status = 200L, headers = list(), body = 'hello')")
  it <- local_cli("serve", dir, "--port", "0", "--no-log")
  expect_serving(it)
  url <- sub(" .*", "", sub(".*Serving on ", "", it$tell()))
  for (at in 1:3) {
    it$signal(12)
    expect_equal(rawToChar(curl::curl_fetch_memory(url)$content), "hello")
  }
  it$signal(tools::SIGTERM)
  expect_equal(exit_of(it), 0)
})
