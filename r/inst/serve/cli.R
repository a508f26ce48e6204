# What exec/rookery runs: all of it is in R/cli.R, of the package that this file belongs to.
local({
  file <- sub("^--file=", "", grep("^--file=", commandArgs(FALSE), value = TRUE)[[1]])
  library <- dirname(dirname(dirname(normalizePath(gsub("~+~", " ", file, fixed = TRUE)))))
  if (!library %in% .libPaths()) {
    .libPaths(c(library, .libPaths()))
  }
  rookery <- loadNamespace("rookery", lib.loc = .libPaths())
  quit(save = "no", status = rookery$cli_main(commandArgs(trailingOnly = TRUE)))
})
