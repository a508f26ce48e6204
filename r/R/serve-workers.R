# Workers: the options of serve() about them, and how serve() passes these options to the program
# `rookery`, which supervises the R processes. The options are passed as command-line arguments.
# server-yml.R creates those of a `_server.yml`.

#' Several R processes
#'
#' Creates the value of `workers` for [serve()]: how many R processes serve a
#' path on one address, and when they are replaced. A single worker is
#' supervised in the same way. Workers need Linux or macOS.
#'
#' The same options exist on the command line
#' (`rookery serve app/ --workers 4 --max-age 12h`) and among the `options:` of
#' a `_server.yml` with `engine: rookery` (`workers: 4`, `max_age: 12h`). Times
#' are seconds, or strings such as `"30s"`, `"5min"` and `"12h"`; sizes are
#' bytes, or strings such as `"2GB"`.
#'
#' @section Lifecycle:
#' Experimental: arguments and behaviour may change in any release.
#'
#' @param workers The number of R processes (workers) that serve the app, or
#'   `"auto"` for one per processor.
#' @param ... Must be empty. The arguments that follow `...` must be given by
#'   name.
#' @eval params_of_settings("workers_config")
#' @return An object of class `rookery_workers`, for the argument `workers` of
#'   [serve()].
#' @examples
#' workers_config(4, max_memory = "2GB", worker_timeout = "5min")
#' @export
workers_config <- function(
  workers = "auto",
  ...,
  spares = NULL,
  warmup = NULL,
  max_sessions = NULL,
  max_requests = NULL,
  max_age = NULL,
  max_memory = NULL,
  worker_timeout = NULL,
  slow_log = NULL,
  start_timeout = NULL,
  start_retries = NULL,
  restart = NULL,
  drain = NULL,
  drain_sessions = NULL,
  sticky = NULL,
  embed = NULL,
  reload = NULL,
  shutdown_delay = NULL,
  fail_fast = NULL,
  surge = NULL,
  max_in_flight = NULL,
  queue_timeout = NULL
) {
  fields <- mget(setdiff(names(formals(workers_config)), "..."))
  arguments_of("workers_config()", "rookery_bad_workers", {
    if (...length() > 0) abort_dots(c(...names(), "")[[1]], names(fields)[-1])
    for (name in names(fields)) check_worker_option(fields[[name]], name, paste0("`", name, "`"))
  })
  structure(Filter(Negate(is.null), fields), class = "rookery_workers")
}

#' @export
format.rookery_workers <- function(x, ...) {
  others <- x[names(x) != "workers"]
  lines <- vapply(
    names(others), function(name) paste0("  ", name, ": ", paste(others[[name]], collapse = ", ")),
    ""
  )
  c(paste0("<workers: ", x$workers, ">"), lines)
}

#' @export
print.rookery_workers <- function(x, ...) {
  cat(format(x), sep = "\n")
  invisible(x)
}

# Formats named settings as lines `name=value` for the program `rookery`
# (crates/cli/src/settings/r_arguments.rs), one line for each element of a list.
lines_of <- function(settings) {
  unlist(lapply(names(settings), function(name) {
    if (length(settings[[name]]) > 0) paste0(name, "=", texts_of(settings[[name]]))
  }))
}

# Formats the argument `tls` of serve().
lines_of_tls <- function(tls) {
  if (is.null(tls) || identical(tls, "dev")) {
    return(lines_of(list(tls = tls)))
  }
  if (any(is_pem(c(tls$cert, tls$key, tls$client_ca, tls$acme$ca)))) {
    abort(
      paste0(
        "A certificate or key that is given as text, or with a password, cannot be passed to the ",
        "supervisor of the workers: give the path of a file."
      ),
      "rookery_bad_tls"
    )
  }
  hsts <- tls$hsts
  if (is.list(hsts)) {
    tls$hsts <- paste(
      c(hsts$max_age, c("subdomains", "preload")[c(hsts$include_subdomains, hsts$preload)]),
      collapse = ","
    )
  }
  settings <- c(settings_of_arguments("tls_config", tls), settings_of_arguments("acme", tls$acme))
  if (is.null(tls$client_ca)) settings$tls_client_auth <- NULL
  # Omitted, because an argument takes precedence over the environment and the file, even if it is a
  # default.
  if (isTRUE(settings$http2)) settings$http2 <- NULL
  lines_of(settings)
}

# Serves a path with several workers, and waits until the program ends. The options of this session
# are passed as defaults that a `_server.yml` and the environment override; arguments of serve()
# override both.
serve_with_workers <- function(path, address, dots, log, settings, workers, open = FALSE) {
  not_on_windows("`workers`", "one R process serves without it.", argument = "workers")
  if (length(dots) > 0) {
    abort(
      paste(
        "With `workers`, no further arguments can be passed to the function that runs the app: set",
        "them in the app."
      ),
      "rookery_bad_target",
      argument = "..."
    )
  }
  if (!is.null(log$call)) {
    abort(
      "With `workers`, `log` must be TRUE, FALSE, or the path of a file.", "rookery_bad_log",
      argument = "log"
    )
  }
  if (is.function(open)) {
    abort_argument("With `workers`, `open` must be TRUE or FALSE.", argument = "open")
  }
  own <- session_options()
  names(own) <- sub("^rookery[.]", "", names(own))
  lines <- c(
    if (length(own) > 0) paste0("option:", lines_of(own)),
    lines_of(list(
      host = if (is.null(address$socket)) address$host else paste0("unix:", address$socket),
      port = address$port
    )),
    lines_of_tls(address$tls),
    lines_of(unclass(settings)),
    lines_of(workers),
    lines_of(list(
      log = switch(log$to, nothing = "none", file = log$path, stdout = "-"),
      open = if (isTRUE(open)) TRUE,
      log_format = log$format
    ))
  )
  command <- list(
    program = system.file("exec", "rookery", package = "rookery", mustWork = TRUE),
    # Not normalized, because each reload resolves symbolic links in the path again.
    arguments = c("serve", "--", path.expand(path)),
    dir = getwd(),
    environment = c(
      # The R installation and the libraries of this session.
      PATH = paste(R.home("bin"), Sys.getenv("PATH"), sep = .Platform$path.sep),
      R_LIBS = paste(.libPaths(), collapse = .Platform$path.sep),
      ROOKERY_INTERNAL_ARGUMENTS = paste(encode_lines(lines), collapse = "\n"),
      ROOKERY_INTERNAL_PARENT_PID = Sys.getpid(),
      R_TESTS = ""
    )
  )
  run_child(command, paste0("`", path, "`"))
}

# Percent-encodes line ends and `%`.
encode_lines <- function(lines) {
  gsub("\n", "%0A", gsub("%", "%25", enc2utf8(lines), fixed = TRUE), fixed = TRUE)
}
