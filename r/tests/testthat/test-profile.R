# Where R is while a request takes long, and profiles by route, with R processes. crates/status has
# the tests of profiles without R.

skip_if_not_installed("processx")
skip_if_not_installed("curl")
skip_if_not_installed("jsonlite")
skip_on_os(c("mac", "solaris"))

profiled_app <- c(
  "compute <- function(seconds, password) {",
  "  until <- Sys.time() + seconds",
  "  while (Sys.time() < until) sum(sort(runif(1e4)))",
  "}",
  "nap <- function(seconds) Sys.sleep(seconds)",
  "answer <- function(body) {",
  "  list(status = 200L, headers = list('Content-Type' = 'text/plain'), body = body)",
  "}",
  "list(",
  "  call = function(req) {",
  "    switch(",
  "      req$PATH_INFO,",
  "      '/compute' = compute(2.5, 'secret'),",
  "      '/nap' = nap(3),",
  "      '/shell' = system('sleep 2.5'),",
  "      '/short' = compute(0.15, 'secret')",
  "    )",
  "    answer(as.character(Sys.getpid()))",
  "  },",
  "  onWSOpen = function(ws) ws$onMessage(function(binary, message) ws$send(compute(0.1, 'x')))",
  ")"
)

# Serves the app with workers. `$status()` is the status of the first worker, and `$profile()` the
# result of `rookery profile`.
local_profiled <- function(..., lines = profiled_app, env = parent.frame()) {
  dir <- normalizePath(withr::local_tempdir(.local_envir = env))
  writeLines(lines, file.path(dir, "app.R"))
  it <- local_cli("serve", dir, "--port", "0", "--log=none", ..., env = env)
  expect_serving(it)
  it$url <- sub(" .*", "", sub(".*Serving on ", "", it$tell()))
  it$dir <- dir
  it$status <- function() status_of(dir, simplifyVector = FALSE)$workers[[1]]
  it$profile <- function(...) profile_of(dir, ..., env = env)
  it
}

profile_of <- function(dir, ..., env = parent.frame()) {
  output <- withr::local_tempfile(.local_envir = env)
  asked <- local_cli("profile", dir, "--output", output, ..., env = env)
  asked$output <- output
  asked
}

# Returns the processor time, in seconds, of the threads of a process besides R's.
network_time <- function(pid) {
  of <- function(task) {
    text <- readLines(file.path("/proc", pid, "task", task, "stat"))
    sum(as.numeric(strsplit(sub(".*[)] ", "", text), " ")[[1]][12:13])) / 100
  }
  sum(vapply(setdiff(list.files(file.path("/proc", pid, "task")), pid), of, 0))
}

# Starts requests without waiting for them. `$run()` continues them.
requests_to <- function(it, paths) {
  pool <- parallel_pool()
  for (path in paths) {
    curl::multi_add(curl::new_handle(url = paste0(it$url, path), timeout = 120), pool = pool)
  }
  function(seconds = 0.05) curl::multi_run(timeout = seconds, pool = pool)
}

# Waits until the status names the functions on R's stack, with `shown` among them, and returns them.
# Eight calls are shown at most, so the outermost may be missing in a sample. Requests `path` again
# while it has not been seen.
stack_during <- function(it, path, shown = "") {
  run <- requests_to(it, path)
  stack <- NULL
  wait_until(function() {
    if (run()$pending == 0) run <<- requests_to(it, path)
    stack <<- it$status()$stack
    !is.null(stack) && grepl(shown, stack$calls, fixed = TRUE)
  })
  run(20)
  stack
}

test_that("the status names the functions on R's stack and no arguments", {
  it <- local_profiled()
  stack <- stack_during(it, "/compute", "handler")
  expect_match(stack$calls, "compute < handler, app.R#[0-9]+$")
  expect_no_match(stack$calls, "secret|2[.]5|[(]")
  expect_lt(stack$ago_ms, 5000)
  # R checks for interrupts while it sleeps.
  expect_match(stack_during(it, "/nap")$calls, "^Sys.sleep < nap < handler, app.R#[0-9]+$")
  expect_null(it$status()$stack)
})

test_that("the slow log says where R was, or that it is unknown", {
  it <- local_profiled("--slow-log", "1s")
  requests_to(it, "/compute")(20)
  expect_true(wait_until(function() {
    grepl("with GET /compute: it computes; r=\"[^\"]*compute < handler, app.R#[0-9]+\"", it$tell())
  }))
  requests_to(it, "/shell")(20)
  expect_true(wait_until(function() {
    # On a busy machine, R may have taken a sample before it waits.
    unknown <- "(where is unknown, because|r=\"[^\"]*\" [0-9.]+ s ago, and) R has not checked"
    grepl(paste0("with GET /shell(: it waits[^;]*)?; ", unknown), it$tell())
  }))
})

test_that("a profile has the routes as functions, and the lines of the app", {
  it <- local_profiled("--workers", "2")
  run <- requests_to(it, rep("/short", 40))
  asked <- it$profile("--seconds", "4")
  expect_true(wait_until(function() grepl("profiling for 4 s", asked$tell())))
  second <- it$profile()
  wait_until(function() {
    run()
    !second$process$is_alive()
  })
  expect_equal(exit_of(second), 1)
  expect_match(second$tell(), "another profile is running")
  expect_false(file.exists(second$output))
  wait_until(function() {
    run()
    !asked$process$is_alive()
  })
  expect_equal(exit_of(asked), 0)
  expect_match(asked$tell(), "by route, output or observer\n +[0-9.]+ s +[0-9.]+ %  GET:/short\n")
  first <- readLines(asked$output, n = 1)
  expect_equal(first, "GC profiling: line profiling: sample.interval=10007")
  read <- utils::summaryRprof(asked$output)
  expect_true(all(c("\"GET:/short\"", "\"compute\"", "\"sort\"") %in% rownames(read$by.total)))
  expect_gt(read$by.total["\"GET:/short\"", "total.pct"], 50)
  expect_true("app.R#3" %in% rownames(utils::summaryRprof(asked$output, lines = "show")$by.total))
  # Nothing is left in the folders of the workers.
  folders <- file.path(dirname(tempdir()), "rookery-workers-*")
  expect_equal(Sys.glob(file.path(folders, c("", "tmp-*"), "profile-*.out")), character())
  expect_equal(fetch(paste0(it$url, "/short"))$status_code, 200L)
})

test_that("during a profile, handlers are called from the global environment and may fail", {
  it <- local_profiled(lines = c(
    profiled_app[seq_len(match("list(", profiled_app) - 1)],
    "list(call = function(req) {",
    "  if (req$PATH_INFO == '/error') stop('an error')",
    "  counted <- get0('count', parent.frame(), inherits = FALSE, ifnotfound = 0) + 1",
    "  assign('count', counted, parent.frame())",
    "  compute(0.1, 'x')",
    "  answer(paste(identical(parent.frame(), globalenv()), counted))",
    "})"
  ))
  body_of <- function(path) rawToChar(fetch(paste0(it$url, path))$content)
  expect_equal(body_of("/a"), "TRUE 1")
  asked <- it$profile("--seconds", "120")
  expect_true(wait_until(function() grepl("profiling for 120 s", asked$tell())))
  Sys.sleep(1)
  expect_equal(body_of("/b"), "TRUE 2")
  expect_match(body_of("/error"), "500 Internal Server Error")
  expect_equal(body_of("/c"), "TRUE 3")
  asked$signal(tools::SIGINT)
  expect_equal(exit_of(asked), 0)
  expect_equal(body_of("/a"), "TRUE 4")
  read <- utils::summaryRprof(asked$output)
  expect_true(all(c("\"GET:/b\"", "\"GET:/c\"", "\"compute\"") %in% rownames(read$by.total)))
})

test_that("an app that profiles itself is not disturbed, and a worker is chosen by its number", {
  own <- withr::local_tempfile()
  it <- local_profiled(
    "--workers", "2",
    lines = c(sprintf("if (Sys.getenv('ROOKERY_WORKER') == '1') Rprof('%s')", own), profiled_app)
  )
  expect_true(wait_until(function() grepl("worker 1 \\([0-9]+\\) is ready", it$tell())))
  asked <- it$profile("--seconds", "1", "--worker", "1")
  expect_equal(exit_of(asked), 0)
  expect_match(asked$tell(), "worker 1 \\([0-9]+\\) was not profiled: the app profiles itself")
  asked <- it$profile("--seconds", "1", "--worker", "0")
  expect_equal(exit_of(asked), 0)
  expect_no_match(asked$tell(), "was not profiled")
  asked <- it$profile("--seconds", "1", "--worker", "2")
  expect_equal(exit_of(asked), 1)
  expect_match(asked$tell(), "there is no worker 2")
})

test_that("an app's own profile with the usual interval takes the place of a running one", {
  own <- withr::local_tempfile()
  it <- local_profiled(lines = c(
    "list(call = function(req) {",
    sprintf("  if (req$PATH_INFO == '/own') Rprof('%s', interval = 0.01)", own),
    "  open <- Sys.readlink(list.files('/proc/self/fd', full.names = TRUE))",
    sprintf("  list(status = 200L, headers = list(), body = as.character('%s' %%in%% open))", own),
    "})"
  ))
  asked <- it$profile("--seconds", "60")
  expect_true(wait_until(function() grepl("profiling for 60 s", asked$tell())))
  Sys.sleep(1)
  expect_equal(rawToChar(fetch(paste0(it$url, "/own"))$content), "TRUE")
  asked$signal(tools::SIGINT)
  expect_equal(exit_of(asked), 0)
  expect_match(asked$tell(), "was profiled until the app called Rprof() itself", fixed = TRUE)
  expect_equal(rawToChar(fetch(paste0(it$url, "/"))$content), "TRUE")
})

test_that("a profile counts the time of R's thread and not that of the network", {
  skip_if_not(dir.exists("/proc/self/task"), "only Linux has a timer for each thread")
  dir <- normalizePath(withr::local_tempdir())
  writeLines("a", file.path(dir, "a.txt"))
  socket <- withr::local_tempfile(pattern = "a", tmpdir = "/tmp")
  it <- local_r(c(
    sprintf("stop_admin <- rookery:::admin_start('unix:%s', '%s')", socket, dir),
    "port <- rookery::randomPort()",
    sprintf("static <- list('/files' = '%s')", dir),
    "app <- list(call = function(req) NULL, staticPaths = static)",
    "server <- rookery::startServer('127.0.0.1', port, app)",
    "rookery:::admin_serves('http://127.0.0.1')",
    "cat('port', port, '\\n')",
    "while (TRUE) rookery::service(1000)"
  ))
  expect_true(wait_until(function() grepl("port [0-9]+", it$tell())))
  url <- paste0("http://127.0.0.1:", sub("(?s).*port ([0-9]+).*", "\\1", it$tell(), perl = TRUE))
  profile <- profile_of(paste0("unix:", socket), "--seconds", "60")
  expect_true(wait_until(function() grepl("profiling for 60 s", profile$tell())))
  before <- network_time(it$process$get_pid())
  # 30 intervals.
  expect_true(wait_until(function() {
    requests_to(list(url = url), rep("/files/a.txt", 200))(10)
    network_time(it$process$get_pid()) - before > 0.3
  }, 120))
  profile$signal(tools::SIGINT)
  expect_equal(exit_of(profile), 0)
  samples <- sub("(?s).*?([0-9]+) samples of R.*", "\\1", profile$tell(), perl = TRUE)
  expect_lt(as.numeric(samples), 15)
})

test_that("unloading the package ends a profile and the thread that watches it", {
  dir <- normalizePath(withr::local_tempdir())
  socket <- withr::local_tempfile(pattern = "a", tmpdir = "/tmp")
  it <- local_r(c(
    sprintf("stop_admin <- rookery:::admin_start('unix:%s', '%s')", socket, dir),
    "server <- rookery::startServer('127.0.0.1', 0, list(call = function(req) NULL))",
    "rookery:::admin_serves('http://127.0.0.1')",
    "is_profiled <- function() {",
    "  open <- Sys.readlink(list.files('/proc/self/fd', full.names = TRUE))",
    "  any(grepl('/profile-[0-9]+[.]out', open))",
    "}",
    "until <- Sys.time() + 60",
    "while (!is_profiled() && Sys.time() < until) rookery::service(20)",
    "# The thread opens the file within 50 ms.",
    "rookery::service(200)",
    "cat('before', is_profiled(), '\\n')",
    "unloadNamespace('rookery')",
    "# An admin connection of `rookery profile` may end a moment later, and the thread with it.",
    "until <- Sys.time() + 20",
    "while (is_profiled() && Sys.time() < until) Sys.sleep(0.02)",
    "cat('after', is_profiled(), '\\n')"
  ))
  expect_true(wait_until(function() file.exists(socket)))
  asked <- profile_of(paste0("unix:", socket), "--seconds", "120")
  expect_equal(exit_of(it), 0, info = it$tell())
  expect_match(it$tell(), "before TRUE \nafter FALSE", fixed = TRUE)
})

test_that("Ctrl-C ends a profile early and writes what there is", {
  it <- local_profiled()
  run <- requests_to(it, rep("/compute", 3))
  asked <- it$profile("--seconds", "120")
  expect_true(wait_until(function() {
    run()
    grepl("profiling for 120 s", asked$tell())
  }))
  run(1)
  asked$signal(tools::SIGINT)
  wait_until(function() {
    run()
    !asked$process$is_alive()
  })
  expect_equal(exit_of(asked), 0)
  expect_match(asked$tell(), "samples of R")
  expect_match(readLines(asked$output, n = 1), "sample.interval=20007")
})

test_that("a worker that dies during a profile is named, and its replacement is profiled", {
  it <- local_profiled()
  asked <- it$profile("--seconds", "6")
  expect_true(wait_until(function() grepl("profiling for 6 s", asked$tell())))
  Sys.sleep(1)
  pid <- it$status()$pid
  tools::pskill(pid, tools::SIGKILL)
  expect_equal(exit_of(asked), 0)
  expect_match(asked$tell(), paste0("worker 0 \\(", pid, "\\) ended during the profile"))
})

test_that("a server without a supervisor is profiled as well", {
  dir <- normalizePath(withr::local_tempdir())
  writeLines(profiled_app, file.path(dir, "app.R"))
  socket <- withr::local_tempfile(pattern = "a", tmpdir = "/tmp")
  it <- local_r(embedded_call(dir, socket))
  it$url <- sub(" .*", "", expect_serving(it))
  it$status <- function() status_of(dir, simplifyVector = FALSE)$workers[[1]]
  run <- requests_to(it, rep("/short", 40))
  asked <- profile_of(dir, "--seconds", "3")
  wait_until(function() {
    run()
    !asked$process$is_alive()
  })
  expect_equal(exit_of(asked), 0)
  expect_match(asked$tell(), "GET:/short")
  expect_match(stack_during(it, "/compute", "handler")$calls, "compute < handler")
})

test_that("R without a profiler is reported as such, and a file that cannot be written too", {
  expect_equal(start_profile(file.path(tempdir(), "no", "folder"), 0.01), 5L)
  path <- withr::local_tempfile()
  none <- function(...) stop("R profiling is not available on this system")
  expect_equal(start_profile(path, 0.01, none), 3L)
})
