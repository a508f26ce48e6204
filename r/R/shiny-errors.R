# Errors that Shiny handles itself: those of outputs, observers, `server`, `ui`, downloads, promises
# and ends of sessions. Shiny prints each of them by printError(), which is public and gives a
# warning first. A calling handler of that warning finds the error in the frame of printError(),
# reports it as other errors of apps, and returns from printError(), so that the error is reported
# once. Without errors, this costs a calling handler for each request and message.

# Evaluates `body`, which runs Shiny. `app` is the object that is served, or a path.
with_shiny_errors <- function(body, app = NULL) {
  print_error <- tryCatch(getExportedValue("shiny", "printError"), error = function(error) NULL)
  if (setting_of("error_detail")$value == "httpuv") {
    return(body)
  }
  if (!is.function(print_error) || !"cond" %in% names(formals(print_error))) {
    message("rookery: this version of shiny prints its errors itself")
    return(body)
  }
  before <- .globals$shiny
  state <- new.env(parent = emptyenv())
  state$print_error <- print_error
  state$app <- if (is.list(app)) app
  .globals$shiny <- state
  old <- options(shiny.error = shiny_error_option(state, getOption("shiny.error")))
  on.exit({
    .globals$shiny <- before
    options(old)
  })
  # Promises run their callbacks in this domain, also those that package later calls within a
  # callback of its own.
  domain <- promises::new_promise_domain(
    wrapOnFulfilled = observed_callback, wrapOnRejected = observed_callback
  )
  withCallingHandlers(
    promises::with_promise_domain(domain, observed(body)), interrupt = on_shiny_interrupt
  )
}

observed <- function(body) {
  withCallingHandlers(body, warning = on_shiny_warning)
}

note_calls <- function(state) {
  own <- Filter(has_place, sys.calls())
  if (length(own) > 0) state$calls <- own
}

observed_callback <- function(callback) {
  force(callback)
  function(...) observed(callback(...))
}

# Returns the value of Shiny's option for a function that is called where an error occurs. The
# session and the app's calls are known there, but not always where Shiny prints the error.
shiny_error_option <- function(state, before) {
  force(before)
  function() {
    state$session <- session_token()
    # In production, the session is not kept until the error is reported, which may be never.
    state$domain <- if (is_dev()) shiny::getDefaultReactiveDomain()
    note_calls(state)
    if (is.function(before)) before()
  }
}

session_token <- function() {
  token <- tryCatch(shiny::getDefaultReactiveDomain()$token, error = function(error) NULL)
  if (is.character(token) && length(token) == 1) token else ""
}

# ---- requests and messages of Shiny: C calls them without the handlers around runApp() ----

# Returns an app of Shiny whose requests and WebSockets are observed, and other apps as they are.
observed_app <- function(app) {
  state <- .globals$shiny
  if (is.null(state) || !is.list(app) || !is.function(app$call)) {
    return(app)
  }
  call <- app$call
  app$call <- function(req) {
    state$req <- req
    on.exit(state$req <- state$calls <- state$page <- NULL)
    response <- observed(call(req))
    if (!is.null(state$page) && is.list(response) && identical(as.integer(response$status), 500L)) {
      state$page
    } else {
      response
    }
  }
  app
}

observed_message <- function(func) {
  if (is.null(.globals$shiny) || length(formals(func)) != 2) {
    return(func)
  }
  function(binary, message) {
    withCallingHandlers(
      func(binary, message), warning = on_shiny_warning, error = on_shiny_rethrow
    )
  }
}

observed_close <- function(func) {
  state <- .globals$shiny
  if (is.null(state) || length(formals(func)) != 0) {
    return(func)
  }
  function() {
    state$is_closing <- TRUE
    on.exit(state$is_closing <- FALSE)
    observed(func())
  }
}

# Shiny raises an error of `server` again after it was printed, and the server would report it as
# one of the WebSocket.
on_shiny_rethrow <- function(condition) {
  state <- .globals$shiny
  if (identical(state$reported, error_key(condition))) state$is_reported <- TRUE
}

error_key <- function(condition) {
  call <- conditionCall(condition)
  paste(c(if (is.call(call)) one_line(call), conditionMessage(condition)), collapse = "\n")
}

# Returns whether the error that C reports was reported by this file, and forgets it.
was_reported <- function() {
  state <- .globals$shiny
  is_reported <- isTRUE(state$is_reported)
  if (is_reported) state$is_reported <- FALSE
  is_reported
}

# ---- interrupts of the supervisor ----

# Returns the frame of the running observer, output or callback of a promise; NULL if none runs. If
# the frame is `candidate`, returns the condition by which it fails in place of an interrupt of the
# supervisor, and reports it. Shiny documents what the classes of the condition do
# (`req(FALSE, cancelOutput = TRUE)`): an output keeps its value, an observer stops, and the session
# stays open. Called by C on top of the observer's calls; `is_repeated` is TRUE for an observer that
# was reported already.
interrupted_observer <- function(candidate, is_repeated) {
  calls <- utils::head(sys.calls(), -1L)
  heads <- vapply(calls, head_of, "")
  at <- max(0L, grep("^<observer", heads), which(heads == "observed"))
  if (at <= max(0L, which(heads %in% c("service", "run_now", "execCallbacks")))) {
    return(NULL)
  }
  if (!identical(sys.frame(at), candidate)) {
    return(sys.frame(at))
  }
  condition <- structure(
    class = c(
      "rookery_interrupted", "shiny.output.cancel", "shiny.silent.error", "error", "condition"
    ),
    list(message = "interrupted, because R has been busy with it for too long", call = NULL)
  )
  state <- .globals$shiny
  if (is.environment(state) && !is_repeated) {
    reported <- structure(
      condition,
      class = c("rookery_interrupted", "error", "condition"), stack.trace = calls
    )
    tryCatch(report_shiny_error(reported, state), error = identity)
  }
  condition
}

# Handles the interrupt that C code raises when R's check for interrupts fails by our condition, as
# package Rcpp does. The code goes on, and the next check of the observer fails.
on_shiny_interrupt <- function(interrupt) {
  if (.Call(ffi_worker_interrupts_again)) invokeRestart("resume")
}

# ---- reports ----

on_shiny_warning <- function(warning) {
  state <- .globals$shiny
  # printError() gives its warning without a call.
  if (is.null(state) || !is.null(conditionCall(warning))) {
    return()
  }
  count <- sys.nframe()
  for (at in rev(seq(max(1L, count - 15L), count))) {
    if (identical(sys.function(at), state$print_error)) {
      frame <- sys.frame(at)
      is_reported <- tryCatch(report_shiny_error(frame$cond, state), error = function(error) FALSE)
      if (is_reported) {
        # Evaluating this promise returns from printError().
        delayedAssign("leave", return(invisible()), frame)
        get("leave", inherits = FALSE)
      }
      return()
    }
  }
}

# Reports an error. Returns FALSE if it is not one that can be reported.
report_shiny_error <- function(condition, state) {
  if (!inherits(condition, "condition")) {
    return(FALSE)
  }
  calls <- shiny_calls(condition)
  if (!any(vapply(calls, has_place, NA))) calls <- c(calls, state$calls)
  state$calls <- NULL
  session <- session_token()
  if (!nzchar(session)) session <- state$session %||% ""
  inputs <- if (is_dev()) shiny_inputs(shiny::getDefaultReactiveDomain() %||% state$domain)
  state$session <- state$domain <- NULL
  place <- shiny_place(calls, state)
  if (nzchar(place$session %||% "")) session <- place$session
  req <- state$req
  id <- if (is.null(req)) "" else as.character(req$REQUEST_ID %||% "")
  if (nzchar(id)) .globals$reported_ids <- utils::tail(c(.globals$reported_ids, id), told_most)
  report <- list(
    app = state$app, detail = setting_of("error_detail")$value, stage = place$stage,
    label = place$label,
    route = if (is.null(req)) "" else shiny_route(req),
    request_id = id, condition = condition, text = NULL, trace = shiny_trace(calls, condition),
    req = req, seconds = NA_real_, is_answerable = FALSE, is_folded = TRUE,
    # The beginning identifies the session in logs. The whole token would give access to it.
    session = substr(session, 1L, 8L), inputs = inputs$values, secrets = inputs$secrets
  )
  call_on_error(report)
  write_error_report(report)
  # In development, the page with an error of `ui` takes the place of Shiny's response. The overlay
  # shows an error of a download.
  is_page <- place$stage == "ui" && !startsWith(req$PATH_INFO %||% "/session/", "/session/")
  if (is_dev() && is_page && report$detail == "full") {
    state$page <- tryCatch(error_response(dev_error_report(report)), error = function(error) NULL)
  }
  state$reported <- error_key(condition)
  TRUE
}

# Returns the method and path of a request, without the token of the session.
shiny_route <- function(req) {
  path <- sub("^/session/[0-9a-f]+", "/session/...", req$PATH_INFO)
  text_of("masked target", readable(paste(req$REQUEST_METHOD, path)))
}

# The maximum number of inputs, and of elements of one input, that are shown.
shown_inputs <- 100L
shown_elements <- 20L

# Returns the inputs of a session as list(values =, secrets =): the named values as text, without
# those of passwords and files, and the values that must not appear anywhere. Returns NULL if they
# cannot be read. Shiny has no public function by which passwords and files are known, but it sets
# serializers for them, so that bookmarks do not contain them.
shiny_inputs <- function(session) {
  tryCatch(
    {
      input <- session$rootScope()$input
      meta <- .subset2(input, "impl")$getMeta
      values <- shiny::isolate(shiny::reactiveValuesToList(input))
      is_hidden <- !vapply(names(values), function(name) {
        is.null(meta(name, "shiny.serializer"))
      }, NA)
      text <- vapply(values, input_text, "")
      is_password <- is_hidden & vapply(values, is.character, NA)
      shown <- mask(text[!is_hidden])
      list(
        values = utils::head(shown[order(names(shown))], shown_inputs),
        secrets = secret_parts(text[is_password | is_secret_name(names(text))])
      )
    },
    error = function(error) NULL
  )
}

input_text <- function(value) {
  if (is.null(value)) {
    return("NULL")
  }
  elements <- tryCatch(as.character(value), error = function(error) describe(value))
  readable(toString(utils::head(elements, shown_elements)))
}

# Returns all calls that have led to an error, the outermost first: of a promise, first those that
# created it.
shiny_calls <- function(condition) {
  stacks <- c(
    attr(condition, "deep.stack.trace", exact = TRUE),
    list(attr(condition, "stack.trace", exact = TRUE))
  )
  Filter(is.call, unlist(lapply(stacks, as.list), recursive = FALSE))
}

# Returns list(stage =, label =, session =) of an error: which output, observer or other function
# has failed. Shiny labels its frames.
shiny_place <- function(calls, state) {
  heads <- vapply(calls, head_of, "")
  label <- utils::tail(grep("^<observer:", heads, value = TRUE), 1)
  if (length(label) == 0) label <- utils::tail(grep("^output[$]", heads, value = TRUE), 1)
  path <- if (is.null(state$req)) "" else state$req$PATH_INFO
  download <- regmatches(path, regexec("^/session/([0-9a-f]+)/download/([^/]+)", path))[[1]]
  if (length(download) > 0) {
    name <- readable(utils::URLdecode(download[[3]]))
    list(stage = "download", label = paste0("download output$", name), session = download[[2]])
  } else if (!is.null(state$req)) {
    list(stage = "ui", label = "ui")
  } else if (length(label) > 0) {
    name <- readable(sub("^<observer:(.*)>$", "\\1", label))
    is_output <- startsWith(name, "output$")
    list(
      stage = if (is_output) "output" else "observer",
      label = if (is_output) name else paste("observer", name)
    )
  } else if (isTRUE(state$is_closing)) {
    list(stage = "close", label = "end of a session")
  } else if (any(heads == "server")) {
    list(stage = "server", label = "server")
  } else {
    list(stage = "promise", label = "a promise")
  }
}

has_place <- function(call) {
  !is.null(attr(call, "srcref"))
}

head_of <- function(call) {
  if (is.symbol(call[[1]])) as.character(call[[1]]) else ""
}

# Returns the traceback of the app's own calls, which are those with source references.
shiny_trace <- function(calls, condition) {
  count <- length(calls)
  last <- count
  while (last > 0L && is_signalling_pair(calls[[last]])) last <- last - 1L
  is_placed <- vapply(calls, has_place, NA)
  own <- which(is_placed & seq_len(count) <= last)
  # Of an error in C code, R has only the place.
  signalled <- which(is_placed & seq_len(count) > last)
  failed <- if (length(signalled) > 0) failed_call(condition, calls[[signalled[[1]]]])
  is_known <- is.null(failed) || any(vapply(
    calls[own], function(call) identical(place_of(call)[1:2], place_of(failed)[1:2]), NA
  ))
  found <- c(calls[own], if (!is_known) list(failed))
  if (length(found) == 0) {
    call <- written_call(calls[seq_len(last)]) %||% message_call(condition)
    found <- if (is.null(call)) list() else list(call)
  }
  found <- with_name_line(found, condition)
  at <- chosen_frames(length(found))
  c(
    describe_frames(found[at], vector("list", length(at))),
    list(package = rep(NA_character_, length(at)), left_out = 0L, folded = count - length(own))
  )
}

# Returns whether a call is one that R makes between an error and its handlers.
is_signalling_pair <- function(call) {
  is_signalling(call) || identical(call[[1]], quote(h))
}

# Returns the innermost call that is written in a file of the app, with its place, or NULL. R keeps
# no source references of an expression without braces, as in `renderText(f())`, and knitr keeps
# none of a document.
written_call <- function(calls) {
  units <- Filter(Negate(is.null), c(lapply(code_files(), file_unit), document_units()))
  # Below the last frame that Shiny has labelled are few calls.
  for (call in rev(utils::tail(calls, 40L))) {
    is_specific <- length(call) > 1 && any(vapply(as.list(call)[-1], is_written, NA))
    for (unit in if (is_specific) units) {
      statement <- equal_statement(call, unit)
      if (!is.null(statement)) {
        attr(call, "srcref") <- unit$references[[statement]]
        return(call)
      }
    }
  }
}

# Returns whether an argument is likely to be the app's and not one in the code of a package.
is_written <- function(argument) {
  !missing(argument) && (has_own_address(argument) || is.symbol(argument))
}

# Returns a call of stop() with the place in a file of the app that has the message of an error, or
# NULL. Shiny catches the error of a download by try(), which leaves nothing else of it.
message_call <- function(condition) {
  message <- paste(conditionMessage(condition), collapse = "\n")
  for (path in code_files()) {
    unit <- file_unit(path)
    tokens <- if (!is.null(unit)) utils::getParseData(unit$code)
    for (at in which(tokens$token == "STR_CONST")) {
      value <- tryCatch(str2lang(tokens$text[[at]]), error = function(error) "")
      if (is.character(value) && nchar(value) > 3 && grepl(value, message, fixed = TRUE)) {
        reference <- line_reference(attr(unit$code, "srcfile"), tokens$line1[[at]])
        return(structure(call("stop", value), srcref = reference))
      }
    }
  }
}
