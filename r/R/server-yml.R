# Reads a `_server.yml` whose engine is this package. Rust parses and checks the file
# (crates/settings).

# Returns the lines of a file as Rust reads them (src/rust/src/settings.rs): `app` and the settings,
# or for another package only `engine`. If `is_alone`, also checks that the settings for HTTPS belong
# together. Otherwise the program `rookery` has checked the file together with the command line and
# the environment.
server_yml_lines <- function(file, is_alone = FALSE) {
  lines <- cli_read(text_of("_server.yml", path.expand(file), is_alone, native = TRUE))
  if (!is.null(lines$wrong)) abort(lines$wrong, "rookery_bad_setting")
  lines
}

# Returns values by name from lines whose keys are a type and a name, such as `number:port`.
# `hsts.max_age` is a field of `hsts`.
typed_values <- function(lines) {
  types <- sub(":.*$", "", names(lines))
  names <- strsplit(sub("^[a-z]+:", "", names(lines)), ".", fixed = TRUE)
  values <- list()
  for (at in seq_along(lines)) {
    value <- switch(
      types[[at]], number = as.numeric(lines[[at]]), flag = as.logical(lines[[at]]), lines[[at]]
    )
    name <- names[[at]]
    if (length(name) == 2) value <- c(values[[name[[1]]]], set_names(list(value), name[[2]]))
    values[[name[[1]]]] <- value
  }
  # Compression level 0 means no compression, which R functions express as FALSE.
  lapply(values, function(value) if (is.list(value) && identical(value$level, 0)) FALSE else value)
}

is_own_file <- function(found) {
  identical(found$kind, "engine") && identical(found$engine, "rookery")
}

abort_file <- function(file, reason) {
  abort(
    paste0("`", file, "` cannot be served: ", reason, "."), "rookery_bad_setting", reason = reason
  )
}

#' Serve a folder that has a `_server.yml`
#'
#' Deployment tools call this function for a folder whose `_server.yml` has
#' `engine: rookery`. [serve()] and `rookery serve` read the same file.
#'
#' A hosting service such as Posit Connect passes `host` and `port`. It manages
#' processes and HTTPS itself, so `tls`, `workers` and other options about
#' workers in the file are then ignored, with a message, and this R session serves
#' the app itself.
#'
#' @section The file:
#' `app:` names the file or folder to serve, relative to the `_server.yml`.
#' `options:` may have
#' * `host`, `port`, `log`, `log_format` and `admin`, which are arguments of
#'   [serve()];
#' * `tls`: `dev`, or the arguments of [tls_config()], such as `cert:` and
#'   `key:`, or `acme:` with the arguments of [acme()];
#' * `limits`: those of [server_limits()], such as `max_body_size: 10 MB`;
#' * the settings of [rookery_options()], such as `error_detail: message`;
#' * `workers` and the other arguments of [workers_config()].
#'
#' Paths are relative to the file. An unknown key is an error. An argument of
#' `serve()`, or an option on the command line, takes precedence over the same
#' key in the file. All keys of `tls` count as one: an argument `tls`, or any
#' HTTPS option, replaces all of them.
#'
#' @param settings The path of the file `_server.yml`.
#' @param host,port The address and port to listen on, as for [serve()]. `NULL`
#'   uses the values in the file `_server.yml`.
#' @param ... Further arguments of [serve()], such as `log`, and arguments for
#'   the function that runs the app.
#' @return The value that [serve()] returns.
#' @keywords internal
#' @export
launch_server <- function(settings, host = NULL, port = NULL, ...) {
  dots <- list(...)
  if (identical(.globals$serving, Sys.getpid())) {
    # serve() or the program has read the rest of the file.
    address <- serve_address(host, port)
    return(invisible(serve_here(settings_app(settings), NULL, address, dots, log_target(FALSE))))
  }
  check_serve_dots(setdiff(names(dots), names(formals(serve))))
  of_serve <- names(dots) %in% setdiff(names(formals(serve)), c("target", "..."))
  given <- c(list(host = host, port = port), dots[of_serve])
  is_hosted <- !is.null(host) || !is.null(port)
  file <- settings_read(settings, given, is_hosted)
  limits <- check_limits(given[["limits"]])
  open <- given[["open"]] %||% FALSE
  check_open(open)
  dots <- dots[!names(dots) %in% names(given)]
  if ((!is_hosted || !is.null(given[["workers"]])) && !is_worker()) {
    return(invisible(serve_path(settings, detect_target(settings), given, dots, open)))
  }
  about <- list(at = file$admin, label = normalizePath(settings, winslash = "/"))
  sources <- list(argument = limits, file = file$settings)
  invisible(serve_here(file$found, NULL, file$address, dots, file$log, sources, about, open))
}

# Returns the settings of a `_server.yml` in the form that serve() uses. The arguments of serve() in
# `given` take precedence. With `is_hosted`, a hosting service manages processes and HTTPS.
settings_read <- function(settings, given = list(), is_hosted = FALSE) {
  file <- own_file(settings)
  options <- if (is_hosted) without_hosted(file$values, settings) else file$values
  log <- options[["log"]]
  if (!is.null(log) && log %in% c("-", "none")) log <- log == "-"
  list(
    found = settings_app(settings, file),
    admin = check_admin(given[["admin"]]) %||% check_admin(options[["admin"]]),
    settings = options[names(options) %in% c(limit_names(), setting_names())],
    log = log_target(
      given[["log"]] %||% log %||% TRUE,
      given[["log_format"]] %||% options[["log_format"]]
    ),
    address = serve_address(
      given[["host"]] %||% options[["host"]] %||% "127.0.0.1",
      given[["port"]] %||% options[["port"]] %||% 8000,
      given[["tls"]] %||% tls_of_settings(options)
    )
  )
}

# Removes the options that a hosting service decides, with a message.
without_hosted <- function(options, settings) {
  is_tls <- names(options) %in%
    c("tls", settings_of_function("tls_config")$name, settings_of_function("acme")$name)
  is_hosted <- is_tls | names(options) %in% names(formals(workers_config))
  ignored <- unique(ifelse(is_tls, "tls", names(options))[is_hosted])
  if (length(ignored) > 0) {
    message(
      "rookery: ", paste0("`", ignored, ":`", collapse = ", "), " of `", settings, "` ",
      if (length(ignored) == 1) "is" else "are",
      " ignored, because launch_server() was called with the host or port to listen on"
    )
  }
  options[!is_hosted]
}

# Returns list(app =, values =) from the file, whose engine must be this package. Each value has the
# type of its setting.
own_file <- function(settings) {
  check_string(settings, "settings")
  if (!file.exists(settings)) {
    abort_no_path(settings)
  }
  lines <- server_yml_lines(settings, is_alone = !identical(.globals$serving, Sys.getpid()))
  if (is.null(lines$app)) abort_file(settings, "its `engine:` is not `rookery`")
  list(app = lines$app, values = typed_values(lines[setdiff(names(lines), "app")]))
}

# Returns the path in `app:` of a `_server.yml`.
settings_app <- function(settings, file = own_file(settings)) {
  found <- detect_target(file$app)
  if (identical(found$engine, "rookery")) {
    abort_file(settings, "its `app:` names a folder with `engine: rookery` again")
  }
  found
}

# Converts HTTPS settings to the argument `tls` of serve().
tls_of_settings <- function(settings) {
  if (is.null(settings[["tls_cert"]] %||% settings[["domain"]])) {
    return(settings[["tls"]])
  }
  own <- arguments_of_settings("tls_config", settings)
  if (!is.null(settings[["domain"]])) {
    own$acme <- do.call(acme, arguments_of_settings("acme", settings))
  }
  do.call(tls_config, own)
}
