# Functions for the differences of Windows, which has no signals, no fork, no Unix sockets and no
# supervisor.

is_windows <- function() {
  identical(.Platform$OS.type, "windows")
}

# Runs a program that serves `label` until it ends, like run_child(). The program has the console of
# this process, so Ctrl-C reaches both.
run_windows_child <- function(command, label) {
  status <- with_child_environment(
    command, system2(command$program, shQuote(command$arguments, "cmd"))
  )
  if (status != 0) {
    abort(
      paste0("The R process that served ", label, " ended with status ", status, "."),
      "rookery_exit",
      status = status
    )
  }
  NULL
}

# Raises an error on Windows, for something that Windows does not have.
not_on_windows <- function(what, instead, argument) {
  if (is_windows()) {
    abort(
      paste0(what, " needs Linux or macOS: ", instead), "rookery_unsupported",
      argument = argument
    )
  }
}
