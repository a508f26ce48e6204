# Error reports for plumber. plumber catches errors of endpoints within the call that the server
# makes, so their stack is lost before the server can see them. plumber's hooks around endpoints and
# filters run inside of that handler and still see the stack.

#' Report errors of a plumber API
#'
#' plumber itself responds to errors in its endpoints and filters, by its error
#' handler. `plumber_errors()` reports these errors like those of any other app:
#' on stderr, with the calls that led to them and the id of the request, and to
#' a function `on_error`. [serve()] calls `plumber_errors(pr)` for each plumber
#' API. Call it yourself to add an `on_error` function, or for an API that is
#' not started by `serve()`.
#'
#' Errors that an endpoint handles itself are not reported. Errors in
#' serializers, parsers and other hooks of plumber are reported without their
#' calls.
#'
#' @param pr The plumber router whose errors are reported. Add all endpoints,
#'   filters and mounted routers before this call. Errors of those that are
#'   added later are not reported.
#' @param ... Must be empty. The arguments that follow `...` must be given by
#'   name.
#' @param on_error A function that is called for each error, as described for
#'   `onError` of [startServer()]. It is called with `cond`, `req` and `info`,
#'   or with only `cond` if it has one argument. It may return a response that
#'   is sent instead of plumber's: a list with `status`, `headers` and `body`,
#'   where `body` is a string or a raw vector. `NULL` keeps the function that an
#'   earlier call of `plumber_errors()` set.
#' @return The plumber router `pr`, invisibly.
#' @examples
#' \dontrun{
#' # In plumber.R:
#' #* @plumber
#' function(pr) {
#'   rookery::plumber_errors(pr, on_error = function(cond, req, info) {
#'     message(info$request_id, " ", conditionMessage(cond))
#'   })
#' }
#' }
#' @export
plumber_errors <- function(pr, ..., on_error = NULL) {
  check_dots("plumber_errors()", ..., known = "on_error")
  if (!inherits(pr, "Plumber") || !is.environment(pr)) {
    abort_argument("`pr` must be a plumber router, not ", describe(pr), ".")
  }
  if (!is.null(on_error)) {
    check_function(on_error, "on_error")
    # The router's class has no such field and is locked.
    attr(pr, "rookery_on_error") <- on_error
  }
  hook_router(pr)
  invisible(pr)
}

# The depth limit also ends the recursion for a router that is mounted below itself.
hook_router <- function(router, depth = 0) {
  steps <- c(unlist(router$endpoints, recursive = FALSE), router$filters)
  for (step in steps) {
    if (inherits(step, "PlumberStep") && is.null(attr(step, "rookery_is_told"))) {
      step$registerHook("aroundexec", plumber_hook)
      attr(step, "rookery_is_told") <- TRUE
    }
  }
  for (mount in router$mounts) {
    # A mounted folder of files has no endpoints.
    if (inherits(mount, "Plumber") && depth < 20) hook_router(mount, depth + 1)
  }
}

# Runs around an endpoint or filter. plumber passes the function that it will call as `.next`,
# unless the client has sent a parameter of that name.
plumber_hook <- function(req, res, ..., .next) {
  if (!is.function(.next)) {
    given <- parent.frame()$hookArgs
    .next <- given[[length(given)]]
  }
  value <- report_step(.next(req = req, res = res, ...), req)
  # Only now, so that what the step does when it ends (`on.exit()`, `finally`) comes first.
  if (inherits(value, "rookery_answer")) {
    return(answer_of_plumber(res, value[[1]]))
  }
  promise <- as_promise(value)
  if (is.null(promise)) {
    return(value)
  }
  promises::then(promise, onRejected = function(reason) {
    answer <- report_plumber_error(reason, req, NULL, "promise")
    if (is.null(answer)) value else answer_of_plumber(res, answer)
  })
}

# Evaluates `step`, the call of an endpoint or filter, and reports its errors. If `on_error` returns
# a response, ends the call, and returns the response as an object of class `rookery_answer`.
report_step <- function(step, req) {
  answer <- NULL
  withCallingHandlers(
    step,
    error = function(condition) {
      # Called here while the stack is complete and has no call of rookery on top.
      trace <- trace_of(condition)
      answer <<- report_plumber_error(condition, req, trace)
      if (!is.null(answer)) {
        # Evaluating this promise returns from report_step(). withRestarts() would do the same, but
        # costs as much as five calling handlers for each step of each request. Each error needs a
        # promise of its own, because a promise cannot be evaluated twice. get() instead of the
        # name keeps R CMD check from reporting an unknown variable.
        frame <- parent.env(environment())
        delayedAssign("leave", return(structure(list(answer), class = "rookery_answer")), frame)
        get("leave", inherits = FALSE)
      }
    }
  )
}

# Returns whether a function is the one that calls endpoints and filters of plumber.
is_plumber_hook <- function(func) {
  identical(func, report_step)
}

# Reports an error, and returns the response of `on_error` or NULL.
report_plumber_error <- function(condition, req, trace, stage = "call") {
  id <- tryCatch(as.character(req$REQUEST_ID), error = function(error) character())
  id <- if (length(id) == 1) id else ""
  if (nzchar(id)) .globals$reported_ids <- utils::tail(c(.globals$reported_ids, id), told_most)
  report <- list(
    app = req$pr, detail = setting_of("error_detail")$value, stage = stage,
    label = if (stage == "call") "call" else "a promise",
    route = text_of("masked target", readable(paste(req$REQUEST_METHOD, req$PATH_INFO))),
    request_id = id, condition = condition, text = NULL, trace = trace, req = req,
    seconds = NA_real_, is_answerable = FALSE
  )
  answer <- call_on_error(report)
  write_error_report(report)
  # In development, the page with the error takes the place of plumber's response.
  answer %||% if (is_dev() && report$detail == "full") error_response(dev_error_report(report))
}

# The maximum number of remembered ids of requests whose error was reported. Ids are dropped when
# the response is sent, but some requests never get a response.
told_most <- 100L

# Sets a response as plumber's own.
answer_of_plumber <- function(res, answer) {
  res$status <- as.integer(answer$status)
  for (name in names(answer$headers)) res$setHeader(name, answer$headers[[name]])
  res$body <- answer$body
  res
}
