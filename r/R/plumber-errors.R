# plumber handles its endpoints' errors itself, inside of us: what it has caught has lost its stack. Its hook around endpoints and filters
# stands inside of that.

#' Tell of a plumber API's errors
#'
#' plumber answers errors of its endpoints and filters itself, by its error handler. After `plumber_errors()` they are told as those of
#' any other app are: on stderr with the calls that led to them and the id of the request, and to a function of yours. [serve()] does this
#' for every plumber API, without such a function; call it yourself for one, or for an API that is run otherwise.
#'
#' What an endpoint handles itself is no error. Errors of serializers, parsers and other hooks of plumber's are told of without their
#' calls.
#'
#' @param pr A plumber router; endpoints, filters and mounted routers that are added later are not seen.
#' @param ... Must be empty: what follows is given by name.
#' @param on_error `function(cond, req, info)` or with fewer arguments, as `onError` in [startServer()]. A response that it returns takes the
#'   place of plumber's: a list of `status`, `headers` and `body`, which is a string or a raw vector. `NULL` keeps that of an earlier call.
#' @return `pr`, invisibly.
#' @examples
#' \dontrun{
#' # In plumber.R:
#' #* @plumber
#' function(pr) {
#'   rookery::plumber_errors(pr, on_error = function(cond, req, info) message(info$request_id, " ", conditionMessage(cond)))
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
    # Its class has no field for it, and is locked.
    attr(pr, "rookery_on_error") <- on_error
  }
  hook_router(pr)
  invisible(pr)
}

# One that is mounted below itself ends it as well.
hook_router <- function(router, depth = 0) {
  steps <- c(unlist(router$endpoints, recursive = FALSE), router$filters)
  for (step in steps) {
    if (inherits(step, "PlumberStep") && is.null(attr(step, "rookery_is_told"))) {
      step$registerHook("aroundexec", plumber_hook)
      attr(step, "rookery_is_told") <- TRUE
    }
  }
  for (mount in router$mounts) {
    # A folder of files has no endpoints.
    if (inherits(mount, "Plumber") && depth < 20) hook_router(mount, depth + 1)
  }
}

# Around an endpoint or filter. plumber gives it what it is about to call as `.next`, unless the client has a parameter of that name.
plumber_hook <- function(req, res, ..., .next) {
  if (!is.function(.next)) {
    given <- parent.frame()$hookArgs
    .next <- given[[length(given)]]
  }
  value <- withRestarts(
    withCallingHandlers(
      .next(req = req, res = res, ...),
      error = function(condition) {
        # While the stack is as it was, and no call of ours lies on it.
        trace <- trace_of(condition)
        answer <- report_plumber_error(condition, req, trace)
        if (!is.null(answer)) invokeRestart("rookery_answer", answer)
      }
    ),
    rookery_answer = function(answer) answer_of_plumber(res, answer)
  )
  if (!inherits(value, "promise")) {
    return(value)
  }
  promises::then(value, onRejected = function(reason) {
    answer <- report_plumber_error(reason, req, NULL, "promise")
    if (is.null(answer)) value else answer_of_plumber(res, answer)
  })
}

is_plumber_hook <- function(func) {
  identical(func, plumber_hook)
}

# The response of `on_error`, if it gave one.
report_plumber_error <- function(condition, req, trace, stage = "call") {
  id <- tryCatch(as.character(req$REQUEST_ID), error = function(error) character())
  id <- if (length(id) == 1) id else ""
  if (nzchar(id)) .globals$reported_ids <- utils::tail(c(.globals$reported_ids, id), told_most)
  report <- list(
    app = req$pr, detail = setting_of("error_detail")$value, stage = stage, label = if (stage == "call") "call" else "a promise",
    route = .Call(ffi_mask_tokens, readable(paste(req$REQUEST_METHOD, req$PATH_INFO))), request_id = id, condition = condition, text = NULL, trace = trace, req = req,
    seconds = NA_real_, is_answerable = FALSE
  )
  answer <- call_on_error(report)
  write_error_report(report)
  answer
}

# Ids of requests whose failure has been told of, until they are answered: nobody answers some.
told_most <- 100L

# Gives plumber a response as its own.
answer_of_plumber <- function(res, answer) {
  res$status <- as.integer(answer$status)
  for (name in names(answer$headers)) res$setHeader(name, answer$headers[[name]])
  res$body <- answer$body
  res
}
