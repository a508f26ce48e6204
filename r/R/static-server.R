#' Serve a folder
#'
#' Serves the files of a folder, for example to view a web site that was
#' generated into the folder.
#'
#' @param dir The folder to serve.
#' @param host,port The address and port to listen on. With `port = NULL`, port
#'   7446 is used if it is free, and otherwise a port from [randomPort()].
#' @param ... Options for serving the folder, passed to [staticPath()].
#' @param background If `TRUE`, the function returns at once. The folder is then
#'   served while R is idle or [service()] runs. If `FALSE`, the function serves
#'   the folder until it is interrupted.
#' @param browse Whether to open the served folder in a browser.
#' @return The server, invisibly, if `background` is `TRUE`. If `port` is in
#'   use, an error of class `httpuv_unavailable_port` is raised.
#' @examples
#' site <- tempfile("site-")
#' dir.create(site)
#' writeLines("<h1>Hello, World!</h1>", file.path(site, "index.html"))
#' server <- runStaticServer(site, background = TRUE, browse = FALSE)
#' server$stop()
#' @export
runStaticServer <- function(dir = getwd(), host = "127.0.0.1", port = NULL, ..., background = FALSE,
                            browse = interactive()) {
  check_string(dir, "dir")
  check_flag(background, "background")
  check_flag(browse, "browse")
  port <- static_server_port(port, host)
  app <- list(staticPaths = list("/" = staticPath(dir, ...)))
  server <- startServer(host, port, app)
  # Until the server is returned to the caller, it is stopped on errors.
  is_ours <- TRUE
  on.exit(if (is_ours) stopServer(server))
  url <- paste0(
    "http://", if (ipFamily(host) == 6L) paste0("[", host, "]") else host, ":", server$getPort()
  )
  message("Serving: '", dir, "'")
  message("View at: ", url)
  if (browse) {
    tryCatch(
      utils::browseURL(url),
      error = function(error) message("Cannot open a browser: ", conditionMessage(error))
    )
  }
  if (background) {
    is_ours <- FALSE
    return(invisible(server))
  }
  message("Press Esc or Ctrl + C to stop the server")
  run_server(server)
}

static_server_port <- function(port, host) {
  if (is.null(port)) {
    return(if (is_port_available(7446L, host)) 7446L else randomPort(host = host))
  }
  check_port(port, least = 1)
  if (!is_port_available(port, host)) {
    stop(error_unavailable_port(paste0("Port ", port, " is not available on host ", host)))
  }
  as.integer(port)
}
