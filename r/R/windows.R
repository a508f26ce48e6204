# Functions for the differences of Windows, which has no signals, no fork, no Unix sockets and no
# supervisor.

is_windows <- function() {
  identical(.Platform$OS.type, "windows")
}

# Raises an error on any other system than Linux, for something that needs workers.
only_on_linux <- function(what, instead, argument) {
  if (is_windows() || Sys.info()[["sysname"]] != "Linux") {
    abort(paste0(what, " needs Linux: ", instead), "rookery_unsupported", argument = argument)
  }
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
