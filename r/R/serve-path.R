# serve() of a path: starts the program `rookery serve`, passes the arguments to it, reads what it
# reports, and waits for its end.

# Serves a path until the program ends. `given` has the arguments of serve() that were given, by
# name. The program reads all other settings itself. The options of this session are passed as
# defaults that a `_server.yml` and the environment override; arguments override both.
serve_path <- function(path, found, given, dots, open) {
  if (!is.null(given[["workers"]])) {
    only_on_linux("`workers`", "one R process serves without it.", argument = "workers")
  }
  address <- serve_address(
    given[["host"]] %||% "127.0.0.1", given[["port"]] %||% 8000L, given[["tls"]]
  )
  log <- log_target(given[["log"]] %||% TRUE, given[["log_format"]])
  settings <- list(
    host = if (!is.null(given[["host"]])) address$host %||% paste0("unix:", address$socket),
    port = if (!is.null(given[["port"]])) address$port,
    log = if (!is.null(given[["log"]])) {
      switch(log$to, nothing = , call = "none", file = log$path, stdout = "-")
    },
    log_format = if (log$to != "call") given[["log_format"]],
    admin = check_admin(given[["admin"]]),
    open = if (!isFALSE(open)) TRUE,
    "session:log" = if (log$to == "call") TRUE,
    # In hexadecimal, because decimal digits would round numbers.
    "session:app" = if (length(dots) > 0) rawToChar(serialize(dots, NULL, ascii = NA))
  )
  limits <- check_limits(given[["limits"]])
  workers <- check_workers(given[["workers"]])
  # The program reports the same mistakes, but without a condition.
  if (is_own_file(found)) suppressMessages(settings_read(found$path, given))
  if (found$kind == "site") check_no_dots(dots)
  if (is.function(open) || log$to == "call") {
    not_on_windows(
      "A function as `log` or `open` for a path", "use the path of a file as `log`.",
      argument = if (log$to == "call") "log" else "open"
    )
  }
  warnings <- warn_at_once()
  on.exit(options(warnings))
  warn_unknown_settings(has_program = TRUE)
  own <- session_options()
  names(own) <- sub("^rookery[.]", "", names(own))
  command <- list(
    program = system.file(
      "exec", if (is_windows()) "rookery.exe" else "rookery", package = "rookery", mustWork = TRUE
    ),
    # Not normalized, because each reload resolves symbolic links in the path again.
    arguments = c("serve", "--", path.expand(path)),
    # May contain keys, which therefore are neither in the environment nor among the arguments.
    input = encode_lines(c(
      if (length(own) > 0) paste0("option:", lines_of(own)),
      lines_of(settings), lines_of_tls(address$tls), lines_of(unclass(limits)), lines_of(workers)
    )),
    environment = c(
      # The R installation and the libraries of this session.
      PATH = paste(R.home("bin"), Sys.getenv("PATH"), sep = .Platform$path.sep),
      R_LIBS = paste(.libPaths(), collapse = .Platform$path.sep),
      ROOKERY_INTERNAL_PARENT_PID = Sys.getpid(),
      # R CMD check sets it for its own R process, and other processes must not have it.
      R_TESTS = ""
    )
  )
  run_program(command, found$label, function(line) {
    handle_report(line, log$call, open, address$socket)
  })
}

# ---- the program ----

# Runs the program, which serves `label`, until it ends. Calls `handle` with each line that the
# program reports, except the one about its failure. SIGINT, SIGTERM and SIGHUP are forwarded to the
# program, which writes to this process's stdout and stderr.
run_program <- function(command, label, handle = function(line) NULL) {
  if (is_windows()) {
    # The program has the console of this process, so Ctrl-C reaches both.
    code <- with_environment(command$environment, system2(
      command$program, shQuote(command$arguments, "cmd"), input = command$input
    ))
    status <- list(code = code, signal = 0L, failure = NULL)
  } else {
    input <- charToRaw(paste(c(command$input, ""), collapse = "\n"))
    started <- with_environment(
      command$environment, .Call(ffi_program_start, command$program, command$arguments, input)
    )
    if (is.character(started)) {
      abort(
        paste0(
          basename(command$program), " could not be started (", command$program, "): ", started
        ),
        "rookery_exit"
      )
    }
    status <- wait_for_program(started[[1]], started[[2]], handle)
  }
  if (status$signal == 15L && interactive()) {
    quit(save = "no", status = status$code)
  }
  if (status$code != 0) {
    message <- status$failure$message %||% paste0(
      "The program rookery, which served ", label, ", ended with status ", status$code,
      ": see its output above."
    )
    abort(message, c(status$failure$class, "rookery_exit"), status = status$code)
  }
  NULL
}

# Evaluates `body` with environment variables, because a process inherits them from its parent.
with_environment <- function(variables, body) {
  names <- names(variables)
  before <- Sys.getenv(names, unset = NA)
  on.exit({
    Sys.unsetenv(names[is.na(before)])
    if (!all(is.na(before))) {
      do.call(Sys.setenv, as.list(before[!is.na(before)]))
    }
  })
  do.call(Sys.setenv, as.list(variables))
  body
}

# Returns list(code =, signal =, failure =): the exit status as in a shell, the last signal that was
# forwarded, or 0, and the failure that the program has reported.
wait_for_program <- function(pid, reports, handle) {
  on.exit(.Call(ffi_program_forget, reports))
  failure <- NULL
  read <- report_reader(reports, function(line) {
    if (startsWith(line, "failed\t")) failure <<- failure_of(line) else handle(line)
  })
  status <- NULL
  while (is.null(status)) {
    status <- tryCatch(
      {
        read()
        .Call(ffi_program_wait, pid, 0.1)
      },
      # The stop button of RStudio interrupts R without a signal.
      interrupt = function(interrupt) {
        # SIGTERM, as in signals.c for Ctrl-C.
        .Call(ffi_program_signal, pid, 15L)
        NULL
      }
    )
  }
  read()
  list(code = status[[1]], signal = status[[2]], failure = failure)
}

# ---- reports of the program ----

# Returns a function that calls `handle` with each line that the program has reported since the last
# call. If `handle` is interrupted, the next call continues with the next line.
report_reader <- function(reports, handle) {
  rest <- raw()
  lines <- character()
  function() {
    repeat {
      while (length(lines) > 0) {
        line <- lines[[1]]
        lines <<- lines[-1]
        handle(line)
      }
      bytes <- .Call(ffi_program_read, reports)
      if (length(bytes) == 0) break
      rest <<- c(rest, bytes)
      end <- max(0L, which(rest == as.raw(10L)))
      text <- rawToChar(rest[seq_len(end)])
      rest <<- rest[seq_along(rest) > end]
      lines <<- strsplit(text, "\n", fixed = TRUE, useBytes = TRUE)[[1]]
    }
  }
}

# Returns list(class =, message =) from the line with which the program reports its failure. `class`
# is NULL for a failure that has no class of its own.
failure_of <- function(line) {
  fields <- line_fields(line, 3L)
  list(class = if (nzchar(fields[[2]])) fields[[2]], message = fields[[3]])
}

# Handles a line that the program has reported: the address to open, a record of the access log, or
# a note about records that were dropped. An error of the function `log` is logged, and the function
# still gets the next record.
handle_report <- function(line, log, open, socket) {
  if (startsWith(line, "open\t")) {
    # A Unix socket has no URL.
    url <- sub("^open\t", "", line)
    open_place(open, if (nzchar(url)) url else socket)
  } else if (startsWith(line, "record\t")) {
    tryCatch(log(log_record(line)), error = function(error) log_error("access log", error, NULL))
  } else {
    log_error("access log", NULL, sub("^# ", "", line, useBytes = TRUE))
  }
}

# ---- arguments of the program ----

# Formats named settings as lines `name=value` for the program (crates/cli/src/settings/
# r_arguments.rs), one line for each element of a list.
lines_of <- function(settings) {
  unlist(lapply(names(settings), function(name) {
    if (length(settings[[name]]) > 0) paste0(name, "=", texts_of(settings[[name]]))
  }))
}

# Formats the argument `tls` of serve().
lines_of_tls <- function(tls) {
  if (is.null(tls) || identical(tls, "dev")) {
    return(lines_of(list(tls = tls)))
  }
  tls_lines(tls)
}

# Percent-encodes line ends and `%`.
encode_lines <- function(lines) {
  gsub("\n", "%0A", gsub("%", "%25", enc2utf8(as.character(lines)), fixed = TRUE), fixed = TRUE)
}
