#' Serve any R web app
#'
#' Detects what kind of app `target` is, and serves it until Ctrl-C is pressed
#' or the process receives SIGTERM. The server then stops accepting connections,
#' finishes requests in progress (within 10 s for an object, and within `drain` of
#' [workers_config()] for a path), and closes WebSockets with code 1001; after
#' that, `serve()` returns. A second signal ends the process at once. [dev()]
#' serves a path in the background, so that the console stays free.
#'
#' @section What can be served:
#' \describe{
#'   \item{A folder}{that contains one of the following: a `_server.yml`, whose
#'     `engine` names the package that runs the app, such as plumber2; `app.R` or
#'     `server.R` (Shiny); `entrypoint.R` or `plumber.R` (plumber); a single R
#'     Markdown document with `runtime: shiny`; or a single Quarto document with
#'     `server: shiny`. A folder with `index.html` and without R files is served
#'     as a static site.}
#'   \item{A file}{of one of these kinds, such as `app.R` or a Quarto document.
#'     Also an `.R` file that ends with one of the objects below, calls
#'     [runServer()] itself (on the port in the environment variable `PORT`), or
#'     calls `$start()` of an ambiorix app (`serve()` sets its host and port).}
#'   \item{An object}{A Shiny app, a plumber router, a plumber2 API, a fiery or
#'     ambiorix app, a function of the request, or a list, environment or R6
#'     object with a function `call`, as described for [startServer()].}
#' }
#'
#' Arguments that are not given are taken, for a path, from the environment
#' variables of the program and from the `_server.yml` of the app, if its
#' `engine:` is `rookery`, as described for [launch_server()].
#'
#' If `target` is a path, the program `rookery` serves it as `rookery serve`
#' does, with the arguments of `serve()` in place of command-line options. It
#' starts one R process, or several `workers`, in the folder of the app with the
#' libraries of this session, and starts them again if they fail; their output
#' appears in this session. The sources of the app are read as UTF-8: an R
#' process without a locale, or with the C locale, gets a locale with UTF-8. If
#' `target` is an object, this R process serves it. For an object of Shiny, plumber, plumber2,
#' fiery or ambiorix, rookery must replace httpuv before the framework is
#' loaded. In a session that has not loaded the framework, write the call that
#' creates the object as the argument: `serve(shiny::shinyApp(ui, server))`.
#' Otherwise call [use_compat()] before you load the framework. The same applies
#' to an `.Rprofile` that loads such a framework in the R process of a path.
#'
#' @section The access log:
#' The access log has one line for each request, including requests for static
#' files and refused requests. The line is written when the last byte of the
#' response was sent. It contains the client's address, the time, the request
#' line, the status, the number of body bytes sent (after compression), and the
#' seconds from the request head to the end of the response.
#'
#' `log_format = "common"` is the Common Log Format followed by the seconds.
#' `"combined"` adds the referer and the user agent, and after the seconds those
#' in the queue and in R, and the route. `"json"` writes one JSON object per
#' line, which also has the request id, and for incomplete responses
#' `"aborted":true` with a `reason` such as `"client"` for a client that
#' disconnected. What R prints while it serves becomes JSON objects as well, with
#' a `level` and a `message`, and so does the end of each WebSocket.
#' `"terminal"` writes aligned columns, in colour on a terminal. A
#' function is called with a list of `time`, `remote`, `method`, `path`,
#' `query`, `status`, `bytes`, `seconds`, `request_id`, `aborted` (the reason,
#' or `NA`), `route`, `queue_seconds` and `r_seconds` (`NA` if unknown), at most
#' 0.2 s after the request. If lines cannot be written fast enough, the server drops lines
#' instead of waiting, and later logs how many were dropped.
#'
#' The log has no headers besides these, so it never has an `Authorization` or a
#' cookie. The values of parameters whose names say that they are secrets, such
#' as `access_token`, are masked, and so is the user information of URLs.
#'
#' @section Routes:
#' Requests are counted by their route, which is in the log as well. `serve()`
#' knows the routes of plumber. Any other app can set the route of a request
#' before it returns, such as `req$ROUTE <- "/users/<id>"`. Otherwise the route
#' is the first segment of the path, such as `/users`.
#'
#' @section The access log of several workers:
#' With several `workers`, each line ends with the request id; the slot, process
#' id and start number of the worker; the seconds in the queue and from there to
#' the response head; the number of retries with other workers; what ended the
#' request (`Q` no worker was free, `D` the worker died, `T` timeout, `C` the
#' client disconnected); and a number for the client's session. A `-` stands for
#' an unknown value.
#'
#' @section Callbacks of package later:
#' An error in a callback of package later, which belongs to no request, is
#' reported on stderr like an error of the app, and the server continues. This
#' also applies to a [service()] that the served app calls. An interrupt,
#' `quit()`, `shiny::stopApp()` and [interrupt()] end `serve()`. Outside of
#' `serve()`, such an error ends [service()] and [runServer()], as with httpuv.
#'
#' @section Warnings:
#' While `serve()` runs, R shows warnings at once, because `serve()` sets R's
#' option `warn` to 1 if it has its default value 0.
#'
#' @param target The app to serve: the path of a folder or file, or an object.
#' @param host The address to listen on: `"127.0.0.1"` accepts connections from
#'   this machine only, `"0.0.0.0"` or `"::"` from all networks.
#'   `"unix:/path/of/a/socket"` listens on a Unix socket.
#' @param port The port to listen on. With 0, the system chooses a free port.
#' @param ... Named arguments for the function that runs the app:
#'   [shiny::runApp()], the `run()` method of a plumber router, `ignite()` of
#'   fiery and plumber2, `start()` of ambiorix, [rmarkdown::run()], or the
#'   `launch_server()` of the package that a `_server.yml` names as `engine`. A
#'   name that is similar to an argument of `serve()`, such as `worker`, is an
#'   error, because it is probably misspelt. If `target` is a path, each R
#'   process gets the arguments in a file that only your user can read and that
#'   the R process deletes.
#' @param log The destination of the access log: `TRUE` for stdout, `FALSE` for
#'   none, a string for a file to append to, or a function that is called in this
#'   session with the fields of each line (for a path not on Windows). If
#'   `target` is an object, the log has the requests to all servers of this
#'   session, also to those that are started with [startServer()] while `serve()`
#'   runs.
#' @param log_format The format of the access log: `"common"` for the Common Log
#'   Format, `"combined"` for the Combined Log Format, `"json"` for one JSON
#'   object per line, or `"terminal"` for aligned columns, which is the default
#'   if the log goes to a terminal.
#' @param tls The certificates for HTTPS: the value of [tls_config()], or
#'   `"dev"` for a self-signed certificate for this machine. With `NULL`, the
#'   server uses plaintext HTTP.
#' @param workers How many R processes serve the app: a number, `"auto"` for one
#'   per processor, or a [workers_config()]. This needs Linux, and a path as
#'   `target`. `NULL` means one R process. Experimental, as described for
#'   [workers_config()].
#' @param admin The address at which status, metrics and health probes are
#'   served, on a separate thread, for your monitoring and for `rookery status`:
#'   an address with a port, such as `"127.0.0.1:9100"`, or
#'   `"unix:/path/of/a/socket"` (not on Windows). Experimental: what is served
#'   there may change in any release.
#' @param open Whether to open the app once it is served, in the viewer of
#'   RStudio or Positron, otherwise in a browser. Over SSH without a display,
#'   the address is only printed. The value may also be a function, which is
#'   called with the address (for a path not on Windows).
#' @param limits The limits of the server: the value of [server_limits()]. If
#'   `target` is an object, they apply to all servers of this session, also to
#'   those that are started with [startServer()]. `NULL` uses the limits in
#'   [rookery_options()].
#' @return Invisibly, the value that the app returned if `target` is an object
#'   and the app ended by itself, otherwise `NULL`. If `target` is a path, a
#'   program that ends with an exit status other than 0 causes an error of class
#'   `rookery_exit` with the message of the program and a field `status`. That is
#'   the exit status of the R process if it is not started again (`restart =
#'   "never"` in [workers_config()]), 3 if no R process could start the app, and 4
#'   if the address is not available. In the last case, the error also has the
#'   class that the error for an object has, such as `rookery_port_in_use`.
#' @examples
#' \dontrun{
#' rookery::serve("app/")
#' rookery::serve("plumber.R", host = "0.0.0.0", port = 80)
#' rookery::serve(function(req) list(status = 200L, headers = list(), body = "hello"))
#' }
#' @export
serve <- function(
  target,
  host = "127.0.0.1",
  port = 8000L,
  ...,
  log = TRUE,
  log_format = "common",
  tls = NULL,
  limits = NULL,
  workers = NULL,
  admin = NULL,
  open = FALSE
) {
  check_serve_dots(...names())
  check_no_settings(...names())
  check_open(open)
  target <- with_compat(target)
  if (is.character(target)) {
    # Arguments that are not given are left to the program, which has the same defaults.
    given <- list(
      host = if (!missing(host)) host, port = if (!missing(port)) port,
      log = if (!missing(log)) log, log_format = if (!missing(log_format)) log_format,
      tls = tls, limits = limits, workers = workers, admin = admin
    )
    return(invisible(serve_path(target, detect_target(target), given, list(...), open)))
  }
  address <- serve_address(host, port, tls)
  log <- log_target(log, if (!missing(log_format)) log_format)
  settings <- list(argument = check_limits(limits))
  admin <- check_admin(admin)
  if (!is.null(check_workers(workers))) {
    abort(
      paste(
        "Workers can only serve a path, because an object exists only in this R process.",
        "Give the file or folder of the app."
      ),
      "rookery_bad_target",
      argument = "workers"
    )
  }
  found <- detect_object(target)
  if (is.null(found)) {
    misspelt <- misspelt_fields(target)
    hint <- if (length(misspelt) > 0) {
      paste0(
        " Did you mean `", misspelt[[1]], "` instead of its field `", names(misspelt)[[1]], "`?"
      )
    }
    abort(
      paste0(
        "An object of class ", class(target)[[1]], " cannot be served.", hint,
        " These can be served:\n",
        paste0("  - ", what_is_served, collapse = "\n")
      ),
      "rookery_bad_target",
      argument = "target"
    )
  }
  invisible(serve_here(
    found, target, address, list(...), log, settings, list(at = admin, label = found$label), open
  ))
}

# Checks the names in `...`, which are passed to the function that runs the app, for misspelt
# arguments of serve().
check_serve_dots <- function(names) {
  own <- setdiff(names(formals(serve)), c("target", "..."))
  plain <- function(names) ascii_lower(gsub("[_.]", "", names))
  for (name in setdiff(names, "")) {
    text <- plain(name)
    # The beginning of a name counts as misspelt as well, because R does not complete the names of
    # arguments after `...`.
    is_start <- nchar(text) >= 3 & startsWith(plain(own), text)
    near <- own[plain(own) %in% close_names(text, plain(own), 1L) | is_start]
    if (length(near) > 0) {
      abort_argument("`", name, "` is not an argument of serve(). Did you mean `", near[[1]], "`?")
    }
  }
}

# Checks that no name in `...` of serve() is that of a limit or of a setting of workers, which the
# function that runs the app would refuse without naming the argument that takes it.
check_no_settings <- function(names) {
  for (of in c("server_limits", "workers_config")) {
    known <- setdiff(names(formals(of)), c("...", "workers"))
    found <- intersect(names, known)
    if (length(found) > 0) {
      taken_by <- if (of == "server_limits") "limits" else "workers"
      abort_argument(
        "`", found[[1]], "` is not an argument of serve(): give it as `",
        taken_by, " = ", of, "(", found[[1]], " = )`."
      )
    }
  }
}

# Runs an app in this R process until the app ends or a signal stops it. serve() calls this function
# for an object, and an R process of the program `rookery` calls it for a path.
serve_here <- function(
  found, object, address, dots, log, settings = list(), admin = list(), open = FALSE
) {
  # If the engine of a `_server.yml` is rookery, serve() is called within serve(), and the settings
  # of the outer call apply as well.
  before <- .globals$settings
  on.exit(.globals$settings <- before)
  .globals$settings <- utils::modifyList(as.list(before), Filter(Negate(is.null), settings))
  warnings <- warn_at_once()
  on.exit(options(warnings), add = TRUE)
  # Reports the repeated errors that have been counted and not reported yet.
  on.exit(flush_all_error_reports(), add = TRUE)
  if (is.null(object)) {
    # Before the app loads packages that use httpuv.
    prefer_compat()
    # R accepts any bytes as a path only in the C locale.
    if (validUTF8(found$path)) leave_c_locale()
    # Makes error reports show line numbers, because Rscript does not keep source references.
    keep <- options(keep.source = TRUE)
    on.exit(options(keep), add = TRUE)
  }
  if (found$kind %in% framework_kinds) {
    use_compat(quiet = TRUE)
    check_installed(found)
  }
  if (is_loading()) {
    # Nothing listens, and startServer() does not return.
    .globals$label <- found$label
    .globals$on_listen <- function(server) NULL
    # A call of serve() for the app of a `_server.yml` loads the app as well.
    .globals$serving <- Sys.getpid()
    return(run_target(found, object, address, dots))
  }
  # Read first, so that a missing file is reported at once.
  tls <- tryCatch(tls_open(address$tls), error = function(error) {
    abort(conditionMessage(error), "rookery_bad_tls")
  })
  # The admin listener starts before probe(), which listens for a moment. If the thread of probe()
  # still runs when the app listens, that thread serves the app, and knows only an admin listener
  # from before its start.
  admin_end <- admin_start(admin$at, admin$label)
  on.exit(admin_end(), add = TRUE)
  address <- probe(address)
  if (is.list(address$tls) && !is.null(address$tls$redirect_from)) {
    if (!is.null(address$socket)) {
      abort(redirect_needs_port, "rookery_bad_tls")
    }
    probe(list(host = address$host, port = address$tls$redirect_from))
  }
  # If the engine is rookery itself, the screen of the outer serve() is kept.
  screen <- .globals$screen
  on.exit(.globals$screen <- screen, add = TRUE)
  outer <- .globals$tls
  on.exit(.globals$tls <- outer, add = TRUE)
  if (!is.null(tls)) {
    domain <- if (is.list(address$tls)) address$tls$acme$domain[1]
    .globals$tls <- list(tls = tls, port = address$port, socket = address$socket, domain = domain)
  }
  log_end <- log_open(log)
  on.exit(log_end(), add = TRUE)
  announce(found, address, admin$at, open)
  on.exit(.globals$on_listen <- NULL, add = TRUE)
  with_graceful_stop(run_target(found, object, address, dots))
}

# The kinds of apps that a package runs.
framework_kinds <- c("shiny", "plumber", "fiery", "ambiorix", "rmarkdown", "quarto", "engine")

run_target <- function(found, object, address, dots) {
  switch(
    found$kind,
    shiny = run_shiny(object %||% found$path, address, dots),
    plumber = run_plumber(object %||% plumb_path(found$path), address, dots),
    rmarkdown = run_rmarkdown(found$path, address, dots),
    quarto = run_quarto(found$path, address, dots),
    engine = run_engine(found, address, dots),
    fiery = run_fiery(object, address, dots),
    ambiorix = run_ambiorix(object, address, dots),
    script = run_script(found, address, dots),
    site = run_app(list(staticPaths = list("/" = site_path(found$path))), address, dots),
    app = run_app(object, address, dots)
  )
}

# Serves an app that needs no framework and takes no further arguments.
run_app <- function(app, address, dots) {
  check_no_dots(dots)
  run_server(if (is.null(address$socket)) {
    startServer(address$host, address$port, app)
  } else {
    startPipeServer(address$socket, NULL, app)
  })
  NULL
}

check_no_dots <- function(dots) {
  if (length(dots) > 0) {
    given <- if (is.null(names(dots))) "" else names(dots)
    names <- paste0(
      "`", ifelse(nzchar(given), given, "an argument without a name"), "`", collapse = ", "
    )
    abort(
      paste0("serve() passes no further arguments to this app: ", names, "."), "rookery_bad_target",
      argument = "..."
    )
  }
}

# Returns the router of a file with annotations, or of a folder, in which plumber looks for
# `entrypoint.R`, a script that returns a router, and then for `plumber.R`, a file with annotations.
plumb_path <- function(path) {
  if (dir.exists(path)) plumber::plumb(dir = path) else plumber::plumb(path)
}

run_plumber <- function(router, address, dots) {
  # Otherwise a file with an error would be read again by each of the following lines.
  force(router)
  # Older versions of plumber have no such hooks, and their errors and routes are not reported.
  try(plumber_errors(router), silent = TRUE)
  try(report_plumber_routes(router), silent = TRUE)
  if (!is.null(address$socket)) {
    # plumber's own run() cannot listen on a socket.
    return(run_app(router, address, dots))
  }
  # plumber calls it with the address of the API's documentation, before it serves.
  callback <- getOption("plumber.docs.callback", getOption("plumber.swagger.url"))
  old <- options(plumber.docs.callback = function(url) {
    announce_detail(paste("docs at", sub("^[a-z]+://[^/]*", "", url)))
    if (is.function(callback)) callback(url)
  })
  on.exit(options(old))
  defaults <- list(host = address$host, port = address$port, quiet = TRUE)
  run_by(router$run, "the router's run", dots, defaults)
  NULL
}

# Runs a fiery app, or a plumber2 API, which is a fiery app.
run_fiery <- function(app, address, dots) {
  if (!is.null(address$socket)) {
    abort(
      "A fiery app, such as a plumber2 API, can only be served on a port.", "rookery_bad_address"
    )
  }
  # The routes are for metrics only, and an API is served without them.
  if (inherits(app, "Plumber2")) try(report_plumber2_routes(app), silent = TRUE)
  before <- list(host = app$host, port = app$port)
  on.exit({
    app$host <- before$host
    app$port <- before$port
  })
  app$host <- address$host
  app$port <- chosen_port(address)
  defaults <- list(block = TRUE, showcase = FALSE)
  # An older fiery would pass an argument that it does not know to the app's own handlers.
  if ("silent" %in% names(formals(app$ignite))) {
    defaults$silent <- TRUE
  }
  run_by(app$ignite, "the app's ignite", dots, defaults)
  NULL
}

run_ambiorix <- function(app, address, dots) {
  if (!is.null(address$socket)) {
    abort("An ambiorix app can only be served on a port.", "rookery_bad_address")
  }
  if (!all(c("host", "port") %in% names(formals(app$start)))) {
    abort(
      paste(
        "This version of ambiorix does not take a host and port: use 2.1 or later, or serve the",
        "file that creates the app."
      ),
      "rookery_bad_target"
    )
  }
  port <- chosen_port(address)
  restore <- configure_ambiorix(port, address$host)
  on.exit(restore())
  defaults <- list(host = address$host, port = port, open = FALSE)
  run_by(app$start, "the app's start", dots, defaults)
  NULL
}

# Sets host and port in the places that ambiorix reads before its own arguments. Returns a function
# that restores them.
configure_ambiorix <- function(port, host) {
  before <- Sys.getenv("AMBIORIX_PORT", NA)
  options <- options(ambiorix.host = host)
  Sys.setenv(AMBIORIX_PORT = port)
  function() {
    options(options)
    if (is.na(before)) Sys.unsetenv("AMBIORIX_PORT") else Sys.setenv(AMBIORIX_PORT = before)
  }
}

# Returns the port, or a free one for port 0, because frameworks do not accept 0.
chosen_port <- function(address) {
  if (address$port == 0) randomPort(host = address$host) else address$port
}

run_engine <- function(found, address, dots) {
  if (is_own_file(found)) {
    host <- if (is.null(address$socket)) address$host else paste0("unix:", address$socket)
    return(do.call(
      launch_server, c(list(settings = found$path, host = host, port = address$port), dots)
    ))
  }
  if (!is.null(address$socket)) {
    abort(
      "A `_server.yml` can only be served on a port, because its engine takes a host and a port.",
      "rookery_bad_address"
    )
  }
  launch <- get0(
    "launch_server", envir = asNamespace(found$engine), mode = "function", inherits = FALSE
  )
  if (is.null(launch)) {
    abort(
      paste0(
        "Package ", found$engine, ", the engine of `", found$path, "`, has no launch_server()."
      ),
      "rookery_bad_target"
    )
  }
  port <- if (found$engine %in% c("plumber2", "fiery")) chosen_port(address) else address$port
  defaults <- list(settings = found$path, host = address$host, port = port)
  run_by(launch, paste0(found$engine, "::launch_server"), dots, defaults)
}

# Runs a script and serves the value of its last expression. A script that calls runServer() itself
# reads the port from PORT, as is usual on hosting services; ambiorix reads its own options.
run_script <- function(script, address, dots) {
  file <- script$path
  if (is.null(address$socket)) {
    Sys.setenv(PORT = address$port)
    if (startsWith(script$label, "ambiorix")) {
      configure_ambiorix(chosen_port(address), address$host)
    }
  }
  value <- source(
    file, local = new.env(parent = globalenv()), chdir = TRUE, encoding = "UTF-8"
  )$value
  found <- detect_object(value)
  starts_itself <- is.null(found) || found$kind %in% c("fiery", "ambiorix")
  if (starts_itself && is.null(.globals$on_listen)) {
    # The script has served an app, which has ended by itself.
    return(NULL)
  }
  if (is.null(found)) {
    what <- if (is.null(value)) "NULL" else paste0("an object of class ", class(value)[[1]])
    abort_unknown(file, paste0("its last value is ", what, ", not an app"))
  }
  if (found$kind %in% c("shiny", "plumber", "fiery", "ambiorix")) {
    use_compat(quiet = TRUE)
  }
  run_target(found, value, address, dots)
}

# Checks that the package that runs an app is installed. `has` returns whether a package is.
check_installed <- function(found, has = function(package) requireNamespace(package, quietly = TRUE)) {
  if (found$kind == "quarto") check_quarto(found$path)
  package <- switch(found$kind, engine = found$engine, quarto = "rmarkdown", found$kind)
  if (!has(package)) {
    abort(
      paste0(
        "To serve ", found$label, ", package ", package,
        " has to be installed: install.packages(\"", package, "\")."
      ),
      "rookery_no_package"
    )
  }
}

# Calls the function of a framework that runs an app with the arguments `dots` of serve(), and with
# `defaults` for others. An argument that the function does not know is an error here, because it
# would be one at each start.
run_by <- function(run, name, dots, defaults) {
  known <- names(formals(run))
  given <- setdiff(names(dots), "")
  unknown <- if (!"..." %in% known) given[is.na(pmatch(given, known))]
  if (length(unknown) > 0) {
    abort_argument(
      "`", unknown[[1]], "` is not an argument of ", name, "().", did_you_mean(unknown[[1]], known)
    )
  }
  do.call(run, with_defaults(dots, defaults))
}

with_defaults <- function(given, defaults) {
  c(given, defaults[setdiff(names(defaults), names(given))])
}

# Returns the URL of a server, or the path of its socket.
place_of_server <- function(server, address) {
  address$socket %||% url_of(
    address$host, server$getPort(), if (is.null(.globals$tls)) "http" else "https",
    .globals$tls$domain %||% ""
  )
}

`%||%` <- function(value, default) if (is.null(value)) default else value
