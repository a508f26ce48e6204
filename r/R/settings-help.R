# The table of settings (crates/settings), and the arguments and parts of help pages that are made
# from it, for `@eval` in roxygen comments.

# Returns a data frame with a row for each setting that R accepts: its name and argument, whether it
# is an option of R and a limit, its kind, its default and whether that is a value, and its help in
# two parts.
setting_table <- function() {
  if (is.null(.globals$setting_table)) {
    lines <- strsplit(text_of("setting table"), "\n", fixed = TRUE)[[1]]
    fields <- do.call(rbind, strsplit(lines, "\t", fixed = TRUE))
    .globals$setting_table <- data.frame(
      name = fields[, 1], argument = fields[, 2], is_option = fields[, 3] == "TRUE",
      is_limit = fields[, 4] == "TRUE", kind = fields[, 5], default = fields[, 6],
      is_literal = fields[, 7] == "TRUE", help = fields[, 8], paragraph = fields[, 9],
      stringsAsFactors = FALSE
    )
  }
  .globals$setting_table
}

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
  rows <- setting_table()
  rows <- rows[startsWith(rows$argument, paste0(of, "(")), ]
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
  rows <- setting_table()
  rows[rows$is_option & !rows$is_limit, ]
}

setting_names <- function() settings_of_options()$name

limit_names <- function() {
  rows <- setting_table()
  rows$name[rows$is_limit]
}

text_of_settings <- function(rows, more) {
  default <- ifelse(
    rows$is_literal & rows$default != "none", paste0("`", rows$default, "`"), rows$default
  )
  help <- ifelse(endsWith(rows$help, "."), rows$help, paste0(rows$help, "."))
  added <- vapply(rows$name, function(name) paste(c("", more[[name]]), collapse = " "), "")
  paste0(help, " ", rows$paragraph, added, " Default: ", default, ".")
}
