# Deprecated names of functions and arguments. They work for one more release, and their
# first use in a session gives a message.

# Gives a message of class `rookery_deprecated`, once per session for each `old`.
deprecate <- function(old, new) {
  if (old %in% .globals$deprecated) {
    return(invisible())
  }
  .globals$deprecated <- c(.globals$deprecated, old)
  text <- paste0(
    "rookery: ", old, " is deprecated and will be removed in the next release: use ", new, ".\n"
  )
  message(structure(
    class = c("rookery_deprecated", "message", "condition"),
    list(message = text, call = NULL, old = old, new = new)
  ))
}

# Replaces the deprecated names in a list of values; `renamed` maps old names to new ones. A value
# that is given under both names is an error. `show` formats a name for messages.
rename_deprecated <- function(fields, renamed, show = function(name) paste0("`", name, "`")) {
  for (old in intersect(names(fields), names(renamed))) {
    new <- renamed[[old]]
    if (!is.null(fields[[new]])) {
      abort_argument(
        show(old), " is the deprecated name of ", show(new), ": give only ", show(new), ".",
        argument = old
      )
    }
    deprecate(show(old), show(new))
    names(fields)[names(fields) == old] <- new
  }
  fields
}

# ---- the `...` of functions whose options must be named ----

# Raises an error if `...` of the function `of` is not empty. `known` are the names of the options.
check_dots <- function(of, ..., known = character()) {
  if (...length() > 0) {
    arguments_of(of, NULL, abort_dots(c(...names(), "")[[1]], known))
  }
}

# Raises the error for an argument in `...`; `name` is "" for an unnamed argument.
abort_dots <- function(name, known) {
  if (is.na(name) || !nzchar(name)) {
    abort_argument("options must be given by name: ", quote_names(known), ".", argument = "...")
  }
  abort_argument("`", name, "` is not an argument.", did_you_mean(name, known))
}

# Adds options that `dots` has under deprecated names to `fields`, the named options of the function
# `of`. Anything else in `dots` is an error. `known` are the names of all options.
take_deprecated <- function(fields, dots, renamed, of, known = names(fields)) {
  unknown <- setdiff(names(dots) %||% rep("", length(dots)), names(renamed))
  if (length(unknown) > 0) abort_dots(unknown[[1]], known)
  is_given <- function(value) !is.null(value)
  given <- c(Filter(is_given, fields), Filter(is_given, dots))
  given <- rename_deprecated(given, renamed, function(name) paste0("`", name, "` of ", of))
  fields[names(given)] <- given
  fields
}

#' Deprecated functions
#'
#' These former names work for one more release: `event_stream()` is now
#' [sse_response()], and `stream_events()` is now [sse_body()]. The first use in
#' a session gives a message of class `rookery_deprecated`.
#'
#' @param headers,heartbeat,on_close,compress,source,event,map The arguments of
#'   the deprecated functions `event_stream()` and `stream_events()`. Their
#'   meaning is described for [sse_response()] and [sse_body()].
#' @return `event_stream()` returns the value of [sse_response()], and
#'   `stream_events()` the value of [sse_body()].
#' @name rookery-deprecated
#' @rdname rookery-deprecated
#' @keywords internal
#' @export
event_stream <- function(headers = list(), heartbeat = 15, on_close = NULL, compress = FALSE) {
  deprecate("`event_stream()`", "`sse_response()`")
  sse_response(headers = headers, heartbeat = heartbeat, on_close = on_close, compress = compress)
}

#' @rdname rookery-deprecated
#' @export
stream_events <- function(
  source, event = NULL, map = sse_event, heartbeat = 15, on_close = NULL, headers = list(),
                          compress = FALSE) {
  deprecate("`stream_events()`", "`sse_body()`")
  sse_body(
    source,
    event = event, map = map, heartbeat = heartbeat, on_close = on_close, headers = headers,
    compress = compress
  )
}
