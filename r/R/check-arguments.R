# Checks of arguments, made when an object is created, so that errors name the argument instead of
# occurring later in a handler.

forked_server <- paste(
  "this server belongs to the process from which this one was forked: use it in that process, or",
  "start another server here with startServer()."
)

restored_server <- paste(
  "this server was started by another R session, saved and restored; it does not run in this",
  "session. Start it again with startServer()."
)

# Checks an app as startServer() describes it. The fields of a list are checked as well; an
# environment may get its fields later.
check_app <- function(app) {
  is_holder <- is.null(app) || is.list(app) || is.environment(app) || isS4(app)
  if (!is.function(app) && !is_holder) {
    abort_argument(
      "`app` must be a function of the request, or a list, environment or R6 object with ",
      "`call`, not ", describe(app), "."
    )
  }
  if (is.list(app) && !is.object(app)) {
    for (name in intersect(c("call", "onHeaders", "onWSOpen", "onError"), names(app))) {
      if (!is.null(app[[name]]) && !is.function(app[[name]])) {
        abort_argument("`app$", name, "` must be a function, not ", describe(app[[name]]), ".")
      }
    }
  }
  misspelt <- misspelt_fields(app)
  for (name in names(misspelt)) {
    text <- paste0(
      "`app$", name, "` is not a field of an app. Did you mean `", misspelt[[name]], "`?"
    )
    warn(text, "rookery_unknown_field")
  }
}

app_fields <- c(
  "call", "onHeaders", "onWSOpen", "onError", "staticPaths", "staticPathOptions", "wsProtocols",
  "wsOrigins", "wsCompression"
)

# Returns the misspelt fields of an app, as c(cal = "call"). These are fields that differ from a
# missing known field only in case, in `_` or in one letter.
misspelt_fields <- function(app) {
  names <- if (is.list(app) || is.environment(app)) names(app)
  missing <- setdiff(app_fields, names)
  plain <- function(names) ascii_lower(gsub("[_.]", "", names))
  names <- setdiff(names, c(app_fields, ""))
  near <- function(name) {
    missing[plain(missing) %in% close_names(plain(name), plain(missing), 1L)][1]
  }
  found <- vapply(names, near, "")
  found[!is.na(found)]
}

check_function <- function(func, name) {
  if (!is.function(func)) {
    abort_argument("`", name, "` must be a function, not ", describe(func), ".")
  }
}

check_status <- function(status) {
  if (!is.numeric(status) || length(status) != 1 || !(status %in% 200:999)) {
    abort_argument("`status` must be one whole number from 200 to 999, not ", describe(status), ".")
  }
}

# Checks that headers are a named list or vector. Their values are checked when they are sent.
check_response_headers <- function(headers) {
  is_fields <- is.list(headers) || is.atomic(headers) || is.environment(headers) ||
    is.pairlist(headers)
  is_named <- is.environment(headers) || length(headers) == 0 ||
    !(is.null(names(headers)) || anyNA(names(headers)) || any(names(headers) == ""))
  if (!is_fields || !is_named) {
    abort_argument(
      "`headers` must be a named list or a named character vector, not ", describe(headers), "."
    )
  }
}

check_flag <- function(value, name) {
  if (!is.logical(value) || length(value) != 1 || is.na(value)) {
    abort_argument("`", name, "` must be TRUE or FALSE, not ", describe(value), ".")
  }
}

# Checks for one non-empty string.
check_string <- function(value, name) {
  if (!is.character(value) || length(value) != 1 || is.na(value) || !nzchar(value)) {
    abort_argument("`", name, "` must be one string, not ", describe(value), ".")
  }
}

# Returns the bits of a umask as an integer.
check_mask <- function(mask) {
  is_number <- is.numeric(mask) && length(mask) == 1 && !is.na(mask) && mask == trunc(mask)
  if (!is_number || mask < -1 || mask > 511) {
    abort_argument(
      "`mask` must be NULL or a umask as one number, such as strtoi(\"077\", 8), not ",
      describe(mask), "."
    )
  }
  as.integer(mask)
}

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

# Describes a value for a message: 42, "x", NA, or the class of an object.
describe <- function(value) {
  if (is.null(value)) {
    return("NULL")
  }
  if (is.atomic(value) && length(value) == 1 && !is.object(value)) {
    text <- if (is.character(value) && !is.na(value)) {
      encodeString(value, quote = "\"")
    } else {
      format(value)
    }
    if (nchar(text) <= 60) {
      return(text)
    }
  }
  article <- if (is.object(value)) {
    "an object of class "
  } else if (is.atomic(value)) {
    "a vector of type "
  } else if (is.environment(value)) {
    "an "
  } else {
    "a "
  }
  kind <- if (is.object(value)) class(value)[[1]] else typeof(value)
  size <- if (is.object(value) || !is.vector(value)) "" else paste0(" of length ", length(value))
  paste0(article, kind, size)
}

# Returns each value as text, with numbers in full: "100000", not "1e+05".
plain_text <- function(values) {
  if (!is.numeric(values)) {
    return(sent_text(values))
  }
  vapply(
    seq_along(values),
    function(at) {
      format(values[[at]], scientific = FALSE, trim = TRUE, digits = 15, decimal.mark = ".")
    }, ""
  )
}

# Returns as.character() with the default values of R's options about numbers. The session's values,
# such as `OutDec = ","`, are for people, and must not change what is sent. Also called by
# src/response.c and src/websocket.c.
sent_text <- function(value) {
  former <- options(OutDec = ".", scipen = 0L)
  on.exit(options(former))
  as.character(value)
}
