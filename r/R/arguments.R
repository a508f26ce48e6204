# Arguments are looked at where they are given: what is wrong with one says so there, and not in a handler.

restored_server <- paste(
  "this server was started by another R session, and saved and restored since; it does not run in this one.",
  "Start it anew with startServer()."
)

# What an app may be: see startServer(). Of a list the parts are looked at as well; an environment may get them later.
check_app <- function(app) {
  is_holder <- is.null(app) || is.list(app) || is.environment(app) || isS4(app)
  if (!is.function(app) && !is_holder) {
    stop(
      "`app` must be a function of the request, or a list, environment or R6 object with `call`, not ", describe(app), ".",
      call. = FALSE
    )
  }
  if (is.list(app) && !is.object(app)) {
    for (name in intersect(c("call", "onHeaders", "onWSOpen", "onError"), names(app))) {
      if (!is.null(app[[name]]) && !is.function(app[[name]])) {
        stop("`app$", name, "` must be a function, not ", describe(app[[name]]), ".", call. = FALSE)
      }
    }
  }
}

check_function <- function(func, name) {
  if (!is.function(func)) {
    stop("`", name, "` must be a function, not ", describe(func), ".", call. = FALSE)
  }
}

check_status <- function(status) {
  if (!is.numeric(status) || length(status) != 1 || !(status %in% 200:999)) {
    stop("`status` must be one whole number from 200 to 999, not ", describe(status), ".", call. = FALSE)
  }
}

check_flag <- function(value, name) {
  if (!is.logical(value) || length(value) != 1 || is.na(value)) {
    stop("`", name, "` must be TRUE or FALSE, not ", describe(value), ".", call. = FALSE)
  }
}

# One string that is not empty.
check_string <- function(value, name) {
  if (!is.character(value) || length(value) != 1 || is.na(value) || !nzchar(value)) {
    stop("`", name, "` must be one string, not ", describe(value), ".", call. = FALSE)
  }
}

# The bits of a umask, as an integer.
check_mask <- function(mask) {
  is_number <- is.numeric(mask) && length(mask) == 1 && !is.na(mask) && mask == trunc(mask)
  if (!is_number || mask < -1 || mask > 511) {
    stop(
      "`mask` must be NULL or a umask as one number, such as strtoi(\"077\", 8), not ", describe(mask), ".",
      call. = FALSE
    )
  }
  as.integer(mask)
}

# A value, in a message: 42, "x", NA, or what it is an object of.
describe <- function(value) {
  if (is.null(value)) {
    return("NULL")
  }
  if (is.atomic(value) && length(value) == 1 && !is.object(value)) {
    text <- if (is.character(value) && !is.na(value)) encodeString(value, quote = "\"") else format(value)
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
