# Creates, checks and normalizes static paths and their options.

#' Serve files without R
#'
#' A static path is a folder or file that the server sends by itself, on its own
#' thread, even while R is busy. An app lists static paths in its `staticPaths`,
#' and common options in its `staticPathOptions`, as described for
#' [startServer()]. They can be changed while the server runs:
#' `server$setStaticPath()`, `server$setStaticPathOption()`.
#'
#' @section Names of static paths:
#' The argument `staticPaths` is a named list or named character vector of
#' folders and files. The names are URL prefixes. A leading `/` is added and a
#' trailing `/` is removed, so `"www"`, `"/www"` and `"www/"` are the same name.
#' If several entries have the same name, the first one is used. If several
#' names match the beginning of a URL path, the longest one is used. Only whole
#' path segments match. A name with a segment that is empty, `.` or `..`, such
#' as `"a//b"`, is an error.
#'
#' @section Options left `NULL`:
#' If an option of a static path is `NULL`, its value in the server's
#' `staticPathOptions` is used, and never that of another static path. To turn
#' an option off for one path, use `headers = list()`, `html_charset = ""` or
#' `validation = character(0)`.
#'
#' @section Several R processes:
#' With [workers_config()], the supervisor of the R processes serves the static
#' files itself, even while all workers are busy. When the static paths of a
#' running server change, R waits until the supervisor has applied the change,
#' so that the next request uses the new paths. If the supervisor does not
#' confirm the change within two seconds, there is a warning of class
#' `rookery_static_paths_unconfirmed`. If a path differs between workers, such
#' as a folder in [tempdir()], clients with session affinity get the files of
#' their worker. For other requests, the last change of the path applies.
#'
#' @param path The folder or file to serve, which must exist. `as.staticPath()`
#'   also accepts the value of `staticPath()`.
#' @param indexhtml Whether a request for a folder gets the `index.html` in that
#'   folder.
#' @param fallthrough Whether requests for missing files are passed to the app.
#'   Otherwise they get status 404.
#' @param html_charset The charset in the `Content-Type` header of HTML files;
#'   `""` for none.
#' @param headers Further headers of the responses with static files, as a named
#'   list of strings or a named character vector.
#' @param validation The header that each request for the static files must
#'   have, with its value, for example `'"X-Secret" == "abc"'`. Other requests
#'   get status 403. `character(0)` requires no header.
#' @param exclude Whether requests for this path are passed to the app, although
#'   another static path contains it.
#' @return `staticPath()` and `as.staticPath()` return an object of class
#'   `staticPath`, and `staticPathOptions()` one of class `staticPathOptions`.
#' @examples
#' staticPath(tempdir(), indexhtml = FALSE, headers = list("Cache-Control" = "max-age=3600"))
#'
#' staticPathOptions(fallthrough = TRUE)
#'
#' app <- list(
#'   call = function(req) list(status = 404L, headers = list(), body = "R has no such page."),
#'   staticPaths = list("/files" = tempdir(), "/files/secret" = excludeStaticPath()),
#'   staticPathOptions = staticPathOptions(fallthrough = TRUE)
#' )
#' @export
staticPath <- function(
  path, indexhtml = NULL, fallthrough = NULL, html_charset = NULL, headers = NULL,
                       validation = NULL) {
  if (!is.character(path) || length(path) != 1 || is.na(path) || path == "") {
    abort_argument("`path` must be a non-empty string.")
  }
  if (!file.exists(path)) {
    # The message is the one of normalizePath().
    abort_argument("path[1]=\"", path, "\": No such file or directory", argument = "path")
  }
  path <- enc2utf8(normalizePath(path, winslash = "/", mustWork = TRUE))
  new_static_path(
    path, staticPathOptions(indexhtml, fallthrough, html_charset, headers, validation, FALSE)
  )
}

#' @rdname staticPath
#' @export
excludeStaticPath <- function() {
  new_static_path("", staticPathOptions(NULL, NULL, NULL, NULL, NULL, TRUE))
}

#' @rdname staticPath
#' @export
staticPathOptions <- function(
  indexhtml = TRUE, fallthrough = FALSE, html_charset = "utf-8", headers = list(),
                              validation = character(0), exclude = FALSE) {
  options <- list(
    indexhtml = indexhtml,
    fallthrough = fallthrough,
    html_charset = html_charset,
    headers = headers,
    validation = validation,
    exclude = exclude
  )
  normalizeStaticPathOptions(structure(options, class = "staticPathOptions"))
}

#' @rdname staticPath
#' @export
as.staticPath <- function(path) {
  UseMethod("as.staticPath")
}

#' @export
as.staticPath.staticPath <- function(path) {
  path
}

#' @export
as.staticPath.character <- function(path) {
  staticPath(path)
}

#' @export
as.staticPath.default <- function(path) {
  abort_argument(
    "Cannot convert object of class ", class(path)[[1]], " to a staticPath object.",
    argument = "path"
  )
}

# Returns a static path that is a web site of its own: `404.html`, `page.html` for `/page`, redirects
# to folders, and no settings or source code. httpuv has no such paths.
site_path <- function(path) {
  site <- staticPath(path)
  site$is_site <- TRUE
  site
}

new_static_path <- function(path, options) {
  structure(list(path = path, options = options), class = "staticPath")
}

# Returns `paths` as a named list of staticPath objects. The keys are UTF-8, begin with "/", do not
# end with "/", and are unique.
normalizeStaticPaths <- function(paths) {
  if (length(paths) == 0 && (is.null(paths) || is.list(paths) || is.character(paths))) {
    return(list())
  }
  keys <- names(paths)
  if (!(is.list(paths) || is.character(paths)) || is.null(keys) || anyNA(keys) || any(keys == "")) {
    abort_argument(
      "paths must be a named character vector, a named list containing strings and staticPath ",
      "objects, or NULL.",
      argument = "paths"
    )
  }
  # The elements of a character vector are strings; those of a list can be anything.
  paths <- lapply(unclass(paths), as.staticPath)
  names(paths) <- static_path_key(keys)
  paths[!duplicated(names(paths))]
}

static_path_key <- function(key) {
  key <- sub("/+$", "", enc2utf8(key))
  ifelse(startsWith(key, "/"), key, paste0("/", key))
}

# Checks options and converts each to its type: a flag, a string, a named character vector, or the
# three parts of a validation. NULL stays NULL, and missing options stay missing.
normalizeStaticPathOptions <- function(opts) {
  if (isTRUE(attr(opts, "normalized"))) {
    return(opts)
  }
  # `opts["x"] <- list(NULL)` keeps the option and its position.
  for (name in intersect(names(opts), names(option_readers))) {
    value <- opts[[name]]
    if (!is.null(value)) {
      opts[[name]] <- option_readers[[name]](value, name)
    }
  }
  structure(opts, normalized = TRUE)
}

read_flag <- function(value, name) {
  # Numbers are accepted, as in conditions of R.
  if (!(is.logical(value) || is.numeric(value)) || length(value) != 1 || is.na(value)) {
    abort_argument("`", name, "` option must be TRUE or FALSE.")
  }
  as.logical(value)
}

# Numbers are not accepted here, because serving a path by mistake is worse than an error.
read_exclude <- function(value, name) {
  if (!is.logical(value)) {
    abort_argument("`", name, "` option must be TRUE or FALSE.")
  }
  read_flag(value, name)
}

read_charset <- function(value, name) {
  if (is.character(value) && length(value) == 0) {
    return("")
  }
  if (!is.character(value) || length(value) != 1 || is.na(value) ||
        !(value == "" || is_token(value))) {
    abort_argument("`", name, "` option must be the name of a character set, as one string.")
  }
  value
}

# list(A = c("1", "2")) stands for a header that is sent twice.
read_headers <- function(value, name) {
  if (length(value) == 0 && (is.list(value) || is.character(value))) {
    return(structure(character(0), names = character(0)))
  }
  keys <- names(value)
  is_named <- !is.null(keys) && !anyNA(keys) && all(keys != "")
  is_text <- is.character(value) ||
    (is.list(value) && all(vapply(value, is_header_value, logical(1))))
  if (!is_named || !is_text) {
    abort_argument("`", name, "` option must be a named list or character vector.")
  }
  keys <- rep(keys, lengths(value))
  value <- as.character(unlist(value, use.names = FALSE))
  # A line break in a value would start another header, or the body.
  if (anyNA(value) || any(grepl("[\\x01-\\x08\\x0a-\\x1f\\x7f]", value, perl = TRUE)) ||
        !all(is_token(keys))) {
    abort_argument("`", name, "` option has a name or a value that a header cannot have.")
  }
  # These headers describe the length of a message, which only the server knows.
  framing <- keys[ascii_lower(keys) %in% c("content-length", "content-range", "transfer-encoding")]
  if (length(framing) > 0) {
    abort_argument("`", name, "` option cannot have ", framing[[1]], ", which the server sets.")
  }
  structure(enc2utf8(value), names = keys)
}

# Returns whether text is a valid header name (RFC 9110, section 5.6.2).
is_token <- function(text) {
  grepl("\\A[!#$%&'*+.^_`|~0-9A-Za-z-]+\\z", text, perl = TRUE)
}

is_header_value <- function(value) {
  is.null(value) || is.character(value)
}

# '"Name" == "value"' is R syntax. It is parsed by R's parser but never evaluated.
read_validation <- function(value, name) {
  if (!is.character(value) || anyNA(value)) {
    abort_argument("`", name, "` option must be a character vector with zero or one element.")
  }
  # The value was parsed before.
  if (length(value) == 3 && value[[1]] == "==") {
    return(value)
  }
  if (length(value) > 1) {
    abort_argument("`", name, "` option must be a character vector with zero or one element.")
  }
  if (length(value) == 0 || value == "") {
    return(character(0))
  }
  parsed <- tryCatch(
    parse(text = value, keep.source = FALSE, encoding = "UTF-8"), error = function(error) NULL
  )
  comparison <- if (length(parsed) == 1) as.list(parsed[[1]])
  is_comparison <- length(comparison) == 3 && identical(comparison[[1]], as.name("==")) &&
    is.character(comparison[[2]]) && is.character(comparison[[3]])
  if (!is_comparison) {
    abort_argument("`", name, "` must be a string of the form: '\"xxx\" == \"yyy\"'")
  }
  if (!is_token(comparison[[2]])) {
    abort_argument(
      "`", name, "` option must name a header, which \"", comparison[[2]], "\" cannot be."
    )
  }
  enc2utf8(c("==", comparison[[2]], comparison[[3]]))
}

option_readers <- list(
  indexhtml = read_flag,
  fallthrough = read_flag,
  html_charset = read_charset,
  headers = read_headers,
  validation = read_validation,
  exclude = read_exclude
)

#' @export
format.staticPath <- function(x, ...) {
  paste0("<staticPath>\n", "  Local path:        ", x$path, "\n", format_options(x$options))
}

#' @export
format.staticPathOptions <- function(x, ...) {
  paste0("<staticPathOptions>\n", format_options(x))
}

format_options <- function(options) {
  paste0(
    "  Use index.html:    ", format_option(options$indexhtml), "\n",
    "  Fallthrough to R:  ", format_option(options$fallthrough), "\n",
    "  HTML charset:      ", format_option(options$html_charset), "\n",
    "  Extra headers:     ", format_headers(options$headers), "\n",
    "  Validation params: ", format_option(options$validation), "\n",
    "  Exclude path:      ", format_option(options$exclude), "\n"
  )
}

format_option <- function(value) {
  if (is.null(value)) {
    return("<inherit>")
  }
  if (length(value) == 0) "<none>" else paste(as.character(value), collapse = " ")
}

format_headers <- function(headers) {
  if (length(headers) == 0) {
    return(format_option(headers))
  }
  paste0("\n    \"", names(headers), "\" = \"", headers, "\"", collapse = "")
}
