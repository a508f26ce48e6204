# Run by the R processes that the program `rookery` starts, see R/cli.R of the same package.
local({
  text <- Sys.getenv("ROOKERY_INTERNAL_SETTINGS")
  file <- sub("^--file=", "", grep("^--file=", commandArgs(FALSE), value = TRUE))
  # In an interactive worker, interactive.R sources this file.
  file <- if (length(file) > 0) file[[1]] else file.path(Sys.getenv("ROOKERY_INTERNAL_SERVE_DIR"), "cli.R")
  library <- dirname(dirname(dirname(normalizePath(gsub("~+~", " ", file, fixed = TRUE)))))
  # Processes that the app starts must not inherit them.
  Sys.unsetenv(c("ROOKERY_INTERNAL_SETTINGS", "ROOKERY_INTERNAL_SERVE_DIR"))
  main <- loadNamespace("rookery", lib.loc = library)$cli_main
  # For library(rookery) in the app, unless R finds the package, perhaps another version, by itself.
  if (!nzchar(system.file(package = "rookery", lib.loc = .libPaths()))) .libPaths(c(.libPaths(), library))
  main(text)
})
