# What is made of the table of settings (settings-table.R): arguments of functions, and parts of help pages, for
# `@eval` in comments of roxygen.

# Arguments of a function, with the text of their settings. `more` has sentences for R, by name.
params_of_settings <- function(of, ..., more = list()) {
  rows <- settings_of_function(of)
  rows <- rows[!rows$name %in% c(...), ]
  paste0("@param ", rows$key, " ", text_of_settings(rows, more))
}

# A section with one item for each of the rows.
section_of_settings <- function(title, before, rows, more = list()) {
  paste(c(paste0("@section ", title, ":"), before, "", paste0("* `", rows$name, "`: ", text_of_settings(rows, more))), collapse = "\n")
}

# The rows of arguments of a function, with the argument as `key`.
settings_of_function <- function(of) {
  rows <- setting_table[startsWith(setting_table$argument, paste0(of, "(")), ]
  cbind(rows, key = sub("^.*\\((.*)\\)$", "\\1", rows$argument))
}

# The names of settings that have a former name, with that as their names.
renamed_settings <- function(rows) {
  rows <- rows[nzchar(rows$former), ]
  set_names(rows$name, rows$former)
}

# Values by the names of settings, as the arguments of the function `of`.
arguments_of_settings <- function(of, settings) {
  rows <- settings_of_function(of)
  Filter(Negate(is.null), set_names(as.list(settings)[rows$name], rows$key))
}

# Values of arguments of the function `of`, by the names of their settings.
settings_of_arguments <- function(of, arguments) {
  rows <- settings_of_function(of)
  Filter(Negate(is.null), set_names(as.list(arguments)[rows$key], rows$name))
}

# The options of R that are not limits.
settings_of_options <- function() {
  setting_table[setting_table$is_option & !setting_table$is_limit, ]
}

# The limits that server_limits() takes in `...`.
further_limits <- function(stability) {
  rows <- settings_of_function("server_limits")
  rows <- rows[!rows$name %in% names(formals(server_limits)), ]
  rows[rows$stability %in% stability, ]
}

text_of_settings <- function(rows, more) {
  default <- ifelse(rows$is_literal & rows$default != "none", paste0("`", rows$default, "`"), rows$default)
  help <- ifelse(endsWith(rows$help, "."), rows$help, paste0(rows$help, "."))
  added <- vapply(rows$name, function(name) paste(c("", more[[name]]), collapse = " "), "")
  text <- paste0(help, " ", rows$paragraph, added, " Default: ", default, ".")
  # Roxygen escapes it in code only.
  gsub("%", "\\%", text, fixed = TRUE)
}
