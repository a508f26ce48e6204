# What is said of an error: to the client, and on stderr.

error_page <- function(condition) {
  text <- if (inherits(condition, "condition")) conditionMessage(condition) else as.character(condition)
  enc2utf8(paste0("ERROR: ", paste(text, collapse = "\n")))
}

# Raises an error of this package, which has a class of its own and `rookery_error`. Further fields
# of the condition go to `...`. Each error has a field `argument`, the name of the argument that is
# wrong, or `reason`, which is the message unless the caller knows the cause alone.
abort <- function(message, class, ...) {
  fields <- list(message = message, call = NULL, ...)
  if ("rookery_bad_argument" %in% class && is.null(fields$argument)) {
    fields$argument <- first_quoted(message)
  }
  if (is.null(fields$argument) && is.null(fields$reason)) {
    fields$reason <- message
  }
  # Handlers of httpuv's errors may be those of simpleError.
  classes <- c(class, "rookery_error", "simpleError", "error", "condition")
  stop(structure(fields, class = classes))
}

# Raises the error of a wrong argument, or of a wrong field of one. The message names the argument
# first, in backticks; the error of a message that does not gets the name by `argument`.
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
    # An argument that is another constructor's names that one.
    if (class(error)[[1]] != "rookery_bad_argument") stop(error)
    abort(
      paste0(constructor, ": ", conditionMessage(error)), c(class, "rookery_bad_argument"),
      argument = error$argument
    )
  })
}

# Gives a warning of this package.
warn <- function(message, class) {
  warning(structure(list(message = message, call = NULL), class = c(class, "rookery_warning", "warning", "condition")))
}

# One line on stderr: where, the class of the condition when it says something, and its message.
log_error <- function(where, condition, text) {
  if (inherits(condition, "condition")) {
    classes <- grep("^rookery_", setdiff(class(condition), c("simpleError", "error", "condition")), value = TRUE, invert = TRUE)
    kind <- if (length(classes) > 0) paste0("<", classes[[1]], "> ") else ""
    text <- paste0(kind, conditionMessage(condition))
  } else if (!is.null(condition)) {
    text <- paste(as.character(condition), collapse = "\n")
  }
  cat("rookery: ", where, ": ", text, "\n", sep = "", file = stderr())
}

# The condition of a stack that overflowed, which R tells no handler of; NULL when that is not what happened.
overflow_condition <- function() {
  text <- geterrmessage()
  texts <- "nested too deeply|C stack usage|stack overflow|node stack"
  if (!grepl(texts, text)) {
    return(NULL)
  }
  # So that the same text is not found again after the next failure.
  try(stop("none"), silent = TRUE)
  text <- sub("^Error( in [^:]*)?: *", "", sub("\n$", "", text))
  structure(class = c("stackOverflowError", "error", "condition"), list(message = text, call = NULL))
}
