# Ctrl-C, SIGTERM and SIGHUP with handlers of other code, in processes of their own.

skip_if_not_installed("processx")
skip_if_not_installed("curl")

hello <- "function(req) list(status = 200L, headers = list('Content-Type' = 'text/plain'), body = 'hello')"

# A permanent SIGINT handler like those of reticulate, radian and rpy2. `host_chain()` installs it
# in front of the existing one and calls that as well.
host_source <- c(
  "#define R_NO_REMAP",
  "#include <signal.h>",
  "#include <Rinternals.h>",
  "extern int R_interrupts_pending;",
  "static volatile int count;",
  "static struct sigaction before;",
  "static void stay(int number) { count++; R_interrupts_pending = 1; }",
  "static void chain(int number) {",
  "    count++;",
  "    if (before.sa_flags & SA_SIGINFO) before.sa_sigaction(number, 0, 0);",
  "    else before.sa_handler(number);",
  "}",
  "static SEXP install(void (*handler)(int)) {",
  "    struct sigaction ours = {.sa_handler = handler, .sa_flags = SA_RESTART};",
  "    sigaction(SIGINT, &ours, &before);",
  "    return R_NilValue;",
  "}",
  "SEXP host_stay(void) { return install(stay); }",
  "SEXP host_chain(void) { return install(chain); }",
  "SEXP host_count(void) { return Rf_ScalarInteger(count); }"
)

# R code that loads the handler.
local_host <- function(env = parent.frame()) {
  dir <- withr::local_tempdir(.local_envir = env)
  writeLines(host_source, file.path(dir, "host.c"))
  skip_if(!nzchar(Sys.which("make")) || !nzchar(Sys.which("cc")), "no C compiler")
  built <- callr::rcmd("SHLIB", "host.c", wd = dir, fail_on_status = FALSE)
  if (built$status != 0) stop(built$stderr)
  library <- file.path(dir, paste0("host", .Platform$dynlib.ext))
  sprintf("dyn.load('%s')", library)
}

# Handlers that are interrupted by a signal from their own process, or by one from outside while
# they sleep.
interrupted_code <- c(
  "library(rookery)",
  "seen <- 0",
  "app <- function(req) {",
  "  tools::pskill(Sys.getpid(), 2)",
  "  repeat sqrt(2)",
  "}",
  "ask <- function(server) {",
  "  socket <- socketConnection('127.0.0.1', server$getPort(), open = 'r+b', blocking = FALSE)",
  "  writeBin(charToRaw('GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n'), socket)",
  "  on.exit(close(socket))",
  "  tryCatch(while (TRUE) service(100), interrupt = function(e) seen <<- seen + 1)",
  "  got <- raw()",
  "  until <- Sys.time() + 60",
  "  while (length(got) == 0 && Sys.time() < until) {",
  "    service(10)",
  "    got <- c(got, readBin(socket, 'raw', 1e4))",
  "  }",
  "  cat(substr(rawToChar(got), 1, 12), '\\n')",
  "}"
)

test_that("repeated Ctrl-C interrupts handler and loop each time, with the host's SIGINT handler", {
  skip_if_not_installed("callr")
  host <- local_host()
  for (install in c("host_stay", "host_chain")) {
    it <- local_r(c(
      interrupted_code, host, sprintf(".Call('%s')", install),
      "server <- startServer('127.0.0.1', 0, app)",
      "for (i in 1:4) ask(server)",
      "cat('seen', seen, 'of', .Call('host_count'), '\\n')"
    ))
    expect_equal(exit_of(it), 0)
    expect_equal(
      lengths(regmatches(it$tell(), gregexpr("HTTP/1.1 500", it$tell()))), 4, info = it$tell()
    )
    expect_match(it$tell(), "seen 4 of")
  }
})

test_that("Ctrl-C ends serve() repeatedly, with the host's handler behind or in front of ours", {
  skip_if_not_installed("callr")
  host <- local_host()
  it <- local_r(c(
    "library(rookery)", host, ".Call('host_stay')",
    "interrupt_soon <- function() later::later(function() tools::pskill(Sys.getpid(), 2), 0.2)",
    "for (i in 1:3) {",
    "  interrupt_soon()",
    paste0("  serve(", hello, ", port = 0, log = FALSE)"),
    "}",
    "cat('behind', .Call('host_count'), '\\n')",
    # While serve() runs, a host installs a permanent handler that calls ours.
    "later::later(function() .Call('host_chain'), 0.1)",
    "for (i in 1:3) {",
    "  interrupt_soon()",
    paste0("  serve(", hello, ", port = 0, log = FALSE)"),
    "}",
    "cat('in front', .Call('host_count'), '\\n')",
    # Outside of serve(), the handler is the host's again.
    "got <- tryCatch({ tools::pskill(Sys.getpid(), 2); for (i in 1:6000) Sys.sleep(0.01); 'nothing' }, interrupt = function(e) 'interrupt')",
    "cat('afterwards', got, '\\n')"
  ))
  expect_equal(exit_of(it), 0)
  expect_equal(lengths(regmatches(it$tell(), gregexpr("Serving on", it$tell()))), 6)
  expect_match(it$tell(), "behind 0")
  expect_match(it$tell(), "in front 3")
  expect_match(it$tell(), "afterwards interrupt")
})

test_that("Ctrl-C ends the loop during Sys.sleep() in a handler", {
  it <- local_r(c(
    interrupted_code,
    "server <- startServer('127.0.0.1', 0, function(req) { cat('asleep\\n'); Sys.sleep(100) })",
    "ask(server)",
    "cat('seen', seen, '\\n')"
  ))
  expect_true(wait_until(function() grepl("asleep", it$tell())))
  Sys.sleep(0.3)
  it$signal(2)
  expect_equal(exit_of(it), 0)
  expect_match(it$tell(), "HTTP/1.1 500 \nseen 1")

  it <- local_r(c(
    "library(rookery)",
    "serve(function(req) { cat('asleep\\n'); Sys.sleep(100) }, port = 0, log = FALSE)",
    "cat('after serving\\n')"
  ))
  client <- local_requests(expect_serving(it), 1)
  expect_true(wait_until(function() grepl("asleep", it$tell())))
  Sys.sleep(0.3)
  it$signal(2)
  expect_equal(exit_of(it), 0)
  expect_match(it$tell(), "after serving")
  client$wait(60000)
  expect_equal(client$get_result(), 500L)
})

test_that("an interrupt of one handler that takes effect in the next ends the loop as well", {
  it <- local_r(c(
    "library(rookery)",
    "count <- 0",
    "server <- startServer('127.0.0.1', 0, function(req) {",
    "  count <<- count + 1",
    # R checks for interrupts once in a thousand evaluations.
    "  if (count == 1) tools::pskill(Sys.getpid(), 2) else repeat sqrt(2)",
    "  list(status = 200L, headers = list(), body = 'ok')",
    "})",
    "socket <- socketConnection('127.0.0.1', server$getPort(), open = 'r+b', blocking = FALSE)",
    "writeBin(charToRaw(strrep('GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n', 2)), socket)",
    "got <- tryCatch({ until <- Sys.time() + 60; while (Sys.time() < until) service(100); 'nothing' }, interrupt = function(e) 'interrupt')",
    "cat('got', got, '\\n')"
  ))
  expect_equal(exit_of(it), 0)
  expect_match(it$tell(), "got interrupt")
})

test_that("a previous options(interrupt=) is called, and restored after unloading", {
  it <- local_r(c(
    "options(interrupt = function() cat('mine\\n'))",
    interrupted_code,
    "server <- startServer('127.0.0.1', 0, app)",
    "ask(server)",
    "ask(server)",
    "unloadNamespace('rookery')",
    "cat('seen', seen, deparse(body(getOption('interrupt'))), '\\n')"
  ))
  expect_equal(exit_of(it), 0)
  # On a busy machine, R may notice an interrupt in the handler and again in the loop.
  calls <- lengths(regmatches(it$tell(), gregexpr("(?<!\")mine", it$tell(), perl = TRUE)))
  expect_true(calls %in% 2:4, info = it$tell())
  expect_match(it$tell(), "seen 2 cat\\(\"mine")
})

# ---- ignored signals ------------------------------------------------------

# Runs `rookery ...` as a shell does that ignores signals.
local_ignoring <- function(signals, ..., env = parent.frame()) {
  program <- system.file("exec", "rookery", package = "rookery")
  path <- paste(R.home("bin"), Sys.getenv("PATH"), sep = .Platform$path.sep)
  command <- paste("trap ''", signals, "; exec", paste(shQuote(c(program, ...)), collapse = " "))
  local_process(c("-c", command), env = env, environment = c(PATH = path), program = "/bin/sh")
}

test_that("an ignored SIGHUP stays ignored: nohup rookery serve app &", {
  it <- local_ignoring("HUP", "serve", local_app("app.R" = hello), "--port", "0", "--log=none")
  url <- expect_serving(it)
  for (i in 1:2) it$signal(1)
  Sys.sleep(0.3)
  expect_equal(fetch(url)$text, "hello")
  it$signal(15)
  expect_equal(exit_of(it), 0)
})

test_that("SIGHUP ends R's serve() otherwise", {
  it <- local_served(local_app("app.R" = hello))
  expect_serving(it)
  it$signal(1)
  expect_equal(exit_of(it), 0)
})

test_that("a child of a process that ignores SIGHUP ignores it as well", {
  dir <- local_app("app.R" = "function(req) list(status = 200L, headers = list(), body = as.character(Sys.getpid()))")
  file <- withr::local_tempfile(
    lines = sprintf("rookery::serve('%s', port = 0, log = FALSE)", dir), fileext = ".R"
  )
  command <- paste("trap '' HUP; exec", shQuote(file.path(R.home("bin"), "Rscript")), shQuote(file))
  it <- local_process(c("-c", command), program = "/bin/sh")
  url <- expect_serving(it)
  child <- fetch(url)$text
  for (pid in c(child, it$process$get_pid())) tools::pskill(as.integer(pid), 1)
  Sys.sleep(0.3)
  expect_equal(fetch(url)$text, child)
  it$signal(15)
  expect_equal(exit_of(it), 0)
  expect_false(is_alive(child))
})

test_that("an ignored SIGINT stays ignored, as for `rookery serve app &` in a script", {
  skip_if(!file.exists("/proc/self/status"), "what is ignored is read from /proc")
  # Sys.sleep() installs a handler of its own.
  app <- local_app("app.R" = "function(req) { Sys.sleep(1); list(status = 200L, headers = list(), body = 'hello') }")
  it <- local_ignoring("INT", "serve", app, "--port", "0", "--log=none")
  url <- expect_serving(it)
  it$signal(2)
  client <- local_requests(url, 1)
  for (i in 1:5) {
    Sys.sleep(0.3)
    it$signal(2)
  }
  client$wait(60000)
  expect_equal(client$get_result(), 200L)
  it$signal(15)
  expect_equal(exit_of(it), 0)
})

test_that("a handler is interrupted at the time limit although SIGINT is ignored", {
  skip_on_os("linux")
  app <- local_app("app.R" = "function(req) { cat('begun\\n'); repeat sqrt(2) }")
  # After the interrupt, R has a second to leave the handler and to respond, which may be too short
  # on a busy machine.
  for (attempt in 1:3) {
    it <- local_ignoring("INT", "serve", app, "--port", "0", "--log=none")
    client <- local_requests(expect_serving(it), 1)
    expect_true(wait_until(function() grepl("begun", it$tell())))
    it$signal(15)
    ended <- exit_of(it)
    client$wait(60000)
    if (ended == 0) break
  }
  expect_equal(ended, 0)
  expect_equal(client$get_result(), 500L)
})

test_that("an interrupt is passed on if another function was installed in front of ours", {
  it <- local_r(c(
    "library(rookery)",
    "service(NA)",
    "mine <- 0",
    "ours <- getOption('interrupt')",
    "options(interrupt = function() { mine <<- mine + 1; ours() })",
    "for (i in 1:3) {",
    "  service(NA)",
    "  withRestarts({ tools::pskill(Sys.getpid(), 2); Sys.sleep(60); cat('slept\\n') }, abort = function() cat('aborted\\n'))",
    "}",
    "cat('mine', mine, '\\n')"
  ))
  expect_equal(exit_of(it), 0, info = it$tell())
  expect_match(it$tell(), "(aborted\\s+){3}mine 3 ")
})

test_that("a forked child may call serve(), which shuts down gracefully after a signal", {
  it <- local_r(c(
    "library(rookery)",
    sprintf("app <- %s", hello),
    "serve_in_fork <- function(from) {",
    "  port <- randomPort()",
    "  child <- parallel::mcparallel({",
    "    serve(app, port = port)",
    "    paste('ended in', from)",
    "  })",
    "  connect <- function() socketConnection('127.0.0.1', port, open = 'r+b', timeout = 1)",
    "  until <- Sys.time() + 60",
    "  while (inherits(suppressWarnings(try(close(connect()), silent = TRUE)), 'try-error') && Sys.time() < until) Sys.sleep(0.05)",
    "  tools::pskill(child$pid, 15)",
    "  cat('child:', suppressWarnings(parallel::mccollect(child))[[1]], '\\n')",
    "}",
    "asking <- randomPort()",
    # Forked from a handler, which the child never leaves, and from the loop.
    "later::later(function() {",
    "  socket <- socketConnection('127.0.0.1', asking, open = 'r+b', blocking = FALSE)",
    "  writeBin(charToRaw('GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n'), socket)",
    "  serve_in_fork('the loop')",
    "}, 0.2)",
    "serve(function(req) {",
    "  serve_in_fork('a handler')",
    "  tools::pskill(Sys.getpid(), 15)",
    "  app(req)",
    "}, port = asking)"
  ))
  expect_equal(exit_of(it), 0, info = it$tell())
  expect_match(it$tell(), "child: ended in the loop", fixed = TRUE)
  expect_match(it$tell(), "child: ended in a handler", fixed = TRUE)
})

test_that("signals end a forked child at once, without an alarm", {
  skip_if(!file.exists("/proc/self/status"), "what is handled is read from /proc")
  it <- local_r(c(
    "library(rookery)",
    "# Which of SIGHUP, SIGALRM and SIGTERM a process handles: the bits of 1, 14 and 15.",
    "handled <- function() {",
    "  mask <- sub('.*\\\\s', '', grep('^SigCgt', readLines('/proc/self/status'), value = TRUE))",
    "  low <- strtoi(substr(mask, nchar(mask) - 3, nchar(mask)), 16)",
    "  paste(c(1, 14, 15)[bitwAnd(low, bitwShiftL(1, c(1, 14, 15) - 1)) != 0], collapse = ' ')",
    "}",
    "later::later(function() {",
    "  there <- tempfile()",
    "  cat('parent:', handled(), '\\n')",
    "  child <- parallel::mcparallel({ cat('child:', handled(), '\\n'); file.create(there); Sys.sleep(600); 'slept' })",
    "  while (!file.exists(there)) Sys.sleep(0.01)",
    "  tools::pskill(child$pid, 15)",
    "  cat('result:', class(suppressWarnings(parallel::mccollect(child))[[1]]), '\\n')",
    "  tools::pskill(Sys.getpid(), 15)",
    "}, 0.2)",
    sprintf("serve(%s, port = 0)", hello)
  ))
  expect_equal(exit_of(it), 0, info = it$tell())
  expect_match(it$tell(), "parent: 1 14 15 \nchild:  \nresult: NULL", fixed = TRUE)
})
