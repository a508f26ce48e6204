# Run by the R that serve() starts for a path: see R/serve-child.R.
local({
  text <- Sys.getenv("ROOKERY_INTERNAL_CHILD_SPEC")
  # Not for the processes that the app starts.
  Sys.unsetenv("ROOKERY_INTERNAL_CHILD_SPEC")
  library <- unserialize(charToRaw(text))$library
  loadNamespace("rookery", lib.loc = c(library, .libPaths()))$child_main(text)
})
