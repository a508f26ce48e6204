# Run by the R that serve() starts for a path: see R/serve-child.R.
local({
  text <- Sys.getenv("ROOKERY_SERVE")
  # Not for the processes that the app starts.
  Sys.unsetenv("ROOKERY_SERVE")
  library <- unserialize(charToRaw(text))$library
  loadNamespace("rookery", lib.loc = c(library, .libPaths()))$child_main(text)
})
