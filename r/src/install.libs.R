# R CMD INSTALL runs this script instead of copying the shared object. The script copies the shared
# object, the core (which rookery.dll contains on Windows) and the program, and installs the package
# that is named httpuv into rookery's own folder, where `use_compat()` finds it. The httpuv package
# is not installed at its first use, because users of an installed rookery may not be allowed to
# write into its folder.

libs <- file.path(R_PACKAGE_DIR, paste0("libs", R_ARCH))
dir.create(libs, recursive = TRUE, showWarnings = FALSE)
built <- c(Sys.glob(paste0("*", SHLIB_EXT)), Filter(file.exists, "symbols.rds"))
stopifnot("the shared object has not been built" = length(built) > 0)
# The file of a loaded library is not overwritten, because that would end its processes.
unlink(file.path(libs, c(built, "core")), recursive = TRUE)
stopifnot(file.copy(c(built, if (!WINDOWS) "core"), libs, overwrite = TRUE, recursive = TRUE))
if (!WINDOWS) {
  stopifnot("the core has not been built" = length(Sys.glob(file.path(libs, "core", "librookery-*.so"))) == 1)
}

# R's folder for the programs of a package. install_cli() makes a link to the program.
programs <- file.path(R_PACKAGE_DIR, "exec")
dir.create(programs, showWarnings = FALSE)
program <- if (WINDOWS) "rookery.exe" else "rookery"
stopifnot("the program has not been built" = file.exists(program))
# The file of a running program cannot be overwritten, only replaced.
unlink(file.path(programs, program))
stopifnot(file.copy(program, programs, copy.mode = TRUE))

local({
  source <- file.path(R_PACKAGE_SOURCE, "inst", "compat-src", "httpuv")
  if (identical(Sys.getenv("ROOKERY_COMPAT"), "no") || !file.exists(file.path(source, "DESCRIPTION"))) {
    message("built without rookery's httpuv: see ?rookery::install_compat")
    return(invisible())
  }
  sys.source(file.path(R_PACKAGE_SOURCE, "R", "install-compat.R"), installer <- new.env())
  problem <- installer$build_compat(source, file.path(R_PACKAGE_DIR, "compat"))
  # rookery works without this httpuv. use_compat() tries the installation again and reports errors.
  if (!is.null(problem)) message(problem)
})
