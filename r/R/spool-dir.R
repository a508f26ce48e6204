# Where the bodies of requests lie that do not stay in memory. Made up once for each server, here and not on the thread
# that writes: Sys.setenv("TMPDIR") would race with it, and R's folder is removed with R.
spool_dir <- function() {
  setting <- setting_of("spool_dir")
  dir <- setting$value
  if (is.null(dir)) {
    # Made anew where it was swept away.
    return(normalizePath(tempdir(check = TRUE)))
  }
  if (!dir.exists(dir) || file.access(dir, 3) != 0) {
    abort_argument(
      setting$where, " names `", dir, "`, which is no folder that this user may write in: ",
      "make it, or choose another.",
      argument = "spool_dir"
    )
  }
  normalizePath(dir)
}
