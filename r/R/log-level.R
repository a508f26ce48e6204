# logLevel() of httpuv, which sets how much httpuv's C++ code logs about connections. Rookery has no
# such log, so the level is only stored for code that sets and restores it. Messages of log_error()
# do not depend on the level, as in httpuv.

log_levels <- c("OFF", "ERROR", "WARN", "INFO", "DEBUG")
.log <- new.env(parent = emptyenv())
.log$level <- "ERROR"

# Returns the level, or sets it and invisibly returns the previous one.
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
