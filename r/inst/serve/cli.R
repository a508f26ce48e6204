# Run by the R that the program `rookery` becomes: see R/cli.R, of the package that this file belongs to.
local({
  text <- Sys.getenv("ROOKERY_CLI")
  # Not for the processes that the app starts.
  Sys.unsetenv("ROOKERY_CLI")
  file <- sub("^--file=", "", grep("^--file=", commandArgs(FALSE), value = TRUE)[[1]])
  library <- dirname(dirname(dirname(normalizePath(gsub("~+~", " ", file, fixed = TRUE)))))
  if (!library %in% .libPaths()) {
    .libPaths(c(library, .libPaths()))
  }
  loadNamespace("rookery", lib.loc = c(library, .libPaths()))$cli_main(text)
})
