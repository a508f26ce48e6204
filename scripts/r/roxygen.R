# Writes r/man and r/NAMESPACE from the comments in r/R.
#
#   Rscript scripts/r/roxygen.R [check]      check: only says whether they are what the comments give; status 1 if not
#
# The installed package lends its namespace; its sources are read again, for roxygen2 wants to know their lines.

options(keep.source = TRUE)
load_sources <- function(path) {
  env <- new.env(parent = asNamespace("rookery"))
  for (file in list.files(file.path(path, "R"), "[.]R$", full.names = TRUE)) {
    for (expression in as.list(parse(file, keep.source = TRUE, encoding = "UTF-8"))) eval(expression, env)
  }
  env
}

is_check <- identical(commandArgs(trailingOnly = TRUE), "check")
package <- "r"
if (is_check) {
  package <- file.path(tempdir(), "r")
  dir.create(package)
  copied <- file.copy(file.path("r", c("DESCRIPTION", "NAMESPACE", "R", "man")), package, recursive = TRUE)
  stopifnot(copied)
}
# A warning is a mistake in a comment.
options(warn = 2)
roxygen2::roxygenise(package, load_code = load_sources)

if (is_check) {
  generated <- function(folder) c("DESCRIPTION", "NAMESPACE", file.path("man", list.files(file.path(folder, "man"))))
  contents <- function(folder, file) {
    path <- file.path(folder, file)
    if (file.exists(path)) readLines(path, warn = FALSE)
  }
  differs <- Filter(
    function(file) !identical(contents("r", file), contents(package, file)),
    union(generated("r"), generated(package))
  )
  if (length(differs) > 0) {
    message("not what the comments in r/R give; `make docs` writes them: ", paste(differs, collapse = ", "))
    quit(status = 1)
  }
}
