# Run by the R process that serve() starts for a path, see R/serve-child.R.
local({
  text <- Sys.getenv("ROOKERY_INTERNAL_CHILD_SPEC")
  # Processes that the app starts must not inherit it.
  Sys.unsetenv("ROOKERY_INTERNAL_CHILD_SPEC")
  library <- unserialize(charToRaw(text))$library
  loadNamespace("rookery", lib.loc = library)$child_main(text)
})
