# The start-up screen of serve(), which shows what is served, the addresses, and how to stop. It is
# the screen of the program `rookery` (crates/cli/src/embedded.rs). Workers show none.

# Shows the screen and opens the address as soon as a server listens. A worker logs its name
# instead.
announce <- function(found, address, admin, open) {
  # If the engine of a `_server.yml` is rookery, serve() is called within serve(), and the settings
  # of the outer call apply as well.
  outer <- .globals$screen
  if (isFALSE(open)) open <- outer$open %||% FALSE
  .globals$screen <- list(admin = admin %||% outer$admin, open = open)
  screen <- .globals$screen
  .globals$label <- found$label
  if (is_worker()) announce_app(found$label)
  .globals$on_listen <- function(server) {
    .globals$on_listen <- NULL
    if (is_worker()) {
      dev_on_listen()
      if (!is_only_worker()) message("Serving as ", worker_name())
      return()
    }
    place <- place_of_server(server, address)
    admin_serves(place)
    # While knitr runs, the screen would become part of the document.
    if (!isTRUE(getOption("knitr.in.progress"))) {
      # With a public name, clients find the server by that name only.
      is_named <- !is.null(address$socket) || !is.null(.globals$tls$domain)
      # A server at a Unix socket has no port.
      port <- if (is.null(address$socket)) server$getPort() else 0L
      message(text_of(
        "start screen", .globals$label, found$dir %||% "", place, if (is_named) "" else address$host,
        port, screen$admin %||% "", isatty(stderr()), interactive() || isatty(stderr())
      ))
    }
    open_place(screen$open, place)
  }
}

# Announces the kind of app, such as "Shiny app (app.R)", to the program, whose screen shows it. The
# program has made the folder in which R has made its own temporary folder, and reads the file once
# the worker is ready (crates/supervisor/src/supervise/worker/worker_process.rs).
announce_app <- function(label) {
  tryCatch(
    writeBin(charToRaw(enc2utf8(label)), file.path(dirname(tempdir()), "rookery-app")),
    # The screen then shows the name of the file.
    error = function(error) NULL
  )
}

# Adds a detail of the app, such as "docs at /__docs__/", to what the screen shows.
announce_detail <- function(text) {
  label <- .globals$label
  .globals$label <- if (endsWith(label, ")")) {
    paste0(substr(label, 1, nchar(label) - 1), ", ", text, ")")
  } else {
    paste0(label, " (", text, ")")
  }
  if (is_worker()) announce_app(.globals$label)
}

check_open <- function(open) {
  if (!is.function(open) && !isTRUE(open) && !isFALSE(open)) {
    abort_argument(
      "`open` must be TRUE, FALSE or a function of the address, not ", describe(open), "."
    )
  }
}

# Opens the address as `open` of serve() says. If opening fails, a message is shown, and the app is
# still served.
open_place <- function(open, place) {
  if (isFALSE(open)) {
    return(invisible())
  }
  tryCatch(
    if (is.function(open)) open(place) else open_browser(place),
    error = function(error) message("rookery: `open` failed: ", conditionMessage(error))
  )
  invisible()
}

# Opens an address in the viewer of RStudio or Positron, or in the browser.
open_browser <- function(place, viewer = getOption("viewer"), browse = utils::browseURL) {
  if (!grepl("^https?://", place)) {
    return(message("rookery: `open` has no effect: a browser cannot open a Unix socket"))
  }
  # The viewer shows only pages of this machine.
  if (is.function(viewer) && grepl("^https?://(127[.]0[.]0[.]1|\\[::1\\]|localhost)[:/]", place)) {
    return(viewer(place))
  }
  is_set <- nzchar(Sys.getenv(c("SSH_CONNECTION", "SSH_TTY", "DISPLAY", "WAYLAND_DISPLAY")))
  if (any(is_set[1:2]) && !any(is_set[3:4])) {
    return(message("rookery: no browser is opened over SSH: the address is ", place))
  }
  browse(place)
}
