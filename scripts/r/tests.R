# Runs the tests of the installed R packages, and prints a line of counts for scripts/test.
#
#   scripts/with-rookery .local/lib Rscript scripts/r/tests.R [serve-examples ...]
#
# Without arguments, it runs all test files.

folders <- c(rookery = "r/tests/testthat", httpuv = "compat/httpuv/tests/testthat")
only <- commandArgs(trailingOnly = TRUE)
has_tests <- function(folder) {
  files <- file.path(folder, paste0("test-", only, ".R"))
  dir.exists(folder) && (length(only) == 0 || any(file.exists(files)))
}
folders <- folders[vapply(folders, has_tests, logical(1))]
if (length(folders) == 0) {
  stop("there is no test file test-", paste(only, collapse = ".R, test-"), ".R")
}
status <- 0L

for (package in names(folders)) {
  loadNamespace(package)
  cat("R package ", package, " ", format(packageVersion(package)), " from ",
      dirname(getNamespaceInfo(package, "path")), "\n", sep = "")
  results <- as.data.frame(testthat::test_dir(
    folders[[package]],
    filter = if (length(only) > 0) paste0("^(", paste(only, collapse = "|"), ")$"),
    package = package,
    load_package = "installed",
    reporter = "summary",
    stop_on_failure = FALSE
  ))
  failed <- results$failed > 0 | results$error
  skipped <- results$skipped & !failed
  cat("R tests: ", sum(!failed & !skipped), " passed ", sum(failed), " failed ", sum(skipped),
      " skipped ", sum(results$nb), " expectations (", package, ")\n", sep = "")
  if (any(failed)) status <- 1L
}

quit(status = status)
