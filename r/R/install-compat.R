# Installs the package that is named httpuv from its source into a library of its own, in a folder beside it, which is
# then renamed: another session may be doing the same. Gives NULL, or what went wrong.
#
# install.libs.R reads this file while rookery is being installed: what is here needs no other of rookery's.
install_compat <- function(source, library) {
  dir.create(library, recursive = TRUE, showWarnings = FALSE)
  work <- tempfile("install-", dirname(library))
  dir.create(work)
  on.exit(unlink(work, recursive = TRUE))
  file.copy(source, work, recursive = TRUE)
  copy <- file.path(work, basename(source))
  forget_rookery(copy)
  output <- file.path(work, "output")
  into <- file.path(work, "library")
  dir.create(into)
  status <- system2(
    file.path(R.home("bin"), "R"),
    c("CMD", "INSTALL", "--no-test-load", "--no-docs", "--no-lock", "-l", shQuote(into), shQuote(copy)),
    stdout = output,
    stderr = output,
    env = c("R_TESTS=", paste0("R_LIBS=", shQuote(paste(.libPaths(), collapse = .Platform$path.sep))))
  )
  made <- file.path(into, "httpuv")
  if (status != 0 || !file.exists(file.path(made, "DESCRIPTION"))) {
    return(paste0(
      "Rookery's httpuv could not be installed into `", library, "`:\n", paste(readLines(output), collapse = "\n")
    ))
  }
  if (!file.rename(made, file.path(library, "httpuv")) && !file.exists(file.path(library, "httpuv", "DESCRIPTION"))) {
    return(paste0("`", library, "` cannot be written."))
  }
  NULL
}

# It imports rookery, which may be in no library yet. It binds rookery's objects when it is loaded, so nothing of rookery
# is needed before.
forget_rookery <- function(package) {
  description <- read.dcf(file.path(package, "DESCRIPTION"))
  imports <- trimws(strsplit(description[, "Imports"], ",")[[1]])
  description[, "Imports"] <- paste(imports[!grepl("^rookery\\b", imports)], collapse = ", ")
  write.dcf(description, file.path(package, "DESCRIPTION"))
  namespace <- readLines(file.path(package, "NAMESPACE"))
  writeLines(namespace[!grepl("^import\\(rookery\\)", namespace)], file.path(package, "NAMESPACE"))
}
