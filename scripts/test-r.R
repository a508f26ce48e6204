# Runs the R packages' tests over what is installed, and prints a line of counts for scripts/test.

folders <- c(rookery = "r/tests/testthat", httpuv = "compat/httpuv/tests/testthat")
folders <- folders[dir.exists(folders)]
status <- 0L

for (package in names(folders)) {
  loadNamespace(package)
  cat("R package ", package, " ", format(packageVersion(package)), " from ",
      dirname(getNamespaceInfo(package, "path")), "\n", sep = "")
  results <- as.data.frame(testthat::test_dir(
    folders[[package]],
    package = package,
    load_package = "installed",
    reporter = "summary",
    stop_on_failure = FALSE
  ))
  failed <- results$failed > 0 | results$error
  skipped <- results$skipped & !failed
  cat("R tests: ", sum(!failed & !skipped), " passed ", sum(failed), " failed ", sum(skipped), " skipped ",
      sum(results$nb), " expectations (", package, ")\n", sep = "")
  if (any(failed)) status <- 1L
}

quit(status = status)
