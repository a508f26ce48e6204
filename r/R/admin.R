# The admin listener of an R that serves by itself: status, metrics and probes, answered on a thread of its own also while R is busy.
# With several workers it is their supervisor's.

# What serve() takes for `admin`, with the path of a socket made absolute.
check_admin <- function(admin, called = "`admin`") {
  if (is.null(admin)) {
    return(NULL)
  }
  if (!is.character(admin) || length(admin) != 1 || is.na(admin) || !nzchar(admin)) {
    abort_argument(
      called, " must be an address such as \"127.0.0.1:9100\", or \"unix:/path/of/a/socket\", not ", describe(admin), ".",
      class = "rookery_bad_address"
    )
  }
  if (startsWith(admin, "unix:") && nchar(admin) > 5) {
    path <- path.expand(substring(admin, 6))
    return(paste0("unix:", if (startsWith(path, "/")) path else file.path(getwd(), path)))
  }
  admin
}

# Answers at the address, if there is one, as being `label`. A function that ends that.
admin_start <- function(admin, label) {
  if (is.null(admin) || is_worker() || isTRUE(.globals$is_administered)) {
    # A worker's is its supervisor's; and of an engine that is rookery itself, the outer one's stays.
    return(function() NULL)
  }
  wrong <- .Call(ffi_admin_start, admin, label)
  if (is.character(wrong)) {
    abort(wrong, "rookery_no_address", status = 4L)
  }
  .globals$is_administered <- TRUE
  function() {
    .globals$is_administered <- NULL
    .Call(ffi_admin_stop)
  }
}

# Who asks is told that the app listens now, and where.
admin_serves <- function(place) {
  .Call(ffi_admin_set_state, 1L, place)
}

admin_drains <- function() {
  .Call(ffi_admin_set_state, 2L, NULL)
}
