# Development from an R session: the program `rookery dev` as a background process.

# The maximum time in seconds until `rookery dev` has to listen.
dev_timeout <- 60

#' Develop an app from an R session
#'
#' `dev()` starts the program `rookery dev` as a background process and returns, so
#' that the console stays free. The program serves the app, starts R again when a
#' file of the app changes, and reloads the open pages. The vignette *Development*
#' describes it. `stop_dev()` stops the program; it also stops when the session ends.
#'
#' A session has at most one such program: a further call of `dev()` stops the
#' former one. Apps need Linux. A static site can be developed on macOS as well.
#' In a script that is run as a background job of RStudio or Positron, call
#' `dev("app/", wait = TRUE)`.
#'
#' @param path The app, document or folder, as for [serve()].
#' @param ... Must be empty.
#' @param port The port, or `NULL` for 8000, or the next free one if it is in use.
#' @param open Whether to open the app: in the viewer of RStudio or Positron, or
#'   in a browser. Or a function that is called with the address.
#' @param wait Whether to wait until the program ends, and to show its output
#'   meanwhile. An interrupt stops the program.
#' @return `dev()` returns the address of the app invisibly. `stop_dev()` returns
#'   invisibly whether a program was running.
#' @examples
#' \dontrun{
#' dev("app/")
#' stop_dev()
#' }
#' @export
dev <- function(path = ".", ..., port = NULL, open = interactive(), wait = FALSE) {
  check_dots("dev()", ..., known = c("port", "open", "wait"))
  if (!is.character(path) || length(path) != 1 || is.na(path)) {
    abort_argument("`path` must be a string.", argument = "path")
  }
  check_open(open)
  check_flag(wait, "wait")
  if (!is.null(port)) port <- serve_address("127.0.0.1", port, NULL)$port
  not_on_windows("`dev()`", "run `rookery dev` in a terminal.", argument = "path")
  stop_dev()
  program <- system.file("exec", "rookery", package = "rookery", mustWork = TRUE)
  folder <- tempfile("rookery-dev")
  dir.create(folder)
  output <- file.path(folder, "output.txt")
  arguments <- c(
    "dev", "--open=no", "--log=none", if (!is.null(port)) paste0("--port=", port), "--",
    path.expand(path)
  )
  # The R installation and the libraries of this session.
  environment <- c(
    PATH = paste(R.home("bin"), Sys.getenv("PATH"), sep = ":"),
    R_LIBS = paste(.libPaths(), collapse = ":")
  )
  words <- c("env", paste0(names(environment), "=", environment), program, arguments)
  # The shell writes its process id, which becomes that of the program.
  script <- paste(
    "echo $$ >", shQuote(file.path(folder, "pid")), "; exec",
    paste(shQuote(words), collapse = " "), ">", shQuote(output), "2>&1"
  )
  # In the background, the shell ignores Ctrl-C, and the program inherits this.
  system(paste("sh -c", shQuote(script)), wait = FALSE)
  pid <- dev_pid(file.path(folder, "pid"))
  running <- list(pid = pid, output = output, folder = folder)
  .globals$dev <- running
  if (is.null(.globals$stops_dev)) {
    .globals$stops_dev <- TRUE
    reg.finalizer(.globals, function(globals) stop_dev(), onexit = TRUE)
  }
  place <- dev_place(running)
  if (!wait) {
    message("Serving on ", place, " for development (stop_dev() stops it).\nOutput: ", output)
  }
  open_place(open, dev_token_url(output) %||% place)
  if (wait) dev_wait(running)
  invisible(place)
}

#' @rdname dev
#' @export
stop_dev <- function() {
  running <- .globals$dev
  .globals$dev <- NULL
  if (is.null(running)) {
    return(invisible(FALSE))
  }
  was_running <- dev_is_running(running$pid)
  if (was_running) {
    tools::pskill(running$pid, tools::SIGTERM)
    until <- Sys.time() + 10
    while (dev_is_running(running$pid) && Sys.time() < until) Sys.sleep(0.02)
  }
  unlink(running$folder, recursive = TRUE)
  invisible(was_running)
}

# Shows the output of the program until it ends.
dev_wait <- function(running) {
  on.exit(stop_dev())
  shown <- 0L
  repeat {
    is_running <- dev_is_running(running$pid)
    lines <- dev_output(running$output)
    writeLines(lines[seq_along(lines) > shown], stderr())
    shown <- length(lines)
    if (!is_running) break
    Sys.sleep(0.1)
  }
}

dev_is_running <- function(pid) {
  # Signal 0 only checks whether the process exists.
  isTRUE(tools::pskill(pid, 0L))
}

dev_pid <- function(path) {
  until <- Sys.time() + dev_timeout
  while (Sys.time() < until) {
    text <- if (file.exists(path)) readLines(path, warn = FALSE)
    if (length(text) == 1 && nzchar(text)) {
      return(as.integer(text))
    }
    Sys.sleep(0.01)
  }
  abort("The program `rookery dev` cannot be started.", "rookery_error")
}

# Waits until the program listens, and returns its address. Its output is the error if it ends.
dev_place <- function(running) {
  until <- Sys.time() + dev_timeout
  repeat {
    is_running <- dev_is_running(running$pid)
    lines <- dev_output(running$output)
    served <- grep("^Serving on \\S+", lines, value = TRUE)
    if (length(served) > 0) {
      return(sub("^Serving on (\\S+).*", "\\1", served[[1]]))
    }
    if (!is_running || Sys.time() > until) break
    Sys.sleep(0.05)
  }
  stop_dev()
  abort(paste(c("`rookery dev` has ended:", lines), collapse = "\n"), "rookery_error")
}

# Returns the address that gives a browser access to the details of errors.
dev_token_url <- function(output) {
  lines <- dev_output(output)
  found <- regmatches(lines, regexpr("https?://\\S+[?]token=\\S+", lines))
  if (length(found) > 0) found[[1]]
}

dev_output <- function(output) {
  if (file.exists(output)) readLines(output, warn = FALSE) else character()
}
