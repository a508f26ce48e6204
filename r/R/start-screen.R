# The start-up screen of serve(), which shows what is served, the addresses, and how to stop. The
# program `rookery` shows the same screen (crates/cli/src/terminal/startup_screen.rs), and workers
# show none.

# Shows the screen and opens the address as soon as a server listens. A worker logs its name
# instead.
announce <- function(found, address, admin, open) {
  # If the engine of a `_server.yml` is rookery, serve() is called within serve(), and the settings
  # of the outer call apply as well.
  outer <- .globals$screen
  if (isFALSE(open)) open <- outer$open %||% FALSE
  .globals$screen <- list(admin = admin %||% outer$admin, open = open)
  screen <- .globals$screen
  folder <- if (is.null(found$dir)) "" else paste0(" in ", found$dir)
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
      network <- if (is.null(address$socket) && is.null(.globals$tls$domain)) {
        network_place(place, address$host, server$getPort())
      }
      page <- .Call(ffi_admin_page_url)
      message(paste(
        screen_lines(
          paste0(found$label, folder), place, network, with_port(screen$admin, page), is_coloured(),
          live_page(page)
        ),
        collapse = "\n"
      ))
    }
    open_place(screen$open, place)
  }
}

# Returns the lines of the screen.
screen_lines <- function(what, place, network, admin, is_coloured, page = "") {
  paint <- function(code, text) {
    if (is_coloured) paste0("\033[", code, "m", text, "\033[0m") else text
  }
  detail <- function(label, value) {
    if (!is.null(value)) {
      paste0("  ", paint("2", formatC(paste0(label, ":"), width = -12)), " ", paint("1;36", value))
    }
  }
  if (!is.null(admin) && !startsWith(admin, "unix:")) admin <- paste0("http://", admin)
  c(
    paste0(paint("1", "rookery"), " ", utils::packageVersion("rookery"), ": ", what),
    paste0("Serving on ", paint("1;36", place), " ", paint("2", "(Ctrl-C stops)")),
    detail("Network", network),
    detail("Admin", admin),
    detail("Live page", if (nzchar(page)) page)
  )
}

# Returns the address of the admin listener with the port that the system has chosen, if port 0 was
# requested. `page` is the URL of the live page.
with_port <- function(admin, page) {
  if (is.null(admin) || !grepl("^[^/]*:0$", admin)) {
    return(admin)
  }
  sub(":0$", sub("^https?://.*:([0-9]+)/.*$", ":\\1", page), admin)
}

# Returns what the screen shows for the live page with this URL. The URL contains a token, so it is
# shown only to a person, and not in a log.
live_page <- function(url, is_shown = interactive() || isatty(stderr())) {
  if (is_shown || !nzchar(url)) url else paste0("`rookery live ", Sys.getpid(), "` opens it")
}

# Returns the address for other machines, or NULL if the server accepts only connections of this
# machine.
network_place <- function(place, host, port, own = .Call(ffi_network_address)) {
  if (nzchar(own) && (host == "::" || (host == "0.0.0.0" && ipFamily(own) == 4L))) {
    url_of(own, port, sub(":.*$", "", place))
  }
}

# Returns whether messages are coloured: at a terminal, unless NO_COLOR is set, and always with
# CLICOLOR_FORCE.
is_coloured <- function(is_terminal = isatty(stderr())) {
  set <- Sys.getenv(c("NO_COLOR", "CLICOLOR_FORCE", "CLICOLOR", "TERM"))
  if (nzchar(set[["NO_COLOR"]]) || isTRUE(getOption("knitr.in.progress"))) {
    return(FALSE)
  }
  if (!set[["CLICOLOR_FORCE"]] %in% c("", "0")) {
    return(TRUE)
  }
  is_terminal && set[["TERM"]] != "dumb" && set[["CLICOLOR"]] != "0"
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
