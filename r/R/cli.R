# The part of the program `rookery` (crates/cli) that is written in R, and install_cli(). The
# program parses the command line and starts this R process as a worker in the app's folder; where
# workers do not exist, as the only R process, which listens itself. inst/serve/cli.R calls cli_main() with the
# parsed command line.

# Serves an app as the command line says, and ends the process with the app's exit status.
cli_main <- function(text) {
  arguments <- cli_arguments(text)
  if (identical(arguments[["dev"]], "true")) dev_begin(arguments)
  .globals$shows_all_frames <- identical(arguments[["verbose"]], "true")
  status <- tryCatch(
    withCallingHandlers(
      {
        begin_app_process()
        dev_wait_at_gate()
        if (!validEnc(arguments$target)) {
          # R's functions for paths do not accept such a path.
          abort(
            paste0(
              "`", iconv(arguments$target, "", "UTF-8", sub = "byte"),
              "` is not valid text in the encoding of this locale: rename it, or start with ",
              "LC_ALL=C in the environment."
            ),
            "rookery_bad_target"
          )
        }
        settings <- list(
          cli = cli_settings(arguments), environment = cli_settings(arguments, "environment:"),
          file = cli_settings(arguments, "file:")
        )
        found <- detect_target(arguments$target)
        serve <- function() {
          serve_here(
            found, NULL, cli_address(arguments), cli_dots(arguments[["for_app"]]),
            cli_log(arguments), settings,
            list(at = arguments[["admin"]], label = arguments$target)
          )
          0L
        }
        if (is.null(arguments[["check"]])) {
          serve()
        } else {
          check_target(found, identical(arguments[["load"]], "true"), serve())
        }
      },
      error = end_of_failure
    ),
    rookery_error = function(error) {
      cat("rookery: ", conditionMessage(error), "\n", sep = "", file = stderr())
      dev_write_start_error(error, NULL, conditionMessage(error))
      error$status %||% if (is_worker() && is_final(error)) 78L else 1L
    },
    # Ctrl-C at a terminal while the app is being loaded.
    interrupt = function(interrupt) 130L
  )
  quit(save = "no", status = status)
}

# Ends the process after an error that the app did not handle, or after an interrupt because the app
# takes too long to load. With `options(error = )`, R ends as usual.
end_of_failure <- function(error) {
  if (inherits(error, "interrupt")) error <- simpleError("the time for loading the app is over")
  if (!inherits(error, "rookery_error") && is.null(getOption("error"))) {
    # Called directly in the handler, because trace_of() counts frames.
    trace <- trace_of(error)
    trace <- tryCatch(with_plumber_place(trace, error), error = function(error) trace)
    error <- tryCatch(syntax_error(error, trace), error = function(other) NULL) %||% error
    text <- start_error_text(error, trace)
    cat(paste0(text, "\n"), sep = "", file = stderr())
    dev_write_start_error(error, trace, paste(text, collapse = "\n"))
    quit(save = "no", status = if (is_worker() && is_final(error)) 78L else 1L)
  }
}

# Returns whether the same error would occur again if the process were restarted.
is_final <- function(error) {
  inherits(error, c(
    "rookery_bad_target", "rookery_no_target", "rookery_no_package", "rookery_no_quarto",
    "rookery_no_compat", "rookery_bad_setting",
    "rookery_bad_argument", "rookery_bad_address", "packageNotFoundError"
  ))
}

# Parses lines `name=value` of the program (crates/settings/src/key_value_lines.rs) into a list of
# strings. A repeated name becomes a vector.
cli_read <- function(text) {
  lines <- strsplit(text, "\n", fixed = TRUE, useBytes = TRUE)[[1]]
  values <- vapply(
    sub("^[^=]*=", "", lines, useBytes = TRUE), utils::URLdecode, "", USE.NAMES = FALSE
  )
  names <- sub("=.*$", "", lines, useBytes = TRUE)
  lapply(split(values, factor(names, unique(names))), as.vector)
}

# Parses the lines of the program, and those in a file that only this user may read and that is
# deleted once it was read.
cli_arguments <- function(text) {
  arguments <- cli_read(text)
  path <- arguments[["private"]]
  if (is.null(path)) {
    return(arguments)
  }
  on.exit(unlink(path))
  c(arguments, cli_read(readChar(path, file.size(path), useBytes = TRUE)))
}

# Returns the arguments of serve() for the function that runs the app.
cli_dots <- function(text) {
  if (is.null(text)) list() else unserialize(charToRaw(text))
}

# Returns the address as serve_address() does; the program has checked host and port.
cli_address <- function(arguments) {
  port <- if (!is.null(arguments$port)) as.integer(arguments$port)
  list(
    host = arguments$host, port = port, socket = arguments$socket,
    tls = tls_of_settings(cli_settings(arguments, "tls:"))
  )
}

# Returns the settings from one source in the form of setting_of(). The source is the command line,
# which has priority over .Rprofile, or the one whose names begin with `place`.
cli_settings <- function(arguments, place = "cli:") {
  arguments <- arguments[startsWith(names(arguments), place)]
  names(arguments) <- substring(names(arguments), nchar(place) + 1L)
  typed_values(arguments)
}

# Returns the log destination in the form of log_target().
cli_log <- function(arguments) {
  list(to = arguments$log, path = arguments$log_file, call = NULL, format = arguments$log_format)
}

#' Put `rookery` on PATH
#'
#' Creates the command `rookery`, which serves an app from a shell:
#' `rookery serve app/ --port 8000`. The command is a symbolic link to a program
#' in the package and is therefore updated together with the package.
#' `rookery --help` lists the options. `rookery completions bash` prints a
#' script for shell completion, and `rookery man` prints a manual page.
#'
#' @param ... Must be empty. The arguments that follow `...` must be given by
#'   name.
#' @param dir The folder in which the command `rookery` is created, preferably a
#'   folder in `PATH`. The folder is created if it does not exist.
#' @param overwrite Whether to replace a file named `rookery` in `dir` even if
#'   it is not a link to this package's program.
#' @return The path of the created command, invisibly.
#' @examples
#' \dontrun{
#' rookery::install_cli()
#' }
#' @export
install_cli <- function(dir = "~/.local/bin", ..., overwrite = FALSE) {
  check_dots("install_cli()", ..., known = "overwrite")
  check_string(dir, "dir")
  check_flag(overwrite, "overwrite")
  not_on_windows(
    "install_cli()",
    paste0(
      "add the folder of the program to PATH, `",
      normalizePath(system.file("exec", package = "rookery")), "`."
    ),
    argument = "dir"
  )
  program <- system.file("exec", "rookery", package = "rookery", mustWork = TRUE)
  dir <- path.expand(dir)
  dir.create(dir, recursive = TRUE, showWarnings = FALSE)
  if (file.access(dir, 2) != 0) {
    abort(
      paste0("`", dir, "` cannot be written: choose another folder with `dir =`."), "rookery_no_cli"
    )
  }
  command <- file.path(normalizePath(dir, winslash = "/"), "rookery")
  # NA if the file does not exist. file.exists() is FALSE for a link whose package was removed, but
  # the link does exist.
  link <- Sys.readlink(command)
  is_there <- file.exists(command) || (!is.na(link) && nzchar(link))
  is_ours <- grepl("/rookery/exec/rookery$", link)
  if (is_there && !is_ours && !overwrite) {
    abort(
      paste0(
        "`", command, "` exists and is not a link to rookery: `overwrite = TRUE` replaces it."
      ),
      "rookery_no_cli"
    )
  }
  unlink(command)
  if (!file.symlink(program, command)) {
    abort(paste0("`", command, "` cannot be made."), "rookery_no_cli")
  }
  on_path <- normalizePath(
    strsplit(Sys.getenv("PATH"), .Platform$path.sep)[[1]], winslash = "/", mustWork = FALSE
  )
  if (dirname(command) %in% on_path) {
    message("Installed ", command, ": try `rookery --help`.")
  } else {
    message(
      "Installed ", command, ". Its folder is not on PATH; for a shell: export PATH=\"",
      dirname(command), ":$PATH\""
    )
  }
  invisible(command)
}
