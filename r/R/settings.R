# Settings and their sources: argument, command line, `_server.yml`, R option, environment variable.

# The names of the R options that are not limits.
setting_names <- settings_of_options()$name

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
#' 5. an option of R: `options(rookery.max_body_size = "10 MB")`.
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
      if (nzchar(name) && !name %in% setting_table$name) {
        paste0(" `", name, "` is not a setting.", did_you_mean(name, setting_table$name))
      },
      argument = if (nzchar(name)) name else "...", class = "rookery_bad_setting"
    )
  }
  table <- limit_table()
  found <- lapply(c(setting_names, table$name), setting_of)
  values <- vapply(seq_along(found), function(at) {
    value <- found[[at]]$value
    kind <- c(rep("", length(setting_names)), table$kind)[[at]]
    if (nzchar(kind)) format_limit(value, kind) else format_setting(value)
  }, "")
  structure(
    data.frame(
      name = c(setting_names, table$name), value = values,
      origin = vapply(found, `[[`, "", "origin"), stringsAsFactors = FALSE
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

# Returns list(value =, origin =, where =) of a setting. `argument` is the value of a function's
# argument; `where` names the source in messages.
setting_of <- function(name, argument = NULL) {
  is_limit <- !name %in% setting_names
  check <- function(value, where) {
    if (is_limit) limit_value(value, name, where) else check_setting(value, name, where)
  }
  serving <- .globals$settings
  option <- paste0("rookery.", name)
  variable <- paste0("ROOKERY_", ascii_upper(name))
  places <- list(
    list("command line", serving$cli[[name]], paste0("`", name, "` of the command line")),
    list("argument", argument, paste0("`", name, "`")),
    list("argument", serving$argument[[name]], paste0("`", name, "`")),
    list(
      "environment", serving$environment[[name]] %||% environment_value(variable),
      paste0("The environment variable ", variable)
    ),
    list("_server.yml", serving$file[[name]], paste0("`", name, ":` of the _server.yml")),
    list("option", getOption(option), paste0("The option `", option, "`"))
  )
  for (place in places) {
    if (!is.null(place[[2]])) {
      return(list(value = check(place[[2]], place[[3]]), origin = place[[1]], where = place[[3]]))
    }
  }
  list(
    value = if (is_limit) {
      limit_table()$default[limit_table()$name == name]
    } else {
      default_setting(name)
    },
    origin = "default"
  )
}

# Warns, once in an R process, about environment variables that begin with ROOKERY_ and do not
# belong to a setting. The program `rookery` has done this for the R processes that it starts.
warn_unknown_variables <- function() {
  if (isTRUE(.globals$has_checked_variables) || is_worker() || !is.null(.globals$settings$cli)) {
    return(invisible())
  }
  .globals$has_checked_variables <- TRUE
  names <- names(Sys.getenv())
  names <- names[startsWith(names, "ROOKERY_")]
  unknown <- .Call(ffi_unknown_variables, paste(names, collapse = "\n"))
  for (line in strsplit(unknown, "\n", fixed = TRUE)[[1]]) {
    warn(paste0("rookery: ", line), "rookery_unknown_variable")
  }
}

environment_value <- function(variable) {
  value <- Sys.getenv(variable, NA)
  if (!is.na(value) && nzchar(value)) value
}

check_setting <- function(value, name, where) {
  if (name == "error_detail" && identical(value, "httpuv")) {
    return(value)
  }
  if (name == "ws_compression" && !is.na(flag <- flag_of(value))) {
    return(flag)
  }
  setting_value(value, name, where)
}

# Reads a value according to the table of settings (crates/settings), and returns it with the type
# of the setting. R checks only types, NA and encodings. `where` names the source in messages.
setting_value <- function(value, name, where, class = "rookery_bad_setting") {
  lines <- cli_read(.Call(
    ffi_read_setting, name, paste(encode_lines(setting_texts(value)), collapse = "\n")
  ))
  if (!is.null(lines$wanted)) {
    wanted <- if (lines$wanted == "yes or no") "TRUE or FALSE" else lines$wanted
    abort(
      paste0(where, " must be ", wanted, ", not ", describe(value), "."), class, argument = name
    )
  }
  if (!is.null(lines$wrong)) {
    abort(paste0(where, ": ", lines$wrong, "."), class, argument = name)
  }
  typed_values(lines)$value
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

# Returns TRUE or FALSE, also for the texts used in the environment; NA for other values.
flag_of <- function(value) {
  if (is.object(value) || !(is.logical(value) || is.numeric(value) || is.character(value)) ||
        length(value) != 1) {
    return(NA)
  }
  if (as.character(value) %in% c("0", "1")) {
    as.character(value) == "1"
  } else if (is.numeric(value)) {
    NA
  } else {
    as.logical(value)
  }
}

default_setting <- function(name) {
  switch(
    name,
    error_detail = if (is.null(.globals$settings) && stands_in_for_httpuv()) {
      "httpuv"
    } else if (interactive()) {
      "message"
    } else {
      "none"
    },
    request_id_header = !is.null(.globals$settings),
    interrupt_requests = FALSE,
    server_timing = FALSE,
    proxy_protocol = FALSE,
    ws_compression = FALSE,
    trusted_proxies = character(),
    proxy_protocol_from = character(),
    keep_identity_headers = FALSE,
    reconnect = "app",
    NULL
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
  names <- c(setting_names, limit_table()$name)
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
