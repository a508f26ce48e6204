# Runs the tests of the installed R packages, and prints a line of counts for scripts/test.
#
#   scripts/with-rookery .local/lib Rscript scripts/r/test.R [serve-examples ...]
#
# Without arguments, it runs all test files, several at a time: most of them wait most of the time. The
# environment variables TESTTHAT_PARALLEL and TESTTHAT_CPUS change that. Those that take longest begin
# first (Config/testthat/start-first in DESCRIPTION).

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
if (length(only) == 0 && !nzchar(Sys.getenv("TESTTHAT_PARALLEL"))) {
  Sys.setenv(TESTTHAT_PARALLEL = "TRUE")
}
if (!nzchar(Sys.getenv("TESTTHAT_CPUS"))) {
  Sys.setenv(TESTTHAT_CPUS = 2L * parallel::detectCores())
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
