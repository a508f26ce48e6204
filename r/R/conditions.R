# Raising and logging errors of this package.

error_page <- function(condition) {
  text <- if (inherits(condition, "condition")) {
    conditionMessage(condition)
  } else {
    as.character(condition)
  }
  enc2utf8(paste0("ERROR: ", paste(text, collapse = "\n")))
}

# Raises an error of this package with `class` and class `rookery_error`. Further fields of the
# condition are passed in `...`. Each error has either a field `argument`, the name of the wrong
# argument, or a field `reason`, which is the message unless the caller passes the bare cause.
abort <- function(message, class, ...) {
  fields <- list(message = message, call = NULL, ...)
  if ("rookery_bad_argument" %in% class && is.null(fields$argument)) {
    fields$argument <- first_quoted(message)
  }
  if (is.null(fields$argument) && is.null(fields$reason)) {
    fields$reason <- message
  }
  # Code that handles errors of httpuv may expect class simpleError.
  classes <- c(class, "rookery_error", "simpleError", "error", "condition")
  stop(structure(fields, class = classes))
}

# Raises the error of a wrong argument, or of a wrong field of an argument. The name is taken from
# the first backticks in the message, unless `argument` has it.
abort_argument <- function(..., argument = NULL, class = NULL) {
  abort(paste0(...), unique(c(class, "rookery_bad_argument")), argument = argument)
}

# Returns the first name in backticks of a message, `port` for "`port:` of ...", or NULL.
first_quoted <- function(message) {
  found <- regmatches(message, regexec("`([^`]+?):?`", message, perl = TRUE))[[1]]
  if (length(found) > 0) found[[2]]
}

# Evaluates the checks of a constructor, such as "acme()". Their errors name the constructor and
# have its class.
arguments_of <- function(constructor, class, body) {
  tryCatch(body, rookery_bad_argument = function(error) {
    # If the argument is the value of another constructor, the error already names that constructor.
    if (class(error)[[1]] != "rookery_bad_argument") stop(error)
    abort(
      paste0(constructor, ": ", conditionMessage(error)), c(class, "rookery_bad_argument"),
      argument = error$argument
    )
  })
}

# Gives a warning with a class of this package.
warn <- function(message, class) {
  warning(structure(
    list(message = message, call = NULL),
    class = c(class, "rookery_warning", "warning", "condition")
  ))
}

# Makes R show warnings at once, and not at the end of a call that serves, which may run for months.
# Returns the former value for options().
warn_at_once <- function() {
  if (getOption("warn") == 0) options(warn = 1L) else options("warn")
}

# Writes to stderr the place, the class of the condition if it is informative, and the message.
log_error <- function(where, condition, text) {
  if (inherits(condition, "condition")) {
    classes <- grep(
      "^rookery_", setdiff(class(condition), c("simpleError", "error", "condition")), value = TRUE,
      invert = TRUE
    )
    kind <- if (length(classes) > 0) paste0("<", classes[[1]], "> ") else ""
    text <- paste0(kind, conditionMessage(condition))
  } else if (!is.null(condition)) {
    text <- paste(as.character(condition), collapse = "\n")
  }
  cat("rookery: ", where, ": ", indent_rest(text), "\n", sep = "", file = stderr())
}

# Indents all lines of a message but the first. In a log of JSON objects, an indented line has the
# level of the line before it.
indent_rest <- function(text) {
  gsub("\n", "\n  ", text, fixed = TRUE)
}

# Returns the condition of a stack overflow, for which R calls no handlers, or NULL if the last
# error was another one.
overflow_condition <- function() {
  text <- geterrmessage()
  texts <- "nested too deeply|C stack usage|stack overflow|node stack"
  if (!grepl(texts, text)) {
    return(NULL)
  }
  # Overwrites the last error message, so that the next failure is not taken for a stack overflow.
  try(stop("none"), silent = TRUE)
  text <- sub("^Error( in [^:]*)?: *", "", sub("\n$", "", text))
  structure(
    class = c("stackOverflowError", "error", "condition"), list(message = text, call = NULL)
  )
}
