# Returns the folder for request bodies that are not kept in memory. It is determined when a server
# is started, on R's thread, because the I/O thread must not read TMPDIR while R may call
# Sys.setenv(). R's own folder is removed when R ends.
spool_dir <- function() {
  setting <- setting_of("spool_dir")
  dir <- setting$value
  if (is.null(dir)) {
    # The folder is created again if a cleaner of /tmp has removed it.
    return(normalizePath(tempdir(check = TRUE)))
  }
  if (!dir.exists(dir) || file.access(dir, 3) != 0) {
    abort_argument(
      setting$where, " names `", dir, "`, which is not a folder that this user can write to: ",
      "create it, or choose another one.",
      argument = "spool_dir"
    )
  }
  normalizePath(dir)
}
