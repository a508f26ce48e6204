# The destination of the access log. The server formats and writes the lines on its own thread, once
# the last byte of a response was passed to the operating system. Static files and refused requests
# are therefore logged as well, and R spends no time on the log.

# Checks the arguments `log` and `log_format` of serve(), and returns the destination of the lines.
# Without a format, lines at a terminal are aligned.
log_target <- function(log, format = NULL) {
  if (is.null(format)) {
    format <- if (isTRUE(log) && isatty(stdout())) "terminal" else "common"
  }
  classes <- c("rookery_bad_log", "rookery_bad_argument")
  format <- setting_value(format, "log_format", "`log_format`", classes)
  target <- function(to, path = NULL, call = NULL) {
    list(to = to, path = path, call = call, format = format)
  }
  if (is.function(log)) {
    return(target("call", call = log))
  }
  if (isTRUE(log) || isFALSE(log)) {
    return(target(if (log) "stdout" else "nothing"))
  }
  if (is.character(log) && length(log) == 1 && !is.na(log) && nzchar(log)) {
    return(target("file", path = log_path(log)))
  }
  abort_argument(
    "`log` must be TRUE (lines on stdout), FALSE, the path of a file, ",
    "or a function that is called with the fields of each line.",
    class = "rookery_bad_log"
  )
}

# Returns the absolute path, because the app's R process starts in another folder. The path is
# checked now and not at the first request.
log_path <- function(log) {
  path <- path.expand(log)
  dir <- dirname(path)
  if (!dir.exists(dir)) {
    abort_argument(
      "The folder of the access log, `", dir, "`, does not exist.",
      argument = "log", class = "rookery_bad_log"
    )
  }
  path <- file.path(normalizePath(dir, winslash = "/"), basename(path))
  if (dir.exists(path) || file.access(if (file.exists(path)) path else dir, mode = 2) != 0) {
    abort_argument(
      "The access log `", path, "` cannot be written.",
      argument = "log", class = "rookery_bad_log"
    )
  }
  path
}

# Opens the access log for all servers of this process, and makes JSON objects of what R prints if
# the log consists of such. Returns a function that closes the log.
log_open <- function(target) {
  log_end <- log_open_target(target)
  # At a prompt, users read what R prints.
  if (target$format != "json" || target$to == "call" || interactive()) {
    return(log_end)
  }
  problem <- .Call(ffi_output_json, TRUE)
  if (is.character(problem)) {
    log_error("access log", NULL, paste("what R prints stays as it is:", problem))
  }
  function() {
    .Call(ffi_output_json, FALSE)
    log_end()
  }
}

log_open_target <- function(target) {
  if (target$to == "nothing") {
    return(function() NULL)
  }
  if (target$to == "call") {
    # R CMD check of R 4.2 fails at a literal NA in a call of C.
    no_path <- NA_character_
    .Call(ffi_log_open, no_path, target$format)
    .globals$log_call <- target$call
  } else {
    problem <- .Call(ffi_log_open, if (target$to == "stdout") "" else target$path, target$format)
    if (is.character(problem)) {
      abort(
        paste0("The access log `", target$path, "` cannot be opened: ", problem), "rookery_bad_log",
        argument = "log", reason = problem
      )
    }
  }
  function() {
    log_pump()
    .globals$log_call <- NULL
    .Call(ffi_log_close)
    invisible()
  }
}

# Passes the records of completed requests to the function `log`. service() calls this between
# events, at least every 150 ms. An error of the function is logged, and the function still gets the
# next record.
log_pump <- function() {
  call <- .globals$log_call
  # The function `log` may call service(), and must not be called within itself.
  if (is.null(call) || isTRUE(.globals$is_pumping)) {
    return(invisible())
  }
  .globals$is_pumping <- TRUE
  on.exit(.globals$is_pumping <- FALSE)
  while (!is.null(line <- .Call(ffi_log_next))) {
    tryCatch(call(log_record(line)), error = function(error) log_error("access log", error, NULL))
  }
  lost <- .Call(ffi_log_lost)
  if (lost > 0) {
    log_error(
      "access log", NULL, paste(lost, "lines were dropped because R did not read them in time")
    )
  }
  invisible()
}

# Returns the decoded fields of a line of the server or the program, of which there are `count`.
line_fields <- function(line, count) {
  fields <- strsplit(line, "\t", fixed = TRUE, useBytes = TRUE)[[1]]
  # strsplit() drops an empty field at the end.
  fields <- c(fields, character(count))[seq_len(count)]
  for (code in list(c("%09", "\t"), c("%0A", "\n"), c("%25", "%"))) {
    fields <- gsub(code[[1]], code[[2]], fields, fixed = TRUE, useBytes = TRUE)
  }
  Encoding(fields) <- "UTF-8"
  fields
}

# Returns a record of the access log, as the function `log` of serve() gets it, from a line of fields
# (crates/server, Format::Fields).
log_record <- function(line) {
  fields <- line_fields(line, 14L)[-1]
  number <- function(at) as.numeric(fields[[at]])
  list(
    time = .POSIXct(number(1)), remote = fields[[2]], method = fields[[3]], path = fields[[4]],
    query = fields[[5]], status = as.integer(fields[[6]]), bytes = number(7), seconds = number(8),
    request_id = fields[[9]], aborted = if (nzchar(fields[[10]])) fields[[10]] else NA_character_,
    route = fields[[11]], queue_seconds = number(12), r_seconds = number(13)
  )
}
