# Workers under a supervisor for tests (supervisor.py).

# Runs a program that responds to each line of its stdin with a line. The output of what it runs is
# in the file `output`.
conversation <- function(process, path, output, who, env) {
  withr::defer({
    # The program ends at the end of its stdin, together with what it runs.
    close(process$get_input_connection())
    process$wait(5000)
    process$kill_tree()
  }, envir = env)
  it <- list(process = process, path = path, tell = function() {
    paste(readLines(output, warn = FALSE), collapse = "\n")
  })
  it$ask <- function(...) {
    process$write_input(paste0(paste(...), "\n"))
    answer <- character()
    has_answer_or_ended <- function() {
      answer <<- process$read_output_lines(1)
      length(answer) == 1 || !process$is_alive()
    }
    if (!wait_until(has_answer_or_ended, 90)) {
      stop("the ", who, " does not answer:\n", it$tell())
    }
    if (length(answer) == 0) stop("the ", who, " has ended:\n", it$tell())
    answer
  }
  it
}

# Runs a program with what a supervisor passes to a worker.
local_supervisor <- function(
  program, dir = tempdir(), env = parent.frame(), environment = character()
) {
  python <- Sys.which("python3")[[1]]
  testthat::skip_if(!nzchar(python), "no python3")
  testthat::skip_on_os(c("mac", "windows", "solaris"))
  output <- withr::local_tempfile(lines = character(), .local_envir = env)
  # The path of a socket has at most 107 bytes.
  path <- withr::local_tempfile(pattern = "w", tmpdir = "/tmp", .local_envir = env)
  process <- processx::process$new(
    python,
    c(normalizePath(testthat::test_path("supervisor.py")), path, output, program),
    stdin = "|", stdout = "|", stderr = "", wd = dir,
    env = c(
      "current", R_LIBS = paste(.libPaths(), collapse = .Platform$path.sep), R_TESTS = "",
      environment
    ),
    cleanup = TRUE, cleanup_tree = TRUE
  )
  it <- conversation(process, path, output, "supervisor", env)
  # Returns the fields of the scoreboard as a list.
  it$board <- function() {
    pairs <- strsplit(strsplit(it$ask("board"), " ", fixed = TRUE)[[1]], "=", fixed = TRUE)
    stats::setNames(
      lapply(pairs, function(pair) {
        if (grepl("^[0-9]+$", pair[[2]])) as.numeric(pair[[2]]) else pair[[2]]
      }),
      vapply(pairs, `[[`, "", 1)
    )
  }
  # Sends a request to the worker; `call` states its properties, as rings.py reads them.
  it$get <- function(path = "/", call = NULL, headers = character(), ...) {
    handle <- curl::new_handle(unix_socket_path = it$path, timeout = 60, ...)
    if (!is.null(call)) headers <- c(headers, "rookery-call" = call)
    if (length(headers) > 0) curl::handle_setheaders(handle, .list = as.list(headers))
    answer <- curl::curl_fetch_memory(paste0("http://worker", path), handle)
    answer$text <- rawToChar(answer$content)
    answer
  }
  it$expect_ready <- function(flags = 0) {
    said <- it$ask("receive")
    if (said != paste("R", flags)) stop("it is not ready but says ", said, ":\n", it$tell())
  }
  it
}

# Runs a worker that evaluates R code.
local_worker <- function(code, dir = tempdir(), env = parent.frame(), environment = character()) {
  file <- withr::local_tempfile(
    lines = c("library(rookery)", code), fileext = ".R", .local_envir = env
  )
  local_supervisor(c(file.path(R.home("bin"), "Rscript"), file), dir, env, environment)
}

# Runs a worker that serves a path, as `rookery serve` starts it.
local_serving_worker <- function(path, dir = tempdir(), env = parent.frame()) {
  file <- system.file("serve", "cli.R", package = "rookery")
  asked <- paste0("target=", path, "\nhost=127.0.0.1\nport=0\nlog=nothing\nlog_format=common\n")
  command <- c(
    file.path(R.home("bin"), "R"), "--no-echo", "--no-restore", "--no-save", paste0("--file=", file)
  )
  folder <- if (dir.exists(path)) path else dirname(path)
  local_supervisor(command, folder, env, c(ROOKERY_INTERNAL_SETTINGS = asked))
}

# Returns the properties of a request with a ticket's number and place, and further ones.
call_of <- function(sequence, place, rest = "http - - - - -") {
  paste("1", sprintf("%x", bitwOr(bitwShiftL(sequence, 10L), place)), rest)
}
