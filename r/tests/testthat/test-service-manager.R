# One R process as a service, with a service manager for tests (manager.py).

skip_if_not_installed("processx")
skip_if_not_installed("curl")

# Runs `rookery serve` as systemd would. `$ask()` sends a command to the manager, and `$get()` a
# request to the server.
local_service <- function(app, ..., watchdog = 0, env = parent.frame(), environment = character()) {
  python <- Sys.which("python3")[[1]]
  skip_if(!nzchar(python), "no python3")
  skip_on_os(c("mac", "windows", "solaris"))
  output <- withr::local_tempfile(lines = character(), .local_envir = env)
  path <- withr::local_tempfile(pattern = "m", tmpdir = "/tmp", .local_envir = env)
  process <- processx::process$new(
    # `env` restores the default handling of these signals, as local_process() does.
    Sys.which("env")[[1]],
    as.character(c(
      "--default-signal=INT,HUP", python, normalizePath(test_path("manager.py")), path, output,
      format(watchdog, scientific = FALSE),
      system.file("exec", "rookery", package = "rookery"), "serve", app, ...
    )),
    stdin = "|", stdout = "|", stderr = "",
    env = c(
      "current", R_LIBS = paste(.libPaths(), collapse = .Platform$path.sep), R_TESTS = "",
      PATH = paste(R.home("bin"), Sys.getenv("PATH"), sep = .Platform$path.sep), environment
    ),
    cleanup = TRUE, cleanup_tree = TRUE
  )
  it <- conversation(process, path, output, "manager", env)
  it$get <- function(path = "/", ...) {
    rawToChar(
      curl::curl_fetch_memory(
        paste0("http://127.0.0.1:", it$ask("port"), path), curl::new_handle(timeout = 60, ...)
      )$content
    )
  }
  it
}

# The next notification of the manager, read once, because expect_match() evaluates its argument
# twice.
expect_heard <- function(it, pattern) {
  said <- it$ask("hear")
  expect_match(said, pattern)
}

hello <- c(
  "rookery::runServer('127.0.0.1', 1, list(",
  "  call = function(req) list(status = 200L, body = paste(req$SERVER_PORT, Sys.getenv('NOTIFY_SOCKET'), Sys.getenv('LISTEN_FDS')))",
  "))"
)

test_that("one worker serves on the sockets of a service manager, and reports its state", {
  it <- local_service(local_app("app.R" = hello), "--log=none", watchdog = 400000)
  port <- it$ask("port")
  # Sent before R listens, so the request waits. Processes of the app do not inherit the manager's
  # variables.
  expect_equal(it$get(), paste0(port, "  "))
  said <- it$ask("hear")
  where <- paste0("Serving on http://127.0.0.1:", port, " and ", it$path)
  expect_equal(said, paste0("READY=1|STATUS=", where, "|MAINPID=", it$ask("pid")))
  expect_match(
    it$tell(),
    paste0(
      "the server accepts connections on 127.0.0.1:", port, " and ", it$path, ", the sockets that ",
      "the service manager \\(systemd\\) has opened, and ignores `--host` and `--port`\n.*", where,
      " \\(Ctrl-C stops\\)$"
    )
  )
  handle <- curl::new_handle(unix_socket_path = it$path, timeout = 60)
  expect_equal(curl::curl_fetch_memory("http://a/", handle)$status_code, 200L)
  for (i in 1:3) expect_equal(it$ask("alive"), "WATCHDOG=1")
  # The worker is replaced.
  it$ask("signal", 1)
  expect_heard(it, "^RELOADING=1\\|MONOTONIC_USEC=[0-9]+\\|STATUS=Replacing workers")
  expect_heard(it, paste0("^READY=1\\|STATUS=", where))
  expect_equal(it$get(), paste0(port, "  "))
  it$ask("signal", 15)
  expect_equal(it$ask("hear"), "STOPPING=1|STATUS=Finishing the requests in progress")
  expect_equal(it$ask("end"), "0")
  # The socket is the manager's.
  expect_true(file.exists(it$path))
})

test_that("a busy R process does not trigger the watchdog", {
  it <- local_service(
    local_app("app.R" = "function(req) { if (req$PATH_INFO == '/busy') { t <- Sys.time(); while (Sys.time() < t + 3) {} }; list(status = 200L, body = 'x') }"),
    "--log=none",
    watchdog = 400000
  )
  expect_heard(it, "^READY=1")
  url <- paste0("http://127.0.0.1:", it$ask("port"), "/busy")
  busy <- parallel_pool()
  is_over <- FALSE
  curl::multi_add(
    curl::new_handle(url = url), pool = busy, done = function(...) is_over <<- TRUE,
    fail = function(why) stop(why)
  )
  curl::multi_run(timeout = 0.2, pool = busy)
  for (i in 1:4) expect_equal(it$ask("alive"), "WATCHDOG=1")
  expect_true(wait_until(function() {
    curl::multi_run(timeout = 0.1, pool = busy)
    is_over
  }))
})

test_that("clients of a stopped server get the worker's next server that has an app", {
  it <- local_service(local_app("app.R" = c(
    "none <- rookery::startServer('127.0.0.1', 0, list())",
    "first <- rookery::startServer('127.0.0.1', 1, function(req) list(status = 200L, body = 'first'))",
    "first$stop()",
    "Sys.sleep(0.5)",
    "rookery::runServer('127.0.0.1', 1, function(req) list(status = 200L, body = paste('second', Sys.getpid())))"
  )), "--log=none")
  answer <- function() tryCatch(it$get(), error = function(error) "")
  expect_true(wait_until(function() grepl("^second", answer())))
  said <- answer()
  Sys.sleep(1.5)
  expect_equal(answer(), said)
  expect_no_match(it$tell(), "has finished|started again")
})

test_that("the app may ask for the port of the service manager", {
  it <- local_service(local_app("app.R" = hello), "--log=none", "--port", "{port}")
  port <- it$ask("port")
  expect_heard(it, paste0("^READY=1\\|STATUS=Serving on http://127.0.0.1:", port))
  expect_equal(it$get(), paste0(port, "  "))
})

test_that("a server without the sockets does not count as ready", {
  it <- local_service(
    local_app("app.R" = c("none <- rookery::startServer('127.0.0.1', 0, list())", "NULL")),
    "--log=none"
  )
  expect_heard(it, "^STATUS=.*its last value is NULL, not an app.*\\|EXIT_STATUS=3$")
})

test_that("SIGHUP after SIGTERM does not count as the second signal", {
  skip_if_not_installed("promises")
  flag <- withr::local_tempfile()
  it <- local_service(local_app("app.R" = c(
    "function(req) {",
    "  cat('begun\\n')",
    "  promises::promise(function(resolve, reject) {",
    sprintf("    look <- function() if (file.exists('%s')) resolve(list(status = 200L, body = 'x')) else later::later(look, 0.1)", flag),
    "    look()",
    "  })",
    "}"
  )), "--log=none")
  expect_heard(it, "^READY=1")
  asked <- parallel_pool()
  is_over <- FALSE
  over <- function(...) is_over <<- TRUE
  handle <- curl::new_handle(url = paste0("http://127.0.0.1:", it$ask("port"), "/"))
  curl::multi_add(handle, pool = asked, done = over, fail = over)
  expect_true(wait_until(function() {
    curl::multi_run(timeout = 0.1, pool = asked)
    grepl("begun", it$tell())
  }))
  it$ask("signal", 15)
  expect_heard(it, "^STOPPING=1")
  it$ask("signal", 1)
  file.create(flag)
  expect_true(wait_until(function() {
    curl::multi_run(timeout = 0.1, pool = asked)
    is_over
  }))
  expect_equal(it$ask("end"), "0")
})

test_that("HTTPS is used on the sockets, whatever port the app asks for", {
  it <- local_service(
    local_app("app.R" = hello), "--log=none", "--tls", "dev",
    environment = c(R_USER_CACHE_DIR = withr::local_tempdir())
  )
  expect_heard(it, "^READY=1\\|STATUS=Serving on https://127.0.0.1:")
  answer <- curl::curl_fetch_memory(
    paste0("https://127.0.0.1:", it$ask("port"), "/"),
    curl::new_handle(ssl_verifypeer = FALSE, ssl_verifyhost = FALSE, timeout = 60)
  )
  expect_equal(answer$status_code, 200L)
})

test_that("an unhandled error of the app is reported with its status", {
  it <- local_service(local_app("app.R" = c(
    "try(stop('caught'), silent = TRUE)",
    "tryCatch(warning('also'), warning = function(warning) NULL)",
    "load_data <- function() stop('\\n the data is not there\\nand more')",
    "load_data()"
  )), "--log=none", "--start-retries", "0")
  expect_heard(it, "^STATUS=The app did not start: Error in load_data\\(\\) \\(app\\.R:3\\): the data is not there\\|EXIT_STATUS=3$")
  expect_equal(it$ask("end"), "3")
  expect_match(it$tell(), "the data is not there\nand more")
})

test_that("repeated failures are reported with their number", {
  it <- local_service(local_app("app.R" = c(
    "function(req) { later::later(function() tools::pskill(Sys.getpid(), 9), 0); list(status = 200L, body = 'x') }"
  )), "--log=none")
  expect_heard(it, "^READY=1")
  for (i in 1:6) {
    tryCatch(it$get(), error = function(error) NULL)
    Sys.sleep(0.5)
  }
  heard <- character()
  expect_true(wait_until(
    function() {
      any(grepl(
        "workers have failed [5-9] times within a minute", heard <<- c(heard, it$ask("hear"))
      ))
    }
  ))
})
