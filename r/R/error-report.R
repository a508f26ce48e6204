# Error reports: `onError` of the app and stderr get all details of an error, and the client gets a
# status and a request id.

# ---- reports ----

# C calls three functions for an error, one after the other, so that the error is reported whatever
# happens in `onError`. Their argument `report` is a list with these elements:
#
# - app, detail: the app, and the detail that error responses to its clients may contain
# - stage, label: the stage of the request, as in `info$stage` and in words
# - route, request_id: "METHOD /path", and the id of the request
# - condition, text: the condition, or the text of an error without a condition
# - trace: the value of trace_of(), or NULL
# - req, seconds: the request, and the time since R began to handle it, if known
# - is_answerable: TRUE if a response can still be sent to the client
# - format: "text", "json", or "page" for a browser on this machine

# Adds the request id to a report, and converts its route to valid UTF-8.
complete_error_report <- function(report) {
  report$is_reported <- was_reported()
  report$request_id <- id_of(report)
  # A client may send any bytes as a path.
  report$route <- readable(report$route)
  dev_error_report(report)
}

# Writes a report to stderr, and passes it on to the live page.
write_error_report <- function(report) {
  if (isTRUE(report$is_reported)) {
    return(invisible())
  }
  class <- readable(class(condition_of(report))[[1]])
  .Call(ffi_span_error, enc2utf8(c(report$label, class)))
  if (.Call(ffi_shares_errors)) {
    dev_write_session_error(report)
    .Call(ffi_share_error, enc2utf8(c(
      report$request_id, report$route, report$label, class,
      summary_of(condition_of(report)), paste(shown_lines(report), collapse = "\n")
    )))
  }
  if (report$detail == "httpuv") {
    log_error(error_place(report), report$condition, report$text)
  } else {
    log_error_report(report)
  }
}

# Logs a response with status 500 that the app returned itself, as frameworks do for the errors that
# they handle. Called by C.
note_app_500 <- function(route, request_id) {
  if (request_id %in% .globals$reported_ids) {
    .globals$reported_ids <- setdiff(.globals$reported_ids, request_id)
    return(invisible())
  }
  text <- "the app itself responded with status 500"
  log_error_report(list(
    label = "the app's response", route = readable(route), request_id = request_id, text = text
  ))
}

error_place <- function(report) {
  if (nzchar(report$route)) paste0(report$route, " (", report$label, ")") else report$label
}

# Returns the request id. C does not know the request of an open WebSocket any more, but the R
# object of the request has the id.
id_of <- function(report) {
  if (nzchar(report$request_id) || !is.environment(report$req)) {
    return(report$request_id)
  }
  id <- tryCatch(report$req$REQUEST_ID, error = function(error) NULL)
  if (is.character(id) && length(id) == 1 && !is.na(id)) readable(id) else ""
}

# Returns the error as a condition. A promise may be rejected with a value that is not a condition.
condition_of <- function(report) {
  if (inherits(report$condition, "condition")) {
    return(report$condition)
  }
  text <- report$text
  if (is.null(text)) {
    is_text <- is.atomic(report$condition) && length(report$condition) > 0
    text <- if (is_text) {
      paste(report$condition, collapse = "\n")
    } else {
      paste("rejected with", describe(report$condition))
    }
  }
  structure(
    class = c("rookery_failure", "rookery_error", "error", "condition"),
    list(message = text, call = NULL)
  )
}

on_error_of <- function(app) {
  tryCatch(app[["onError"]], error = function(error) NULL) %||% attr(app, "rookery_on_error")
}

# Calls the app's `onError(cond, req, info)`, with fewer arguments if it takes fewer. Returns the
# value of `onError` if that is a response.
call_on_error <- function(report) {
  on_error <- on_error_of(report$app)
  if (!is.function(on_error) || isTRUE(report$is_reported)) {
    return(NULL)
  }
  formals <- names(formals(args(on_error)))
  count <- if ("..." %in% formals) 3 else min(length(formals), 3)
  value <- tryCatch(
    do.call(
      on_error, list(condition_of(report), report$req, info_of(report))[seq_len(count)],
      quote = TRUE
    ),
    error = function(error) {
      log_error("onError", error, NULL)
      NULL
    }
  )
  if (!is.null(as_promise(value))) {
    log_error("onError", NULL, "its response must not be a promise")
  }
  is_response <- (is.list(value) || is.environment(value)) &&
    !is.null(tryCatch(value[["status"]], error = function(error) NULL))
  if (is_response) value
}

info_of <- function(report) {
  trace <- report$trace
  list(
    stage = report$stage,
    request_id = report$request_id,
    trace = trace_lines(report),
    frames = data.frame(
      call = as.character(trace$call), file = as.character(trace$file),
      line = as.integer(trace$line),
      package = as.character(trace$package), stringsAsFactors = FALSE
    ),
    seconds = report$seconds,
    session = if (nzchar(report$session %||% "")) report$session,
    headers = if (is.environment(report$req)) {
      tryCatch(mask(report$req$HEADERS), error = function(error) NULL)
    }
  )
}

# Returns the lines about the calls for a log: for an error in Shiny, whose own calls are many, only
# those of the app.
shown_lines <- function(report) {
  if (!isTRUE(report$is_folded)) {
    return(trace_lines(report))
  }
  own <- own_frames(report$trace)
  folded <- report$trace$folded
  c(
    own$lines, place_line(own$place),
    if (folded > 0) paste0("(", folded, " calls of packages are not shown)"),
    parent_lines(report$condition)
  )
}

# Returns the traceback, one line for each frame, the outermost first, followed by the parent
# errors.
trace_lines <- function(report) {
  trace <- report$trace
  lines <- character()
  count <- length(trace$call)
  if (count > 0) {
    place <- ifelse(is.na(trace$file), "", paste0(" at ", trace$file, ":", trace$line))
    lines <- paste0(
      ifelse(is.na(trace$package), "", paste0(trace$package, "::")), trace$call, place
    )
    if (trace$left_out > 0) {
      lines <- append(lines, paste("...", trace$left_out, "more"), 10)
    }
    if (!is.na(trace$at_line[[count]])) {
      # R does not record the call of some of its own errors; the line shows the place.
      lines <- c(
        lines,
        paste0(
          "at ", if (!is.na(trace$at_file[[count]])) paste0(trace$at_file[[count]], ":"),
          trace$at_line[[count]]
        )
      )
    }
  }
  c(lines, parent_lines(report$condition))
}

parent_lines <- function(condition, most = 5) {
  lines <- character()
  while (length(lines) < most &&
      inherits(parent <- tryCatch(condition$parent, error = function(error) NULL), "condition")) {
    lines <- c(lines, paste("caused by", summary_of(parent)))
    condition <- parent
  }
  lines
}

# Returns the class of a condition, unless it is an uninformative one, and its message.
summary_of <- function(condition) {
  # Classes of this package are left out, because its messages say the same.
  classes <- grep(
    "^rookery_", setdiff(class(condition), c("simpleError", "error", "condition")), value = TRUE,
    invert = TRUE
  )
  kind <- if (length(classes) > 0) paste0("<", classes[[1]], "> ") else ""
  text <- tryCatch(paste(conditionMessage(condition), collapse = "\n"), error = function(error) "")
  paste0(kind, if (nzchar(text)) readable(text) else "an error without a message")
}

# Returns text as UTF-8. Invalid bytes become <ff>.
readable <- function(text) {
  if (!validEnc(text)) Encoding(text) <- "bytes"
  text <- if (Encoding(text) == "bytes") {
    iconv(text, "UTF-8", "UTF-8", sub = "byte")
  } else {
    enc2utf8(text)
  }
  if (is.na(text)) "NA" else text
}

# ---- secrets ----

# Returns for each name whether logs and pages must not contain its value.
is_secret_name <- function(names) {
  .Call(ffi_is_secret_name, as.character(names))
}

# Replaces the values of secret names by "[masked]".
mask <- function(values) {
  is_secret <- is_secret_name(names(values))
  values[is_secret] <- "[masked]"
  values
}

# ---- stderr ----

# A repeated error is reported in one line every `log_seconds`, and also after every `log_ids`
# errors. The line has the number of errors and the ids of their requests, which clients have
# received. At most `log_kinds` kinds of error are distinguished, because clients choose the paths
# and could produce any number of kinds. All further kinds count as one.
log_seconds <- 10
log_ids <- 50L
log_kinds <- 200L

log_error_report <- function(report, now = proc.time()[["elapsed"]]) {
  id <- c(
    if (nzchar(report$request_id)) report$request_id,
    if (nzchar(report$session %||% "")) paste("session", report$session)
  )
  text <- summary_of(condition_of(report))
  place <- error_place(report)
  # A list and not an environment, because R never frees the names of variables, and clients choose
  # the paths.
  kinds <- .globals$error_reports %||% list()
  name <- substr(paste(place, text, sep = "\n"), 1, 1000)
  if (is.null(kinds[[name]]) && length(kinds) >= log_kinds) {
    kinds <- flush_error_reports(kinds, now, is_due = TRUE)
    if (length(kinds) >= log_kinds) name <- "others"
  }
  kind <- kinds[[name]]
  if (!is.null(kind) && now - kind$since < log_seconds) {
    kind$count <- kind$count + 1
    kind$ids <- c(kind$ids, id)
    if (length(kind$ids) >= log_ids) {
      log_repeats(kind, now)
      kind$count <- 0
      kind$ids <- character()
    }
    kinds[[name]] <- kind
    .globals$error_reports <- kinds
    flush_error_reports_later()
    return(invisible())
  }
  if (!is.null(kind) && kind$count > 0) log_repeats(kind, now)
  kinds[[name]] <- list(
    place = place, text = substr(text, 1, 1000), since = now, count = 0, ids = character()
  )
  .globals$error_reports <- kinds
  id <- if (length(id) > 0) paste0(" [", paste(id, collapse = ", "), "]") else ""
  lines <- shown_lines(report)
  if (length(lines) > 0) lines <- paste0("    ", lines)
  cat(
    paste0(c(paste0("rookery: ", place, ": ", indent_rest(text), id), lines), "\n", collapse = ""),
    file = stderr()
  )
}

# Schedules the report of repeated errors, because R may be idle for hours.
flush_error_reports_later <- function() {
  if (!isTRUE(.globals$error_reports_are_due)) {
    .globals$error_reports_are_due <- TRUE
    later::later(function() {
      .globals$error_reports_are_due <- FALSE
      .globals$error_reports <- flush_error_reports(
        .globals$error_reports, proc.time()[["elapsed"]]
      )
    }, log_seconds, loop = later::global_loop())
  }
}

# Reports how often each kind of error has been repeated, and returns the kinds that are still
# counted. With `is_due`, only kinds that were not reported for `log_seconds` are reported and
# dropped.
flush_error_reports <- function(kinds, now, is_due = FALSE) {
  is_old <- vapply(kinds, function(kind) now - kind$since >= log_seconds, NA)
  has_more <- vapply(kinds, function(kind) kind$count > 0, NA)
  for (kind in kinds[has_more & (is_old | !is_due)]) log_repeats(kind, now)
  kept <- kinds[!is_old | (has_more & !is_due)]
  if (is_due) {
    return(kept)
  }
  lapply(kept, function(kind) {
    if (kind$count > 0) kind$since <- now
    kind$count <- 0
    kind$ids <- character()
    kind
  })
}

# Reports at once the repeated failures that have been counted, because R or its servers are about
# to end.
flush_all_error_reports <- function() {
  now <- proc.time()[["elapsed"]]
  for (kind in .globals$error_reports) if (kind$count > 0) log_repeats(kind, now)
  .globals$error_reports <- NULL
}

log_repeats <- function(kind, now) {
  cat(
    "rookery: ", kind$place, ": ", indent_rest(kind$text), " (", kind$count, " more in ",
    max(1, round(now - kind$since)), " s)",
    if (length(kind$ids) > 0) paste0(" [", paste(kind$ids, collapse = " "), "]"), "\n",
    sep = "", file = stderr()
  )
}

# ---- responses to clients ----

# Returns the response with status 500.
error_response <- function(report) {
  if (report$detail == "httpuv") {
    is_apps <- report$stage %in% c("call", "onHeaders", "promise", "stream", "receive") &&
      is.null(report$text)
    text <- if (is_apps && !is.null(report$condition)) {
      error_page(report$condition)
    } else {
      "An exception occurred."
    }
    return(list(
      status = 500L, headers = list("Content-Type" = "text/plain; charset=UTF-8"), body = text
    ))
  }
  problem <- list(title = "Internal Server Error", status = 500L, instance = report$request_id)
  if (report$detail != "none") {
    problem$detail <- summary_of(condition_of(report))
  }
  if (report$detail == "full") {
    if (identical(report$format, "page") && report$stage != "stream") {
      return(dev_error_response(page_response(report)))
    }
    problem$trace <- trace_lines(report)
  }
  protect <- if (report$detail == "full") dev_error_response else identity
  if (identical(report$format, "json")) {
    return(protect(list(
      status = 500L, headers = list("Content-Type" = "application/problem+json"),
      body = json_object(problem)
    )))
  }
  lines <- c(
    "500 Internal Server Error", if (nzchar(problem$instance)) paste("Request", problem$instance),
    problem$detail, problem$trace
  )
  protect(list(
    status = 500L,
    headers = list("Content-Type" = "text/plain; charset=UTF-8"),
    body = paste0(enc2utf8(lines), "\n", collapse = "")
  ))
}

# Formats a JSON object of strings, numbers and, in `trace`, a list of strings. Package jsonlite is
# not used, because rookery does not import it.
json_object <- function(fields) {
  values <- vapply(names(fields), function(name) {
    value <- fields[[name]]
    if (is.numeric(value)) {
      plain_text(value)
    } else if (name == "trace") {
      paste0("[", paste(json_string(value), collapse = ","), "]")
    } else {
      json_string(paste(value, collapse = "\n"))
    }
  }, "")
  paste0("{", paste0("\"", names(fields), "\":", values, collapse = ","), "}")
}

json_string <- function(text) {
  text <- enc2utf8(as.character(text))
  text[!validUTF8(text)] <- iconv(text[!validUTF8(text)], "latin1", "UTF-8")
  text <- gsub("([\\\\\"])", "\\\\\\1", text)
  controls <- regmatches(text, gregexpr("[\001-\037\177]", text, useBytes = FALSE))
  for (control in unique(unlist(controls))) {
    text <- gsub(control, sprintf("\\u%04x", utf8ToInt(control)), text, fixed = TRUE)
  }
  if (length(text) > 0) paste0("\"", text, "\"") else character()
}
