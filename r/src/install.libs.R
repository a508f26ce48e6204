# Run by R CMD INSTALL instead of its own copying of the shared object: that is done here first, and then the package
# that is named httpuv is installed into rookery's own folder, where `use_compat()` finds it. Now and not at first use,
# because whoever uses rookery later may not be allowed to write where it lies.

libs <- file.path(R_PACKAGE_DIR, paste0("libs", R_ARCH))
dir.create(libs, recursive = TRUE, showWarnings = FALSE)
built <- c(Sys.glob(paste0("*", SHLIB_EXT)), Filter(file.exists, "symbols.rds"))
stopifnot("the shared object has not been built" = length(built) > 0)
stopifnot(file.copy(built, libs, overwrite = TRUE))

local({
  source <- file.path(R_PACKAGE_SOURCE, "inst", "compat-src", "httpuv")
  if (!file.exists(file.path(source, "DESCRIPTION"))) {
    message("compat-src is not there: rookery::use_compat() will not work")
    return(invisible())
  }
  work <- tempfile("compat")
  dir.create(work)
  on.exit(unlink(work, recursive = TRUE))
  file.copy(source, work, recursive = TRUE)
  copy <- file.path(work, "httpuv")
  # It imports rookery, which is not installed before this script has ended; it binds rookery's objects when it is
  # loaded, so nothing of rookery is needed now.
  description <- read.dcf(file.path(copy, "DESCRIPTION"))
  imports <- trimws(strsplit(description[, "Imports"], ",")[[1]])
  description[, "Imports"] <- paste(imports[!grepl("^rookery\\b", imports)], collapse = ", ")
  write.dcf(description, file.path(copy, "DESCRIPTION"))
  namespace <- readLines(file.path(copy, "NAMESPACE"))
  writeLines(namespace[!grepl("^import\\(rookery\\)", namespace)], file.path(copy, "NAMESPACE"))
  library <- file.path(R_PACKAGE_DIR, "compat")
  dir.create(library)
  output <- file.path(work, "output")
  status <- system2(
    file.path(R.home("bin"), "R"),
    c("CMD", "INSTALL", "--no-test-load", "--no-lock", "-l", shQuote(library), shQuote(copy)),
    stdout = output,
    stderr = output
  )
  if (status != 0 || !file.exists(file.path(library, "httpuv", "DESCRIPTION"))) {
    # rookery itself works without; use_compat() tries again and tells.
    unlink(library, recursive = TRUE)
    message("httpuv's stand-in could not be installed:\n", paste(readLines(output), collapse = "\n"))
  }
})
