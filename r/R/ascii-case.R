# Case mapping of names, such as those of settings, headers and files. tolower() and toupper() depend
# on the locale: in a Turkish one, toupper("i") is not "I", and the environment variable of a setting
# would have another name.

ascii_lower <- function(names) {
  chartr(ascii_upper_letters, ascii_lower_letters, names)
}

ascii_upper <- function(names) {
  chartr(ascii_lower_letters, ascii_upper_letters, names)
}

ascii_lower_letters <- paste(letters, collapse = "")
ascii_upper_letters <- paste(LETTERS, collapse = "")
