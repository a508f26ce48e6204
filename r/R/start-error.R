# The text that a terminal shows if the app could not be started. The reason is the last line, and
# the text fits on a screen together with the messages of the supervisor.

# The maximum number of calls and of lines of the message.
start_error_calls <- 5L
start_error_lines <- 6L

# Returns the lines: the app's own calls, the source line that was being evaluated, and the reason
# with the place of that line.
start_error_text <- function(error, trace) {
  own <- tryCatch(own_frames(trace), error = function(error) NULL)
  place <- own$place
  all <- shows_all_frames()
  calls <- if (all) trace_lines(list(trace = trace, condition = NULL)) else own$lines
  left_out <- length(trace$call) + (trace$left_out %||% 0L) - length(own$calls)
  c(
    if (length(calls) > 0) paste0("  at ", calls),
    paste0("  ", place_line(place), recycle0 = TRUE),
    if (!all && length(trace$call) > 0 && left_out > 0) {
      paste0("  (", left_out, " calls of packages are not shown)")
    },
    paste0("  ", parent_lines(error), recycle0 = TRUE),
    reason_text(error, own)
  )
}

# Returns whether all calls are shown, as `--verbose` or an option of Shiny asks for.
shows_all_frames <- function() {
  isTRUE(.globals$shows_all_frames) || isTRUE(getOption("shiny.fullstacktrace"))
}

# Returns the parser's error for a file of the app that the message of another error names, or NULL.
# Shiny and plumber print the parser's error and then raise one that only names the file.
syntax_error <- function(error, trace) {
  if (!is.null(innermost_place(trace))) {
    return(NULL)
  }
  message <- conditionMessage(error)
  for (path in normalizePath(code_files(), winslash = "/")) {
    if (grepl(basename(path), message, fixed = TRUE)) {
      wrong <- tryCatch(
        {
          parse_lines(read_utf8_lines(path), path)
          NULL
        },
        error = identity
      )
      if (!is.null(wrong)) {
        return(wrong)
      }
    }
  }
}

# Calls of functions that evaluate files. As the call of an error, they say nothing.
evaluating_calls <- "^(eval|[.][.]stacktraceon[.][.]|withVisible|source|stopOnLine)\\("

# Returns "Error in f() (app.R:3): message".
reason_text <- function(error, own) {
  call <- conditionCall(error)
  call <- if (is.call(call)) one_line(call)
  place <- own$place
  # Without a place, the call of a function of a package still says something.
  is_shown <- !is.null(call) &&
    (call %in% own$calls || (is.null(place) && !grepl(evaluating_calls, call)))
  where <- c(
    if (is_shown) paste("in", call),
    if (!is.null(place)) paste0("(", place$file, ":", place$line, ")")
  )
  message <- trimws(sub("^<[^>]*> ", "", summary_of(error)))
  # plumber's message names the line before the statement, and has the original message.
  message <- sub("^Error on line #[0-9]+: '.*?' - (?=Error\\b)", "", message, perl = TRUE)
  message <- strsplit(sub("^Error in .*? ?: ", "", message, perl = TRUE), "\n", fixed = TRUE)[[1]]
  if (length(message) > start_error_lines) {
    message <- c(utils::head(message, start_error_lines), "...")
  }
  paste0(
    paste(c("Error", where), collapse = " "), ": ", paste(message, collapse = "\n")
  )
}

# Returns the line of the source at a place of own_frames(), "app.R:3: stop()", or NULL.
place_line <- function(place) {
  if (length(place$source) > 0 && nzchar(place$source)) {
    paste0(place$file, ":", place$line, ": ", place$source)
  }
}

# Returns the app's own calls of a traceback as list(lines =, calls =, place =): text for the
# innermost of them, all calls, and the file, line and source line that was being evaluated last, or
# NULL. A call is the app's own if its function belongs to no package, or if it is written in a file
# of the app.
own_frames <- function(trace) {
  is_top <- startsWith(trace$call, "the top level of")
  at <- which((is.na(trace$package) | !is.na(trace$file)) & !is_top)
  text <- trace$call[at]
  has_file <- !is.na(trace$file[at])
  text[has_file] <- paste0(
    text[has_file], " at ", trace$file[at][has_file], ":", trace$line[at][has_file]
  )
  if (length(text) > start_error_calls) {
    text <- c(
      paste("...", length(text) - start_error_calls + 1L, "more"),
      utils::tail(text, start_error_calls - 1L)
    )
  }
  list(lines = text, calls = trace$call[at], place = innermost_place(trace))
}

# Returns list(file =, line =, source =) of the innermost line of the app, or NULL.
innermost_place <- function(trace) {
  for (frame in rev(seq_along(trace$call))) {
    for (kind in c("at_", "")) {
      line <- trace[[paste0(kind, "line")]][[frame]]
      file <- trace[[paste0(kind, "file")]][[frame]]
      if (!is.na(line) && !is.na(file)) {
        lines <- source_lines(trace[[paste0(kind, "source")]][[frame]], line)
        return(list(file = file, line = line, source = unname(lines[as.character(line)])))
      }
    }
  }
}
