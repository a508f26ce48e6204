# Installs rookery's package httpuv from its source. The package is installed into a temporary
# folder beside `library`, which is then renamed, because another session may be installing it at
# the same time. Returns NULL, or a description of the error.
#
# install.libs.R sources this file while rookery is being installed, so the functions below use
# nothing else of rookery.
build_compat <- function(source, library) {
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
  # The R process of this command evaluates no profile, and neither do the R processes that it
  # starts. A profile could call use_compat() or install packages.
  none <- paste0("=", shQuote(file.path(work, "none")))
  status <- system2(
    file.path(R.home("bin"), "R"),
    c(
      "CMD", "INSTALL", "--use-vanilla", "--no-test-load", "--no-docs", "--no-lock",
      "-l", shQuote(into), shQuote(copy)
    ),
    stdout = output,
    stderr = output,
    env = c(
      paste0(c("R_PROFILE", "R_PROFILE_USER", "R_ENVIRON", "R_ENVIRON_USER"), none),
      "R_TESTS=", paste0("R_LIBS=", shQuote(paste(.libPaths(), collapse = .Platform$path.sep)))
    )
  )
  made <- file.path(into, "httpuv")
  if (status != 0 || !file.exists(file.path(made, "DESCRIPTION"))) {
    return(paste0(
      "Rookery's httpuv could not be installed into `", library, "`:\n",
      paste(readLines(output), collapse = "\n")
    ))
  }
  place <- file.path(library, "httpuv")
  before <- file.path(work, "before")
  # A folder cannot be renamed to the name of another one. The earlier one is removed with `work`.
  has_before <- file.exists(place) && file.rename(place, before)
  if (suppressWarnings(file.rename(made, place))) {
    return(NULL)
  }
  if (has_before) suppressWarnings(file.rename(before, place))
  # Another session may have installed the same package meanwhile.
  if (!identical(version_of(place), version_of(made))) {
    return(paste0("`", library, "` cannot be written."))
  }
  NULL
}

# Returns the version of a package in a folder, or NULL if there is none.
version_of <- function(package) {
  description <- file.path(package, "DESCRIPTION")
  if (file.exists(description)) read.dcf(description, fields = "Version")[[1]]
}

# Removes rookery from the package's imports, because rookery may not be installed yet. The package
# looks up rookery's objects only when it is loaded.
forget_rookery <- function(package) {
  description <- read.dcf(file.path(package, "DESCRIPTION"))
  imports <- trimws(strsplit(description[, "Imports"], ",")[[1]])
  description[, "Imports"] <- paste(imports[!grepl("^rookery\\b", imports)], collapse = ", ")
  write.dcf(description, file.path(package, "DESCRIPTION"))
  namespace <- readLines(file.path(package, "NAMESPACE"))
  writeLines(namespace[!grepl("^import\\(rookery\\)", namespace)], file.path(package, "NAMESPACE"))
}
