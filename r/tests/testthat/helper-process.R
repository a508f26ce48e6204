# Servers in processes of their own, as users run them, and requests to them.

# Runs R, or another program, with arguments; output goes to one file, also that of `stderr` unless it
# is NULL. `$tell()` returns the output, and `$signal()` sends a signal.
local_process <- function(
  arguments, dir = tempdir(), env = parent.frame(), environment = character(),
                          program = file.path(R.home("bin"), "Rscript"), stderr = "2>&1") {
  output <- withr::local_tempfile(.local_envir = env)
  process <- processx::process$new(
    # If the tests run in the background, these signals may be ignored, and the processes would
    # inherit that.
    Sys.which("env")[[1]],
    c("--default-signal=INT,HUP", program, arguments),
    stdout = output,
    stderr = stderr,
    wd = dir,
    env = c(
      "current",
      R_LIBS = paste(.libPaths(), collapse = .Platform$path.sep),
      # R CMD check sets it for its own R.
      R_TESTS = "",
      environment
    ),
    cleanup = TRUE
  )
  withr::defer(process$kill(), envir = env)
  list(
    process = process,
    # Bytes that are not UTF-8, such as those of a path, become <e9>, because R's regular
    # expressions refuse them.
    tell = function() {
      iconv(paste(readLines(output, warn = FALSE), collapse = "\n"), "UTF-8", "UTF-8", sub = "byte")
    },
    # The method of processx is not used, because it loses the exit status of a process that ends at
    # once.
    signal = function(number) {
      if (process$is_alive()) tools::pskill(process$get_pid(), number) else FALSE
    }
  )
}

# Runs `rookery ...` as in a shell.
local_cli <- function(
  ..., dir = tempdir(), env = parent.frame(), environment = character(), stderr = "2>&1"
) {
  path <- paste(R.home("bin"), Sys.getenv("PATH"), sep = .Platform$path.sep)
  program <- system.file("exec", "rookery", package = "rookery")
  environment <- c(environment, c(PATH = path)[!"PATH" %in% names(environment)])
  local_process(as.character(c(...)), dir, env, environment, program, stderr)
}

# Returns what `rookery status` says of the server of a folder. Its messages are dropped: one comes if a
# process that has too much to do does not answer.
status_of <- function(dir, ...) {
  asked <- local_cli("status", dir, "--json", stderr = NULL)
  exit_of(asked)
  jsonlite::fromJSON(asked$tell(), ...)
}

# Runs an R process that evaluates text.
local_r <- function(text, dir = tempdir(), env = parent.frame(), environment = character()) {
  file <- withr::local_tempfile(lines = text, fileext = ".R", .local_envir = env)
  local_process(file, dir, env, environment)
}

# Runs R's serve() in one process, with the app in `app.R` of a folder, as an object.
local_served <- function(
  dir, arguments = "port = 0", env = parent.frame(), environment = character()
) {
  local_r(
    sprintf("rookery::serve(source('app.R', keep.source = FALSE)$value, %s)", arguments), dir, env,
    environment
  )
}

# Returns the call by which the only R process of a server, which has no supervisor, serves the folder
# of an app, with an admin listener on a socket.
embedded_call <- function(dir, socket) {
  sprintf(
    paste(
      "with(asNamespace('rookery'), serve_here(detect_target('%1$s'), NULL,",
      "serve_address('127.0.0.1', 0), list(), log_target(FALSE), list(),",
      "list(at = 'unix:%2$s', label = '%1$s')))"
    ),
    dir, socket
  )
}

# Waits until `done()` is true or the time is up.
wait_until <- function(done, seconds = 60) {
  until <- Sys.time() + seconds
  while (!isTRUE(done())) {
    if (Sys.time() > until) {
      return(FALSE)
    }
    Sys.sleep(0.02)
  }
  TRUE
}

# Waits until a process reports that it serves.
expect_serving <- function(it) {
  is_serving <- wait_until(function() grepl("Serving on ", it$tell()) || !it$process$is_alive())
  if (!is_serving || !it$process$is_alive()) {
    stop("it does not serve:\n", it$tell())
  }
  sub("^.*Serving on ([^ ]+) .*$", "\\1", it$tell())
}

# Returns the exit status of a process, if it ends in time.
exit_of <- function(it, seconds = 60) {
  it$process$wait(timeout = seconds * 1000)
  if (it$process$is_alive()) {
    stop("it does not end:\n", it$tell())
  }
  it$process$get_exit_status()
}

# Sends one request, without compression by default, so that lengths are those of the body.
fetch <- function(url, ..., path = NULL) {
  handle <- curl::new_handle(timeout = 60, accept_encoding = "identity", ...)
  if (!is.null(path)) {
    curl::handle_setopt(handle, unix_socket_path = path)
  }
  answer <- curl::curl_fetch_memory(url, handle)
  answer$text <- rawToChar(answer$content[answer$content != 0])
  answer
}

# Sends requests at the same time from another process, each over a connection of its own, and
# collects the statuses. The file `sent` has a byte for each request that was sent.
local_requests <- function(url, count, path = NULL, env = parent.frame(), sent = tempfile()) {
  process <- callr::r_bg(
    function(url, count, path, sent) {
      note <- function(type, bytes) if (type == 2) cat("x", file = sent, append = TRUE)
      pool <- curl::new_pool(total_con = count, host_con = count)
      statuses <- integer()
      for (i in seq_len(count)) {
        handle <- curl::new_handle(
          url = url, timeout = 60, forbid_reuse = TRUE, fresh_connect = TRUE, verbose = TRUE,
          debugfunction = note
        )
        if (!is.null(path)) curl::handle_setopt(handle, unix_socket_path = path)
        curl::multi_add(
          handle,
          done = function(answer) statuses <<- c(statuses, answer$status_code),
          fail = function(message) statuses <<- c(statuses, -1L),
          pool = pool
        )
      }
      curl::multi_run(pool = pool)
      statuses
    },
    list(url, count, path, sent)
  )
  withr::defer(process$kill(), envir = env)
  process
}

# Waits until a process has received all signals that were sent to it.
expect_heard <- function(it) {
  status <- sprintf("/proc/%d/status", it$process$get_pid())
  if (file.exists("/proc/self/status")) {
    expect_true(wait_until(
      function() all(grepl(":\\s*0+$", grep("^S[a-z]*Pnd:", readLines(status), value = TRUE)))
    ))
  }
}

# Returns whether a process exists.
is_alive <- function(pid) {
  isTRUE(tools::pskill(as.integer(pid), 0))
}

# Creates a folder with files: local_app(app.R = "...", www = ...).
local_app <- function(..., env = parent.frame()) {
  dir <- withr::local_tempdir(.local_envir = env)
  files <- list(...)
  for (name in names(files)) {
    path <- file.path(dir, name)
    dir.create(dirname(path), recursive = TRUE, showWarnings = FALSE)
    writeLines(files[[name]], path)
  }
  normalizePath(dir)
}

# Installs a package from the lines of its only file, in a library that comes first in .libPaths()
# until the test ends.
local_package <- function(name, lines, exports, imports = "httpuv", env = parent.frame()) {
  library <- withr::local_tempdir(.local_envir = env)
  source <- local_app(
    "DESCRIPTION" = c(
      paste("Package:", name), "Version: 0.1", "Title: T", "Description: D.", "License: MIT",
      "Author: A", "Maintainer: A <a@example.org>",
      paste("Imports:", paste(imports, collapse = ", "))
    ),
    "NAMESPACE" = c(paste0("import(", imports, ")"), paste0("export(", exports, ")")),
    "R/all.R" = lines
  )
  installed <- processx::run(
    file.path(R.home("bin"), "R"),
    c("CMD", "INSTALL", "--no-test-load", "--no-docs", "-l", library, source),
    env = c(
      "current", R_TESTS = "",
      R_LIBS = paste(c(compat_library(), .libPaths()), collapse = .Platform$path.sep)
    ),
    error_on_status = FALSE, stderr_to_stdout = TRUE
  )
  expect_equal(installed$status, 0, info = installed$stdout)
  withr::local_libpaths(library, action = "prefix", .local_envir = env)
}

# Returns a port on which no process listens. It is below the range from which the system assigns
# ports, because such a port could be assigned before it is used.
free_port <- function() {
  as.integer(randomPort(12000L, 32000L))
}

# Returns a pool that sends its requests at the same time. By default, curl delays the second
# request to a host until it knows whether the first connection supports HTTP/2, which libcurl 8.14
# does until the first response.
parallel_pool <- function() {
  curl::new_pool(multiplex = FALSE)
}

# Runs `run` in a forked child and returns its value. A thread of package later may hold a lock of that
# package at the moment of the fork; in the child, which lacks the thread, the next callback of later
# then waits for ever. Such a child is replaced by another one.
in_fork <- function(run) {
  for (attempt in 1:3) {
    child <- parallel::mcparallel(run())
    value <- parallel::mccollect(child, wait = FALSE, timeout = 20)
    if (is.null(value)) {
      tools::pskill(child$pid, tools::SIGKILL)
    }
    suppressWarnings(parallel::mccollect(child))
    if (!is.null(value)) {
      return(value[[1]])
    }
  }
  stop("no forked child has returned a value")
}
