# Reads a `_server.yml` whose engine is this package: the keys that it may have, and the settings
# that they stand for.

# Returns the allowed keys of each level. The command line writes options with `-`, so `-` in a key
# is accepted for `_`.
file_keys <- function(level) {
  switch(
    level,
    file = c("engine", "app", "options"),
    options = c("host", "port", "log", "log_format", "tls", "limits", setting_names, worker_option_names),
    limits = limit_table()$name,
    # A password does not belong in a file that is deployed with the app.
    tls = setdiff(names(formals(tls_config)), "password"),
    acme = names(formals(acme)),
    hsts = c("max_age", "include_subdomains", "preload"),
    ws_compression = c("level", "threshold", "takeover")
  )
}

file_levels <- c("file", "options", "limits", "tls", "acme", "hsts", "ws_compression")

# Checks that all keys of a level are known, and returns its fields with names as they are in R.
file_fields <- function(fields, level, file, example = "port: 8000") {
  if (length(fields) == 0) {
    return(list())
  }
  if (!is.list(fields) || is.null(names(fields))) {
    abort_file(file, paste0("its `", level, ":` are no fields such as `", example, "`"))
  }
  keys <- names(fields)
  names(fields) <- gsub("-", "_", keys, fixed = TRUE)
  twice <- keys[names(fields) %in% names(fields)[duplicated(names(fields))]]
  if (length(twice) > 0) {
    abort_file(file, paste0("`", twice[[1]], ":` and `", twice[[2]], ":` are the same setting, so only one may be given"))
  }
  unknown <- setdiff(names(fields), file_keys(level))
  if (length(unknown) > 0) {
    where <- if (level == "file") "" else paste0(" under `", level, ":`")
    abort(
      paste0("`", unknown[[1]], ":`", where, " in `", file, "` is no setting.", belongs_under(unknown[[1]], level)),
      "rookery_bad_setting"
    )
  }
  fields
}

# Returns a hint for an unknown key: the level at which the key is known, or a similar key.
belongs_under <- function(key, level) {
  levels <- setdiff(file_levels, c("file", level))
  levels <- levels[vapply(levels, function(other) key %in% file_keys(other), NA)]
  if (length(levels) > 0) paste0(" It belongs under `", levels[[1]], ":`.") else did_you_mean(key, file_keys(level))
}

abort_file <- function(file, reason) {
  abort(paste0("`", file, "` cannot be served: ", reason, "."), "rookery_bad_setting")
}

is_own_file <- function(found) {
  identical(found$kind, "engine") && identical(found$engine, "rookery")
}

#' Serve a folder that has a `_server.yml`
#'
#' Deployment tools call this function for a folder whose `_server.yml` has `engine: rookery`.
#' [serve()] and `rookery serve` read the same file.
#'
#' A host such as Posit Connect calls it with `host` and `port`: it has its own processes and speaks
#' HTTPS itself. The file's `tls`, `workers` and other options about workers are then ignored, which
#' a message says.
#'
#' @section The file:
#' `app:` names the file or folder to serve, relative to the `_server.yml`. `options:` may have
#' * `host`, `port`, `log`, `log_format` and `admin`, as arguments of [serve()];
#' * `tls`: `dev`, or the arguments of [tls_config()], such as `cert:` and `key:`, or `acme:` with
#'   those of [acme()];
#' * `limits`: those of [server_limits()], such as `body_bytes: 10 MB`;
#' * the settings of [rookery_options()], such as `error_detail: message`;
#' * `workers` and the other arguments of [workers_config()].
#'
#' Paths are relative to the file. An unknown key is an error. An argument of `serve()` or an option
#' of the command line takes precedence over the same key of the file. All keys of `tls` count as
#' one: an argument `tls`, or any HTTPS option, replaces all of them.
#'
#' @param settings The path of the `_server.yml`.
#' @param host,port As in [serve()]; `NULL` takes the value from the file.
#' @param ... Further arguments of [serve()], such as `log`, and arguments for the function that
#'   runs the app.
#' @return As [serve()].
#' @keywords internal
#' @export
launch_server <- function(settings, host = NULL, port = NULL, ...) {
  dots <- list(...)
  if (identical(.globals$serving, Sys.getpid())) {
    # serve() or the program has read the rest of the file.
    asked <- settings_read(settings)
    address <- serve_address(host, port)
    return(invisible(serve_here(asked$found, NULL, address, dots, log_target(FALSE), list(file = asked$settings))))
  }
  check_serve_dots(setdiff(names(dots), names(formals(serve))))
  of_serve <- names(dots) %in% setdiff(names(formals(serve)), c("target", "..."))
  given <- c(list(host = host, port = port), dots[of_serve])
  asked <- settings_read(settings, given, is_hosted = !is.null(host) || !is.null(port))
  check_worker_fields(asked, settings)
  limits <- check_limits(given[["limits"]])
  dots <- dots[!names(dots) %in% names(given)]
  if (!is.null(asked$workers) && !is_worker()) {
    return(invisible(serve_with_workers(settings, asked$address, dots, asked$log, limits, asked$workers, asked$settings)))
  }
  about <- list(at = asked$admin, label = normalizePath(settings, winslash = "/"))
  sources <- list(argument = limits, file = asked$settings)
  invisible(serve_here(asked$found, NULL, asked$address, dots, asked$log, sources, about))
}

# What a `_server.yml` asks for, in the form that serve() works with; the arguments of serve() in
# `given` take precedence. Where `is_hosted`, the host decides about processes and HTTPS.
settings_read <- function(settings, given = list(), is_hosted = FALSE) {
  check_string(settings, "settings")
  if (!file.exists(settings)) {
    abort_no_path(settings)
  }
  fields <- file_fields(read_yaml_file(settings), "file", settings)
  app <- fields[["app"]]
  if (!is.character(app) || length(app) != 1) {
    abort_file(settings, "it has `engine: rookery` but no `app:` that names a file or a folder")
  }
  options <- file_fields(fields[["options"]], "options", settings)
  if (is_hosted) options <- without_hosted(options, settings)
  check_file_port(options[["port"]], settings)
  found <- detect_target(beside(app, settings))
  if (identical(found$engine, "rookery")) {
    abort_file(settings, "its `app:` names a folder with `engine: rookery` again")
  }
  host <- options[["host"]]
  if (is_socket_name(host)) host <- paste0("unix:", beside(substring(host, 6), settings))
  log <- options[["log"]]
  if (is.character(log) && length(log) == 1) log <- if (log == "-") TRUE else beside(log, settings)
  fields <- worker_fields(options, settings)
  workers <- settings_workers(fields, settings)
  admin <- check_admin(given[["admin"]]) %||% settings_admin(options, settings)
  workers <- check_workers(given[["workers"]]) %||% if (is.null(given[["workers"]])) workers
  if (!is.null(workers)) workers$admin <- admin %||% workers$admin
  list(
    found = found,
    workers = workers,
    # An R process without a supervisor may have an admin listener, too.
    for_workers = setdiff(names(fields), c("workers", "reload", "admin")),
    admin = admin,
    settings = settings_fields(options, settings),
    log = log_target(given[["log"]] %||% log %||% TRUE, given[["log_format"]] %||% options[["log_format"]] %||% "common"),
    address = serve_address(
      given[["host"]] %||% host %||% "127.0.0.1",
      given[["port"]] %||% options[["port"]] %||% 8000,
      given[["tls"]] %||% settings_tls(options[["tls"]], settings)
    )
  )
}

# Drops the options that are a host's to decide on, and says so.
without_hosted <- function(options, settings) {
  ignored <- intersect(names(options), c("tls", setdiff(worker_option_names, "admin")))
  if (length(ignored) > 0) {
    message(
      "rookery: ", paste0("`", ignored, ":`", collapse = ", "), " of `", settings, "` ", if (length(ignored) == 1) "is" else "are",
      " ignored, because launch_server() was called with the host or port to listen on"
    )
  }
  options[setdiff(names(options), ignored)]
}

check_file_port <- function(port, settings) {
  if (!is.null(port) && !is_port(port)) {
    abort(
      paste0("`port:` of `", settings, "` must be one whole number from 0 to 65535, not ", describe(port), "."),
      "rookery_bad_address"
    )
  }
}

is_socket_name <- function(text) {
  is.character(text) && length(text) == 1 && startsWith(text, "unix:")
}

# Resolves a path of a `_server.yml`, which is relative to that file.
beside <- function(path, settings) {
  if (grepl("^(/|~)", path)) path else file.path(dirname(settings), path)
}

# Limits and other settings among the `options:`.
settings_fields <- function(options, settings) {
  limits <- file_fields(options[["limits"]], "limits", settings, "body_bytes: 10 MB")
  fields <- c(limits, options[intersect(names(options), setting_names)])
  if (is.character(fields[["spool_dir"]])) {
    fields[["spool_dir"]] <- beside(fields[["spool_dir"]], settings)
  }
  if (is.list(fields[["ws_compression"]])) {
    fields[["ws_compression"]] <- file_fields(fields[["ws_compression"]], "ws_compression", settings)
  }
  for (name in names(fields)) {
    check <- if (name %in% setting_names) check_setting else limit_value
    check(fields[[name]], name, paste0("`", name, ":` of `", settings, "`"))
  }
  fields
}

# Returns `tls:` as an object of tls_config().
settings_tls <- function(fields, settings) {
  if (is.null(fields) || identical(fields, "dev")) {
    return(fields)
  }
  if (!is.list(fields)) {
    abort_file(settings, "its `tls:` is neither `dev` nor has `cert:` or `acme:`")
  }
  fields <- file_fields(fields, "tls", settings)
  if (is.null(fields[["cert"]] %||% fields[["acme"]])) {
    abort_file(settings, "its `tls:` is neither `dev` nor has `cert:` or `acme:`")
  }
  if (is.list(fields[["hsts"]])) fields[["hsts"]] <- file_fields(fields[["hsts"]], "hsts", settings)
  fields[c("cert", "key")] <- lapply(fields[c("cert", "key")], unlist)
  if (!is.null(fields[["min_version"]])) {
    fields[["min_version"]] <- as.character(fields[["min_version"]])
  }
  # Paths are relative to the file.
  before <- setwd(dirname(settings))
  on.exit(setwd(before))
  if (!is.null(fields[["acme"]])) {
    authority <- file_fields(fields[["acme"]], "acme", settings)
    if (is.null(authority[["domains"]])) {
      abort_file(settings, "the `acme:` of its `tls:` has no `domains:`")
    }
    authority[["domains"]] <- unlist(authority[["domains"]])
    authority[["email"]] <- unlist(authority[["email"]])
    fields[["acme"]] <- do.call(acme, authority)
  }
  do.call(tls_config, Filter(Negate(is.null), fields))
}

# Options about workers, with paths that are relative to the file.
worker_fields <- function(options, settings) {
  fields <- options[intersect(names(options), worker_option_names)]
  fields[["admin"]] <- settings_admin(options, settings)
  fields
}

# Returns the file's options about workers, in the form that check_workers() returns.
settings_workers <- function(fields, settings) {
  for (name in names(fields)) check_worker_option(fields[[name]], name, paste0("`", name, ":` of `", settings, "`"))
  workers <- check_workers(fields[["workers"]])
  if (isTRUE(flag_of(fields[["reload"]] %||% FALSE))) {
    workers <- workers %||% workers_config(1, reload = TRUE)
  }
  workers
}

# Options about workers have no meaning for an R process without a supervisor.
check_worker_fields <- function(asked, settings) {
  if (is.null(asked$workers) && length(asked$for_workers) > 0) {
    abort_file(settings, paste0("its `", asked$for_workers[[1]], ":` needs `workers:`, such as `workers: 1`, or `rookery serve`"))
  }
}

# `admin:`, with a path that is relative to the file.
settings_admin <- function(options, settings) {
  admin <- options[["admin"]]
  if (is_socket_name(admin)) {
    admin <- paste0("unix:", beside(substring(admin, 6), settings))
  }
  check_admin(admin, paste0("`admin:` of `", settings, "`"))
}

# Returns the file's settings as command-line arguments for the program `rookery`; an empty vector
# if another package is the engine.
words_of_file <- function(file) {
  fields <- read_yaml_file(file)
  if (!identical(fields[["engine"]], "rookery")) {
    return(character())
  }
  asked <- settings_read(file)
  options <- file_fields(fields[["options"]], "options", file)
  c(
    words_of_place(asked$address, is_given = !vapply(options[c("host", "port")], is.null, NA)),
    if (!is.null(options[["log"]])) words_of_log(asked$log),
    if (!is.null(options[["log_format"]])) word_of("log_format", asked$log$format),
    words_of_workers(worker_fields(options, file)),
    words_of_settings(asked$settings),
    words_of_tls(asked$address$tls)
  )
}
