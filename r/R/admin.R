# The admin listener of a single R process: status, metrics and probes. It has its own thread and
# responds while R is busy. With several workers, the supervisor has the admin listener.

# Checks the argument `admin` of serve(), and makes the path of a socket absolute.
check_admin <- function(admin) {
  if (is.null(admin)) {
    return(NULL)
  }
  classes <- c("rookery_bad_address", "rookery_bad_argument")
  admin <- setting_value(admin, "admin", "`admin`", classes)
  if (startsWith(admin, "unix:") && nchar(admin) > 5) {
    not_on_windows(
      "A Unix socket", "give an address with a port, such as \"127.0.0.1:9100\".",
      argument = "admin"
    )
    path <- path.expand(substring(admin, 6))
    return(paste0("unix:", if (startsWith(path, "/")) path else file.path(getwd(), path)))
  }
  admin
}

# Starts the admin listener, if there is one, with `label` as the name of what is served. Returns a
# function that stops it.
admin_start <- function(admin, label) {
  if (is.null(admin) || is_worker() || isTRUE(.globals$is_administered)) {
    # A worker has the admin listener of its supervisor. If the engine of a `_server.yml` is
    # rookery, the outer serve() has started the admin listener.
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

# Reports that the app listens now, and its address.
admin_serves <- function(place) {
  .Call(ffi_admin_set_state, 1L, place)
}

admin_drains <- function() {
  .Call(ffi_admin_set_state, 2L, NULL)
}
