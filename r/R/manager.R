# This R as a service that systemd, or another that speaks its protocols, has started by `rookery serve`: what the manager is told, and
# the sockets that it has opened. Elsewhere nobody is told anything.

# Takes what the manager has given this process.
join_manager <- function() {
  wrong <- .Call(ffi_manager_join)
  if (is.character(wrong)) {
    abort(wrong, "rookery_no_address", status = 4L)
  }
}

# Whether a server for `app` is to listen on the manager's sockets, as takes_worker_socket() for a supervisor's.
takes_given_sockets <- function(app) {
  has_app <- !is.null(app) && !(is.list(app) && length(app) == 0)
  has_app && isTRUE(.Call(ffi_manager_sockets))
}

has_given_sockets <- function() {
  !is.null(.Call(ffi_manager_sockets))
}

# Where these are, as people and browsers take it.
given_places <- function(scheme) {
  lines <- strsplit(.Call(ffi_manager_places), "\n", fixed = TRUE)[[1]]
  vapply(lines, function(line) {
    parts <- strsplit(line, " ", fixed = TRUE)[[1]]
    if (parts[[1]] == "tcp") url_of(parts[[2]], parts[[3]], scheme) else sub("^unix ", "", line)
  }, "", USE.NAMES = FALSE)
}

# What the service is doing, and a line for people.
tell_manager <- function(what, status) {
  .Call(ffi_manager_tell, match(what, c("ready", "reloading", "stopping")) - 1L, status)
}

# The first line of why it ends, behind what it is about, and its exit status.
tell_manager_failure <- function(message, status, about = "") {
  # What is no text in its encoding cannot be taken apart.
  message <- iconv(enc2utf8(message), "UTF-8", "UTF-8", sub = "byte")
  lines <- trimws(strsplit(message, "\n", fixed = TRUE)[[1]])
  .Call(ffi_manager_failed, paste0(about, c(lines[nzchar(lines)], "")[[1]]), status)
}

# Runs `body`, and has the manager hear of an error of the app's that nobody catches: R says it on stderr and ends with status 1, as without us.
# Those of handlers are caught where these are called, so they do not come here.
told_of_failure <- function(body) {
  withCallingHandlers(
    body,
    error = function(error) {
      if (!inherits(error, "rookery_error")) {
        # It must not stand in place of the error itself.
        tryCatch(tell_manager_failure(conditionMessage(error), 1L, "The app has failed: "), error = function(error) NULL)
      }
    }
  )
}
