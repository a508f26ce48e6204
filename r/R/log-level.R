# How much httpuv's C++ code logs of the network's ups and downs. Here they are not logged at all, so the level is only
# remembered, for those who set and restore it. What log_error() says of an app's errors is said at every level, as there.

log_levels <- c("OFF", "ERROR", "WARN", "INFO", "DEBUG")
.log <- new.env(parent = emptyenv())
.log$level <- "ERROR"

# The level; or sets it and returns the one before, invisibly.
logLevel <- function(level = NULL) {
  if (is.null(level)) {
    return(.log$level)
  }
  level <- match.arg(level, log_levels)
  invisible(log_level(level))
}

log_level <- function(level) {
  was <- .log$level
  if (level != "") {
    .log$level <- level
  }
  was
}
