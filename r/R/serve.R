#' Serve any R web app
#'
#' Works out what `target` is, serves it, and ends when Ctrl-C is pressed or the process is sent SIGTERM: it stops
#' accepting, finishes what is in hand within 10 s, closes WebSockets with code 1001, and returns. A second signal ends
#' the process at once.
#'
#' @section What can be served:
#' \describe{
#'   \item{A folder}{with `_server.yml` (its `engine` is the package that runs it, such as plumber2), `app.R` or
#'     `server.R` (Shiny), `entrypoint.R` or `plumber.R` (plumber), or one R Markdown document with
#'     `runtime: shiny`, or one of Quarto with `server: shiny`; or a site: one with `index.html` and no R file, whose files are served.}
#'   \item{A file}{of one of these kinds, or any `.R` file that ends with one of the following objects, or that calls
#'     [runServer()] itself on the port in the environment variable `PORT`, or `$start()` of an ambiorix app, which is
#'     told host and port.}
#'   \item{An object}{a Shiny app, a plumber router, a plumber2 API, an app of fiery or ambiorix, a function of the
#'     request, or a list, environment or R6 object with `call`, see [startServer()].}
#' }
#'
#' An argument that is not given is taken from the `_server.yml` of the app, if its `engine:` is
#' `rookery`; see [launch_server()].
#'
#' A path is served by an R of its own, started in the folder of the app with this session's libraries; its output
#' comes out here. An object is served by this R process. For an object of Shiny, plumber, plumber2,
#' fiery or ambiorix, the framework must be loaded after rookery has taken httpuv's place: either
#' write the call that makes the object as the argument, as in `serve(shiny::shinyApp(ui, server))`,
#' in a session that has not loaded the framework, or call [use_compat()] before you load it.
#'
#' @section The access log:
#' One line per request, written when the last byte of the reply is out, static files and refused requests included:
#' client, time, request line, status, bytes of the body as it was sent (compressed or not), and seconds from the head of
#' the request to the end of the reply. `log_format = "common"` is the Common Log Format with the seconds behind it,
#' `"json"` one JSON object per line, which has the id of the request as well, and `"aborted":true` with a `reason` where the reply is not whole, such
#' as `"client"` for one that left. A function is called with a list of `time`, `remote`, `method`, `path`, `query`,
#' `status`, `bytes`, `seconds`, `request_id` and `aborted` (the reason, or `NA`), at the latest 0.2 s after the request. A log that cannot keep up loses lines rather
#' than holding the server up, and then says how many. With several `workers` lines end with the request's id, the worker's slot, process and start, seconds in the queue and
#' from there to the head of the reply, how often it went to another worker, what ended it (`Q` no worker had time, `D` its worker died, `T` time, `C` the client left), and a
#' number for the client's session; `-` is what is not known.
#'
#' @section Warnings:
#' While `serve()` runs, warnings appear as they happen: `serve()` sets R's option `warn` to 1,
#' unless the option has another value than its default 0.
#'
#' @param target What to serve, see below.
#' @param host The address to listen on: `"127.0.0.1"` for this machine only, `"0.0.0.0"` or `"::"` for all, or
#'   `"unix:/path/of/a/socket"`.
#' @param port The port; 0 lets the system choose one.
#' @param ... Arguments by name for the function that runs the app: [shiny::runApp()], the `run()` method of a plumber router,
#'   `ignite()` of fiery and plumber2, `start()` of ambiorix, [rmarkdown::run()], or the engine's `launch_server()`. A name that
#'   is nearly one of the arguments of `serve()`, such as `worker`, is an error.
#' @param log Where access-log lines go: `TRUE` is stdout, `FALSE` nowhere, a string a file that is appended to, a
#'   function is called with each line's fields. For a path that happens in the app's own R: the function takes along
#'   what it encloses, but not your global variables.
#' @param log_format `"common"` or `"json"`.
#' @param tls Certificates to speak HTTPS with, by [tls_config()]; `"dev"` for one of this machine's own. `NULL` for HTTP.
#' @param workers How many R processes serve a path behind one address, supervised by the program `rookery` (Linux): a number from 1 on,
#'   `"auto"`, or [workers_config()] with more to say. `NULL` is one R process without a supervisor. Experimental, see [workers_config()].
#' @param admin Where those who look after it find status, metrics and probes, also while R is busy: an address with its port, such as
#'   `"127.0.0.1:9100"`, or `"unix:/path/of/a/socket"`. It is for programs of yours and no part of the app; `rookery status` asks it, too. Needs Linux.
#'   Experimental: what is answered there may change in any release.
#' @param open Whether to open the address once it is served: in the viewer of RStudio or Positron, otherwise in the browser. Over SSH without a
#'   display the address is only printed. A function is called with the address; not with `workers`.
#' @param limits What clients may do, by [server_limits()]; `NULL` for what options say, see [rookery_options()].
#' @return What the app returned when it ended by itself, otherwise `NULL`; invisibly. An error of class `rookery_exit`
#'   with a `status` when the R that served a path ended with another exit status than 0.
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
  check_open(open)
  target <- with_compat(target)
  found <- if (is.character(target)) detect_target(target)
  asked <- if (!is.null(found) && is_own_file(found)) {
    # Arguments take precedence over the file.
    settings_read(found$path, list(
      host = if (!missing(host)) host, port = if (!missing(port)) port, log = if (!missing(log)) log,
      log_format = if (!missing(log_format)) log_format, tls = tls, workers = workers, admin = admin
    ))
  } else {
    list(
      address = serve_address(host, port, tls), log = log_target(log, log_format), workers = check_workers(workers),
      admin = check_admin(admin)
    )
  }
  address <- asked$address
  log <- asked$log
  workers <- asked$workers
  admin <- asked$admin
  settings <- list(argument = check_limits(limits), file = asked$settings)
  if (!is.null(found)) {
    check_worker_fields(asked, found$path)
    if (!is.null(workers)) {
      workers$admin <- admin %||% workers$admin
      return(invisible(serve_with_workers(target, address, list(...), log, settings$argument, workers, open)))
    }
    about <- list(at = admin, label = normalizePath(target, winslash = "/"))
    return(invisible(serve_in_child(found, address, list(...), log, settings, about, open)))
  }
  if (!is.null(workers)) {
    abort(
      "Workers serve a path: an object exists only in this R process. Give the file or folder of the app.",
      "rookery_bad_target",
      argument = "workers"
    )
  }
  found <- detect_object(target)
  if (is.null(found)) {
    misspelt <- misspelt_fields(target)
    hint <- if (length(misspelt) > 0) paste0(" Did you mean `", misspelt[[1]], "` by its field `", names(misspelt)[[1]], "`?")
    abort(
      paste0(
        "An object of class ", class(target)[[1]], " cannot be served.", hint, " What can be:\n",
        paste0("  - ", what_is_served, collapse = "\n")
      ),
      "rookery_bad_target",
      argument = "target"
    )
  }
  invisible(serve_here(found, target, address, list(...), log, settings, list(at = admin, label = found$label), open))
}

# Checks the names in `...`, which go to the function that runs the app: a misspelt argument of
# serve() would go there as well.
check_serve_dots <- function(names) {
  own <- setdiff(names(formals(serve)), c("target", "..."))
  plain <- function(names) tolower(gsub("[_.]", "", names))
  for (name in setdiff(names, "")) {
    text <- plain(name)
    # The beginning of a name counts as well: R does not complete names behind `...`.
    is_start <- nchar(text) >= 3 & startsWith(plain(own), text)
    near <- own[is_near(text, plain(own), 1) | is_start]
    if (length(near) > 0) {
      abort_argument("`", name, "` is not an argument of serve(). Did you mean `", near[[1]], "`?")
    }
  }
}

# Runs an app in this R until it ends or is told to: the body of serve() for an object, and of the child for a path.
serve_here <- function(found, object, address, dots, log, settings = list(), admin = list(), open = FALSE) {
  # Of an engine that is rookery itself, the outer one's count as well.
  before <- .globals$settings
  on.exit(.globals$settings <- before)
  .globals$settings <- utils::modifyList(as.list(before), Filter(Negate(is.null), settings))
  if (identical(getOption("warn"), 0L) || identical(getOption("warn"), 0)) {
    # R shows warnings at the end of a call, and this call may last for months.
    warnings <- options(warn = 1L)
    on.exit(options(warnings), add = TRUE)
  }
  # Reports the repeated errors that have been counted and not reported yet.
  on.exit(flush_all_error_reports(), add = TRUE)
  if (is.null(object)) {
    # So that errors are told with the lines they come from: Rscript keeps none.
    keep <- options(keep.source = TRUE)
    on.exit(options(keep), add = TRUE)
  }
  if (found$kind %in% c("shiny", "plumber", "fiery", "ambiorix", "rmarkdown", "quarto", "engine")) {
    use_compat(quiet = TRUE)
    check_installed(found)
  }
  # Before anything is started: a file that is not there is said at once.
  tls <- tryCatch(tls_open(address$tls), error = function(error) abort(conditionMessage(error), "rookery_bad_tls"))
  address <- probe(address)
  if (is.list(address$tls) && !is.null(address$tls$redirect_from)) {
    if (!is.null(address$socket)) {
      abort(redirect_needs_port, "rookery_bad_tls")
    }
    probe(list(host = address$host, port = address$tls$redirect_from))
  }
  # Of an engine that is rookery itself, the outer one's stays.
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
  admin_end <- admin_start(admin$at, admin$label)
  on.exit(admin_end(), add = TRUE)
  announce(found, address, admin$at, open)
  on.exit(.globals$on_listen <- NULL, add = TRUE)
  with_graceful_stop(run_target(found, object, address, dots))
}

run_target <- function(found, object, address, dots) {
  switch(
    found$kind,
    shiny = run_shiny(object %||% found$path, address, dots),
    plumber = run_plumber(object %||% plumber::plumb(found$path), address, dots),
    rmarkdown = run_rmarkdown(found$path, address, dots),
    quarto = run_quarto(found$path, address, dots),
    engine = run_engine(found, address, dots),
    fiery = run_fiery(object, address, dots),
    ambiorix = run_ambiorix(object, address, dots),
    script = run_script(found, address, dots),
    site = run_app(list(staticPaths = list("/" = staticPath(found$path))), address, dots),
    app = run_app(object, address, dots)
  )
}

# An app that needs nobody else's loop, and nobody to take further arguments.
run_app <- function(app, address, dots) {
  if (length(dots) > 0) {
    given <- if (is.null(names(dots))) "" else names(dots)
    names <- paste0("`", ifelse(nzchar(given), given, "an argument without a name"), "`", collapse = ", ")
    abort(paste0("serve() passes no further arguments to this app: ", names, "."), "rookery_bad_target", argument = "...")
  }
  server <- if (is.null(address$socket)) {
    startServer(address$host, address$port, app)
  } else {
    startPipeServer(address$socket, NULL, app)
  }
  on.exit(stopServer(server))
  service(0)
  NULL
}

run_plumber <- function(router, address, dots) {
  # An older plumber has no such hooks, and is served without.
  try(plumber_errors(router), silent = TRUE)
  if (!is.null(address$socket)) {
    # plumber's own run() knows ports only.
    return(run_app(router, address, dots))
  }
  do.call(router$run, with_defaults(dots, list(host = address$host, port = address$port, quiet = TRUE)))
  NULL
}

# plumber2 as well: its API is a fiery app.
run_fiery <- function(app, address, dots) {
  if (!is.null(address$socket)) {
    abort("A fiery app, such as a plumber2 API, is served on a port only.", "rookery_bad_address")
  }
  before <- list(host = app$host, port = app$port)
  on.exit({
    app$host <- before$host
    app$port <- before$port
  })
  app$host <- address$host
  app$port <- chosen_port(address)
  defaults <- list(block = TRUE, showcase = FALSE)
  # What an older fiery does not know would go to the app's own handlers.
  if ("silent" %in% names(formals(app$ignite))) {
    defaults$silent <- TRUE
  }
  do.call(app$ignite, with_defaults(dots, defaults))
  NULL
}

run_ambiorix <- function(app, address, dots) {
  if (!is.null(address$socket)) {
    abort("An ambiorix app is served on a port only.", "rookery_bad_address")
  }
  if (!all(c("host", "port") %in% names(formals(app$start)))) {
    abort(
      "This ambiorix cannot be told where to listen: 2.1 and later can, or serve the file that makes the app.",
      "rookery_bad_target"
    )
  }
  port <- chosen_port(address)
  restore <- configure_ambiorix(port, address$host)
  on.exit(restore())
  do.call(app$start, with_defaults(dots, list(host = address$host, port = port, open = FALSE)))
  NULL
}

# Where ambiorix looks before it looks at its own arguments. A function that undoes it.
configure_ambiorix <- function(port, host) {
  before <- Sys.getenv("AMBIORIX_PORT", NA)
  options <- options(ambiorix.host = host)
  Sys.setenv(AMBIORIX_PORT = port)
  function() {
    options(options)
    if (is.na(before)) Sys.unsetenv("AMBIORIX_PORT") else Sys.setenv(AMBIORIX_PORT = before)
  }
}

# Where frameworks take 0 for no port: one that is free now.
chosen_port <- function(address) {
  if (address$port == 0) randomPort(host = address$host) else address$port
}

run_engine <- function(found, address, dots) {
  if (is_own_file(found)) {
    host <- if (is.null(address$socket)) address$host else paste0("unix:", address$socket)
    return(do.call(launch_server, c(list(settings = found$path, host = host, port = address$port), dots)))
  }
  if (!is.null(address$socket)) {
    abort("A `_server.yml` is served on a port only: its engine is given a host and a port.", "rookery_bad_address")
  }
  launch <- get0("launch_server", envir = asNamespace(found$engine), mode = "function", inherits = FALSE)
  if (is.null(launch)) {
    abort(
      paste0("Package ", found$engine, ", the engine of `", found$path, "`, has no launch_server()."),
      "rookery_bad_target"
    )
  }
  port <- if (found$engine %in% c("plumber2", "fiery")) chosen_port(address) else address$port
  do.call(launch, c(list(settings = found$path, host = address$host, port = port), dots))
}

# A script is run, and what its last expression gives is served. One that calls runServer() itself is found serving;
# it is told the port by the custom of hosting services, in PORT, and ambiorix as ambiorix reads it.
run_script <- function(script, address, dots) {
  file <- script$path
  if (is.null(address$socket)) {
    Sys.setenv(PORT = address$port)
    if (startsWith(script$label, "ambiorix")) {
      configure_ambiorix(chosen_port(address), address$host)
    }
  }
  value <- source(file, local = new.env(parent = globalenv()), chdir = TRUE, encoding = "UTF-8")$value
  found <- detect_object(value)
  starts_itself <- is.null(found) || found$kind %in% c("fiery", "ambiorix")
  if (starts_itself && is.null(.globals$on_listen)) {
    # It has served, and has ended by itself.
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

check_installed <- function(found) {
  if (found$kind == "quarto") check_quarto(found$path)
  package <- switch(found$kind, engine = found$engine, quarto = "rmarkdown", found$kind)
  if (!requireNamespace(package, quietly = TRUE)) {
    abort(
      paste0(
        "To serve ", found$label, ", package ", package, " has to be installed: install.packages(\"", package, "\")."
      ),
      "rookery_no_package"
    )
  }
}

with_defaults <- function(given, defaults) {
  c(given, defaults[setdiff(names(defaults), names(given))])
}

# Returns where a server is found.
place_of_server <- function(server, address) {
  scheme <- if (is.null(.globals$tls)) "http" else "https"
  if (!is.null(address$socket)) {
    address$socket
  } else if (!is.null(.globals$tls$domain)) {
    # As everybody finds it.
    port <- server$getPort()
    paste0("https://", .globals$tls$domain, if (port != 443) paste0(":", port))
  } else {
    url_of(address$host, server$getPort(), scheme)
  }
}

`%||%` <- function(value, default) if (is.null(value)) default else value
