# Settings and their sources: argument, command line, `_server.yml`, R option, environment variable.
# Rust reads and combines them (src/rust/src/settings.rs).

#' Settings, and where each was set
#'
#' Each setting can be given in several places. The first of these places that
#' has a value is used:
#'
#' 1. the command line: `rookery serve app/ --max-body-size 10MB --error-detail
#'    message`;
#' 2. an argument, such as `limits = server_limits(max_body_size = "10 MB")` of
#'    [startServer()] and [serve()];
#' 3. the environment: `ROOKERY_MAX_BODY_SIZE="10 MB"`. A variable that begins
#'    with `ROOKERY_` and belongs to no setting causes a warning;
#' 4. `options:` of a `_server.yml`: `limits:` with a field for each, and
#'    `error_detail:`;
#' 5. an option of R: `options(rookery.max_body_size = "10 MB")`. An option that
#'    begins with `rookery.` and belongs to no setting causes a warning.
#'
#' Settings are read when a server is started. `rookery_options()` returns the
#' values with which the next server would start.
#'
#' @eval section_of_settings(
#'   "Settings",
#'   "The settings are all limits of [server_limits()], and:",
#'   settings_of_options(),
#'   more = list(
#'     error_detail = paste(
#'       "If this package replaces httpuv and the app runs without [serve()], the default response",
#'       "contains the error message, as with httpuv."
#'     ),
#'     trusted_proxies = "The environment variable is a comma-separated list.",
#'     proxy_protocol_from = "The environment variable is a comma-separated list.",
#'     proxy_protocol = "See [tls_config()].",
#'     ws_origins = paste(
#'       "This setting applies to an app without `wsOrigins`, see [startServer()].",
#'       "The environment variable is a comma-separated list."
#'     ),
#'     ws_compression = paste(
#'       "This setting applies to an app without `wsCompression`, see [startServer()]."
#'     ),
#'     reconnect = "This setting applies to Shiny apps that [serve()] runs."
#'   )
#' )
#'
#' @param ... Must be empty. Any argument is an error, whose message suggests a
#'   setting with a similar name.
#' @return A data frame of class `rookery_options` with a row for each setting
#'   and the columns `name`, `value` (as text) and `origin` (where the value was
#'   set, such as `"option"` or `"default"`).
#'   `rookery_options()["max_body_size"]` returns the row of one setting.
#' @examples
#' rookery_options()
#' rookery_options()[c("max_body_size", "error_detail")]
#' @export
rookery_options <- function(...) {
  if (...length() > 0) {
    name <- c(...names(), "")[[1]]
    abort_argument(
      "rookery_options() takes no arguments: `options(rookery.max_body_size = )` sets a setting.",
      if (nzchar(name) && !name %in% setting_table()$name) {
        paste0(" `", name, "` is not a setting.", did_you_mean(name, setting_table()$name))
      },
      argument = if (nzchar(name)) name else "...", class = "rookery_bad_setting"
    )
  }
  names <- c(setting_names(), limit_names())
  found <- resolve_settings(names)
  format_value <- function(name) {
    if (name %in% limit_names()) found[[name]]$shown else format_setting(found[[name]]$value)
  }
  structure(
    data.frame(
      name = names, value = vapply(names, format_value, ""),
      origin = vapply(found, `[[`, "", "origin"), stringsAsFactors = FALSE, row.names = NULL
    ),
    class = c("rookery_options", "data.frame")
  )
}

# Extracts rows also by the names of settings: `rookery_options()["max_body_size"]`. A result without
# all of the columns is a plain data frame.
#' @export
`[.rookery_options` <- function(x, ...) {
  is_by_name <- nargs() == 2 && is.character(..1) && !any(..1 %in% names(x))
  if (is_by_name) {
    unknown <- setdiff(..1, x$name)
    if (length(unknown) > 0) {
      abort(
        paste0("There is no setting `", unknown[[1]], "`.", did_you_mean(unknown[[1]], x$name)),
        "rookery_bad_setting",
        argument = unknown[[1]]
      )
    }
    return(x[match(..1, x$name), , drop = FALSE])
  }
  part <- NextMethod()
  if (is.data.frame(part) && !has_option_columns(part)) class(part) <- "data.frame"
  part
}

has_option_columns <- function(x) {
  all(c("name", "value", "origin") %in% names(x))
}

#' @export
format.rookery_options <- function(x, ...) {
  if (!has_option_columns(x)) {
    return(NextMethod())
  }
  paste0(
    format(c("setting", x$name)), "  ", format(c("value", x$value)), "  ", c("origin", x$origin)
  )
}

#' @export
print.rookery_options <- function(x, ...) {
  if (!has_option_columns(x)) {
    return(NextMethod())
  }
  cat(format(x), sep = "\n")
  invisible(x)
}

format_setting <- function(value) {
  paste0(
    names(value), if (!is.null(names(value))) " = ", vapply(value, as.character, ""),
    collapse = ", "
  )
}

# Returns list(value =, shown =, origin =, where =) of a setting. `argument` is the value of a
# function's argument; `shown` is the value for people, and `where` names the source in messages.
setting_of <- function(name, argument = NULL) {
  resolve_settings(name, set_names(list(argument), name))[[1]]
}

# Returns setting_of() for each of several settings. `arguments` are values of arguments by name.
resolve_settings <- function(names, arguments = list()) {
  serving <- .globals$settings
  given <- list(
    "command line" = serving$cli,
    argument = c(Filter(Negate(is.null), arguments), serving$argument),
    environment = serving$environment, "_server.yml" = serving$file,
    option = set_names(lapply(names, function(name) getOption(paste0("rookery.", name))), names)
  )
  # A default of this session, see default_setting().
  if (identical(given$option$error_detail, "httpuv")) given$option$error_detail <- NULL
  prefixes <- c("cli:", "", "environment:", "file:", "option:")
  lines <- unlist(lapply(seq_along(given), function(at) {
    lapply(intersect(names, names(given[[at]])), function(name) {
      value <- given[[at]][[name]]
      if (!is.null(value)) setting_lines(paste0(prefixes[[at]], name), value)
    })
  }))
  found <- cli_read(
    text_of("settings", paste(names, collapse = "\n"), paste(lines, collapse = "\n"))
  )
  if (!is.null(found$setting)) {
    name <- found$setting
    value <- given[[found$origin]][[name]] %||%
      environment_value(paste0("ROOKERY_", ascii_upper(name)))
    is_limit <- name %in% limit_names()
    abort_setting(
      found, value, found$where, name,
      if (is_limit) c("rookery_bad_limit", "rookery_bad_argument") else "rookery_bad_setting"
    )
  }
  values <- resolved_values(found)
  set_names(lapply(names, function(name) {
    origin <- found[[paste0("origin:", name)]]
    value <- if (origin == "default") default_setting(name, values[[name]]) else values[[name]]
    list(
      value = value, shown = found[[paste0("shown:", name)]], origin = origin,
      where = found[[paste0("where:", name)]]
    )
  }), names)
}

# Warns, once for each, about options of R and environment variables that begin like those of
# settings and belong to none. With `has_program`, the program `rookery` checks the variables.
warn_unknown_settings <- function(has_program = is_worker() || !is.null(.globals$settings$cli)) {
  options <- grep("^rookery[.]", names(options()), value = TRUE)
  unknown <- text_of("unknown settings", paste(options, collapse = "\n"), !has_program)
  unknown <- strsplit(unknown, "\n", fixed = TRUE)[[1]]
  for (line in setdiff(unknown, .globals$unknown_settings)) {
    kind <- if (startsWith(line, "the option")) "option" else "variable"
    warn(paste0("rookery: ", line), paste0("rookery_unknown_", kind))
  }
  .globals$unknown_settings <- unknown
}

environment_value <- function(variable) {
  value <- Sys.getenv(variable, NA)
  if (!is.na(value) && nzchar(value)) value
}

# Reads a value according to the table of settings (crates/settings), and returns it with the type
# of the setting. R checks only types, NA and encodings. `where` names the source in messages.
setting_value <- function(value, name, where, class = "rookery_bad_setting") {
  given <- paste(setting_lines(name, value), collapse = "\n")
  lines <- cli_read(text_of("settings", name, given))
  abort_setting(lines, value, where, name, class)
  resolved_values(lines)[[name]]
}

# Checks the arguments of the function `of` in a list by key, as setting_value() does, except those
# that are NULL.
checked_arguments <- function(of, values, class = "rookery_bad_argument") {
  rows <- settings_of_function(of)
  for (key in names(Filter(Negate(is.null), values))) {
    name <- rows$name[rows$key == key]
    values[[key]] <- setting_value(values[[key]], name, paste0("`", key, "`"), class)
  }
  values
}

# Returns the lines `name=value` for a value. A value that cannot be a setting has no `=`.
setting_lines <- function(name, value) {
  texts <- setting_texts(value)
  paste0(name, if (length(texts) > 0) paste0("=", encode_lines(texts)))
}

resolved_values <- function(lines) {
  typed_values(lines[!grepl("^(shown|origin|where):", names(lines))])
}

# Raises the error that Rust has found in the value of a setting, if there is one.
abort_setting <- function(lines, value, where, name, class) {
  if ("rookery_bad_argument" %in% class) name <- first_quoted(where) %||% name
  if (!is.null(lines$wanted)) {
    wanted <- if (lines$wanted == "yes or no") "TRUE or FALSE" else lines$wanted
    abort(
      paste0(where, " must be ", wanted, ", not ", describe(value), "."), class, argument = name
    )
  }
  if (!is.null(lines$wrong)) {
    abort(paste0(where, ": ", lines$wrong, "."), class, argument = name)
  }
}

# Returns the texts of a value, or none if it cannot be a setting. Environment variables may have
# any bytes.
setting_texts <- function(value) {
  if (is.list(value) && length(value) > 0 && !is.null(names(value)) && all(lengths(value) == 1)) {
    return(texts_of(value))
  }
  is_plain <- is.logical(value) || is.numeric(value) || is.character(value)
  if (!is_plain || is.object(value) || anyNA(value) || !all(validUTF8(as.character(value)))) {
    character()
  } else {
    texts_of(value)
  }
}

# Returns the texts of a checked value: one, or one for each element of a list.
texts_of <- function(value) {
  if (is.list(value)) {
    paste0(names(value), "=", vapply(value, plain_text, ""), collapse = ",")
  } else {
    plain_text(value)
  }
}

# Returns the default of a setting, which for some depends on this session. `value` is that of the
# table.
default_setting <- function(name, value) {
  switch(
    name,
    error_detail = if (
      identical(getOption("rookery.error_detail"), "httpuv") ||
        is.null(.globals$settings) && stands_in_for_httpuv()
    ) {
      "httpuv"
    } else if (interactive()) {
      "message"
    } else {
      "none"
    },
    request_id_header = !is.null(.globals$settings),
    trusted_proxies = ,
    proxy_protocol_from = character(),
    value
  )
}

# Returns whether the loaded httpuv is rookery's.
stands_in_for_httpuv <- function() {
  isNamespaceLoaded("httpuv") &&
    identical(get0(".globals", envir = asNamespace("httpuv"), inherits = FALSE), .globals)
}

# Returns the options of this session to pass to another R process, which reads the environment
# variables itself.
session_options <- function(is_interactive = interactive()) {
  names <- c(setting_names(), limit_names())
  values <- lapply(names, function(name) getOption(paste0("rookery.", name)))
  options <- Filter(Negate(is.null), set_names(values, paste0("rookery.", names)))
  # The folder may be relative to the working directory of this session.
  if (!is.null(setting_of("spool_dir")$value)) options$rookery.spool_dir <- spool_dir()
  # An interactive user of this session also sees the error details of the other process.
  is_told <- !is.null(options$rookery.error_detail) ||
    !is.null(environment_value("ROOKERY_ERROR_DETAIL"))
  if (is_interactive && !is_told) options$rookery.error_detail <- "message"
  options
}

set_names <- function(values, names) {
  names(values) <- names
  values
}
