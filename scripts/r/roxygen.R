# Writes r/man and r/NAMESPACE from the comments in r/R.
#
#   Rscript scripts/r/roxygen.R [check]      check: only compare; status 1 if they differ
#
# The sources are evaluated in a child of the installed package's namespace, because roxygen2 needs
# source references.

options(keep.source = TRUE)
load_sources <- function(path) {
  env <- new.env(parent = asNamespace("rookery"))
  for (file in list.files(file.path(path, "R"), "[.]R$", full.names = TRUE)) {
    expressions <- as.list(parse(file, keep.source = TRUE, encoding = "UTF-8"))
    for (expression in expressions) eval(expression, env)
  }
  env
}

is_check <- identical(commandArgs(trailingOnly = TRUE), "check")
package <- "r"
if (is_check) {
  package <- file.path(tempdir(), "r")
  dir.create(package)
  sources <- file.path("r", c("DESCRIPTION", "NAMESPACE", "R", "man"))
  copied <- file.copy(sources, package, recursive = TRUE)
  stopifnot(copied)
}
# A warning is an error in a comment.
options(warn = 2)
roxygen2::roxygenise(package, load_code = load_sources)

if (is_check) {
  generated <- function(folder) {
    c("DESCRIPTION", "NAMESPACE", file.path("man", list.files(file.path(folder, "man"))))
  }
  contents <- function(folder, file) {
    path <- file.path(folder, file)
    if (file.exists(path)) readLines(path, warn = FALSE)
  }
  differs <- Filter(
    function(file) !identical(contents("r", file), contents(package, file)),
    union(generated("r"), generated(package))
  )
  if (length(differs) > 0) {
    message(
      "differ from the comments in r/R; `make docs` updates them: ", paste(differs, collapse = ", ")
    )
    quit(status = 1)
  }
}
