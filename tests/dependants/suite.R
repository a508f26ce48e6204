# Runs testthat files, each in turn, and writes a line per test as it goes: file, what came out, name, the first failure.
#
#   Rscript suite.R <package or -> <results> <httpuv: rookery or httpuv> <file> ...
arguments <- commandArgs(trailingOnly = TRUE)
package <- arguments[[1]]
results <- arguments[[2]]
wanted <- arguments[[3]]
files <- arguments[-(1:3)]

# Before anything else: a run over the wrong httpuv says nothing.
found <- find.package("httpuv")
is_rookery <- identical(unname(read.dcf(file.path(found, "DESCRIPTION"), fields = "Config/rookery/compat")[[1]]), "true")
if (is_rookery != (wanted == "rookery")) stop("httpuv is that of ", found)

one_line <- function(text) gsub("[[:space:]]+", " ", paste(text, collapse = " "))
# Returns the message of a condition without the call in front, which may be longer than the part that is kept.
reason <- function(condition) sub("^(<[^ ]*> )?Error in `.*?`: ", "", one_line(conditionMessage(condition)), perl = TRUE)
told <- file(results, open = "a")
tell <- function(file, outcome, test, message = "") {
  writeLines(paste(file, outcome, one_line(test), substr(one_line(message), 1, 300), sep = "\t"), told, useBytes = TRUE)
  flush(told)
}

# Writes a line when a test of a file ends, so that `run` distinguishes a file that takes long from one that hangs.
Progress <- R6::R6Class("Progress",
  inherit = testthat::SilentReporter,
  public = list(end_test = function(context, test) tell(basename(file), "tested", test))
)

outcome_of <- function(test) {
  is <- function(class) vapply(test$results, inherits, NA, class)
  bad <- is("expectation_failure") | is("expectation_error")
  if (any(bad)) return(list("failed", reason(test$results[bad][[1]])))
  if (any(is("expectation_skip"))) {
    return(list("skipped", conditionMessage(test$results[is("expectation_skip")][[1]])))
  }
  list("passed", "")
}

for (file in files) {
  tell(basename(file), "began", "")
  reporter <- Progress$new()
  ran <- tryCatch(
    if (package == "-") {
      testthat::test_file(file, reporter = reporter, stop_on_failure = FALSE)
    } else {
      testthat::test_file(
        file, reporter = reporter, stop_on_failure = FALSE,
        package = package, load_package = "installed"
      )
    },
    error = function(error) error
  )
  if (inherits(ran, "error")) {
    tell(basename(file), "failed", "(the file)", reason(ran))
  } else {
    for (test in ran) {
      outcome <- outcome_of(test)
      tell(basename(file), outcome[[1]], test$test, outcome[[2]])
    }
  }
  tell(basename(file), "ended", "")
}
used <- if (isNamespaceLoaded("httpuv")) getNamespaceInfo("httpuv", "path") else found
stopifnot(normalizePath(used) == normalizePath(found))
