# Run by R CMD INSTALL instead of its own copying of the shared object: that is done here first, and then the package
# that is named httpuv is installed into rookery's own folder, where `use_compat()` finds it. Now and not at first use,
# because whoever uses rookery later may not be allowed to write where it lies.

libs <- file.path(R_PACKAGE_DIR, paste0("libs", R_ARCH))
dir.create(libs, recursive = TRUE, showWarnings = FALSE)
built <- c(Sys.glob(paste0("*", SHLIB_EXT)), Filter(file.exists, "symbols.rds"))
stopifnot("the shared object has not been built" = length(built) > 0)
stopifnot(file.copy(built, libs, overwrite = TRUE))

# The program `rookery`, as a package's programs are: install_cli() makes a link to it.
programs <- file.path(R_PACKAGE_DIR, "exec")
dir.create(programs, showWarnings = FALSE)
stopifnot("the program has not been built" = file.exists("rookery"))
# One that runs cannot be written to.
unlink(file.path(programs, "rookery"))
stopifnot(file.copy("rookery", programs, copy.mode = TRUE))

local({
  source <- file.path(R_PACKAGE_SOURCE, "inst", "compat-src", "httpuv")
  if (!file.exists(file.path(source, "DESCRIPTION"))) {
    message("compat-src is not there: rookery::use_compat() will not work")
    return(invisible())
  }
  sys.source(file.path(R_PACKAGE_SOURCE, "R", "install-compat.R"), installer <- new.env())
  problem <- installer$install_compat(source, file.path(R_PACKAGE_DIR, "compat"))
  # rookery itself works without; use_compat() tries again and tells.
  if (!is.null(problem)) message(problem)
})
