# Where the bodies of requests lie that do not stay in memory. Made up once for each server, here and not on the thread
# that writes: Sys.setenv("TMPDIR") would race with it, and R's folder is removed with R.
spool_dir <- function() {
  dir <- getOption("rookery.spool_dir")
  if (is.null(dir)) {
    # Made anew where it was swept away.
    return(normalizePath(tempdir(check = TRUE)))
  }
  if (!is.character(dir) || length(dir) != 1 || is.na(dir) || !nzchar(dir)) {
    stop("The option `rookery.spool_dir` must be a folder, as one string, not ", describe(dir), ".", call. = FALSE)
  }
  if (!dir.exists(dir) || file.access(dir, 3) != 0) {
    stop(
      "The option `rookery.spool_dir` names `", dir, "`, which is no folder that this user may write in: ",
      "make it, or choose another.",
      call. = FALSE
    )
  }
  normalizePath(dir)
}
