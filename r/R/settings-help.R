# Arguments and parts of help pages that are generated from the table of settings
# (settings-table.R), for `@eval` in roxygen comments.

# Returns @param tags with the help texts of a function's settings. `more` has additional sentences,
# by name.
params_of_settings <- function(of, ..., more = list()) {
  rows <- settings_of_function(of)
  rows <- rows[!rows$name %in% c(...), ]
  paste0("@param ", rows$key, " ", text_of_settings(rows, more))
}

# Returns a section with one item for each row.
section_of_settings <- function(title, before, rows, more = list()) {
  paste(
    c(
      paste0("@section ", title, ":"), before, "",
      paste0("* `", rows$name, "`: ", text_of_settings(rows, more))
    ),
    collapse = "\n"
  )
}

# Returns the rows of a function's arguments, with the argument as `key`.
settings_of_function <- function(of) {
  rows <- setting_table[startsWith(setting_table$argument, paste0(of, "(")), ]
  cbind(rows, key = sub("^.*\\((.*)\\)$", "\\1", rows$argument))
}

# Renames values from names of settings to arguments of the function `of`.
arguments_of_settings <- function(of, settings) {
  rows <- settings_of_function(of)
  Filter(Negate(is.null), set_names(as.list(settings)[rows$name], rows$key))
}

# Renames values from arguments of the function `of` to names of settings.
settings_of_arguments <- function(of, arguments) {
  rows <- settings_of_function(of)
  Filter(Negate(is.null), set_names(as.list(arguments)[rows$key], rows$name))
}

# Returns the rows of R options that are not limits.
settings_of_options <- function() {
  setting_table[setting_table$is_option & !setting_table$is_limit, ]
}

text_of_settings <- function(rows, more) {
  default <- ifelse(
    rows$is_literal & rows$default != "none", paste0("`", rows$default, "`"), rows$default
  )
  help <- ifelse(endsWith(rows$help, "."), rows$help, paste0(rows$help, "."))
  added <- vapply(rows$name, function(name) paste(c("", more[[name]]), collapse = " "), "")
  paste0(help, " ", rows$paragraph, added, " Default: ", default, ".")
}
