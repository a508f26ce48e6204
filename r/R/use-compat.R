#' Let packages written for httpuv use rookery
#'
#' Rookery includes a package that is *named* httpuv and calls rookery for
#' everything. It is installed in a library of its own,
#' `system.file("compat", package = "rookery")`, so that R does not find it by
#' accident. `use_compat()` puts that library first in `.libPaths()` for this
#' session. Shiny, plumber and all other packages that import httpuv then run on
#' rookery. [serve()] does this by itself.
#'
#' @section For every session:
#' If the following line is in the `.Rprofile` of your home folder or of a
#' project, RStudio's *Run App* and a plain `shiny::runApp()` use rookery as
#' well:
#' ```
#' rookery::use_compat(quiet = TRUE)
#' ```
#' It loads only rookery and takes a few milliseconds. In a project that uses
#' renv, the line must follow `source("renv/activate.R")`, which sets the
#' library paths. If an earlier line loads httpuv, `use_compat()` has no effect
#' and gives a warning.
#'
#' @param ... Must be empty. The arguments that follow `...` must be given by
#'   name.
#' @param quiet Whether to suppress the message that packages now use rookery
#'   instead of httpuv.
#' @return `use_compat()` returns the path of the library with rookery's httpuv,
#'   invisibly. If another httpuv has already been loaded, it raises an error of
#'   class `rookery_httpuv_loaded`, because a loaded package cannot be replaced.
#'   In `.Rprofile`, this is only a warning, so that the rest of the file is
#'   evaluated.
#' @examples
#' which_httpuv()
#' @export
use_compat <- function(..., quiet = FALSE) {
  check_dots("use_compat()", ..., known = "quiet")
  check_flag(quiet, "quiet")
  library <- compat_library()
  if (isNamespaceLoaded("httpuv") && !is_compat(getNamespaceInfo("httpuv", "path"))) {
    if (is_starting()) warn_loaded() else abort_loaded()
  }
  .libPaths(c(library, .libPaths()))
  if (!quiet) {
    message(
      "Packages that use httpuv run on rookery ", utils::packageVersion("rookery"),
      " in this session.\n",
      "For every session, put this line into .Rprofile: rookery::use_compat(quiet = TRUE)"
    )
  }
  invisible(library)
}

#' @return `which_httpuv()` returns a list that describes the httpuv that this
#'   session has loaded or would load: `kind` (`"rookery"`, `"httpuv"` or
#'   `"none"`), `version`, `path` and `loaded`.
#' @rdname use_compat
#' @export
which_httpuv <- function() {
  is_loaded <- isNamespaceLoaded("httpuv")
  path <- if (is_loaded) {
    getNamespaceInfo("httpuv", "path")
  } else {
    found <- find.package("httpuv", quiet = TRUE)
    if (length(found) > 0) found[[1]]
  }
  if (is.null(path)) {
    return(new_which("none", NA_character_, NA_character_, FALSE))
  }
  version <- utils::packageDescription("httpuv", lib.loc = dirname(path), fields = "Version")
  new_which(if (is_compat(path)) "rookery" else "httpuv", version, path, is_loaded)
}

new_which <- function(kind, version, path, loaded) {
  structure(
    list(kind = kind, version = version, path = path, loaded = loaded), class = "rookery_which"
  )
}

#' @export
format.rookery_which <- function(x, ...) {
  if (x$kind == "none") {
    return(paste(
      "No httpuv is installed in the libraries of this session; rookery::use_compat() adds",
      "rookery's."
    ))
  }
  whose <- if (x$kind == "rookery") "rookery's httpuv" else "httpuv"
  verb <- if (x$loaded) "uses" else "would use"
  paste0("This session ", verb, " ", whose, " ", x$version, " (", x$path, ").")
}

#' @export
print.rookery_which <- function(x, ...) {
  cat(format(x), "\n", sep = "")
  invisible(x)
}

# Returns whether the httpuv in a folder is rookery's, according to its DESCRIPTION.
is_compat <- function(path) {
  description <- file.path(path, "DESCRIPTION")
  file.exists(description) &&
    identical(read.dcf(description, fields = "Config/rookery/compat")[[1]], "true")
}

# Returns the library with rookery's httpuv. It is normally created when rookery is installed. If
# that failed, it is created now, in rookery's own folder or, if that is not writable, in the user's
# cache.
compat_library <- function() {
  home <- getNamespaceInfo("rookery", "path")
  # The usual place is checked first, because .Rprofile waits for this function.
  inside <- file.path(home, "compat")
  if (file.exists(file.path(inside, "httpuv", "DESCRIPTION"))) {
    return(inside)
  }
  version <- as.character(utils::packageVersion("rookery"))
  cache <- file.path(
    tools::R_user_dir("rookery", "cache"), paste0("compat-", version, "-R-", getRversion())
  )
  if (is_compat(file.path(cache, "httpuv"))) {
    return(cache)
  }
  source <- file.path(home, "compat-src", "httpuv")
  if (!dir.exists(source)) {
    abort(
      paste0(
        "Rookery's httpuv is in none of `", file.path(home, "compat"), "` and `", cache,
        "`, and its source is not in `",
        source, "`: install rookery again, from a tarball of `R CMD build` or with `make install`."
      ),
      "rookery_no_compat"
    )
  }
  library <- if (file.access(home, 2) == 0) file.path(home, "compat") else cache
  problem <- install_compat(source, library)
  if (!is.null(problem)) {
    abort(problem, "rookery_no_compat")
  }
  library
}

# Evaluates an expression that creates an app, such as shiny::shinyApp(). Packages that the
# expression loads find rookery's httpuv first. If it loads none, the library paths are restored.
with_compat <- function(body) {
  if (isNamespaceLoaded("httpuv")) {
    return(body)
  }
  before <- .libPaths()
  library <- tryCatch(compat_library(), rookery_no_compat = function(error) NULL)
  .libPaths(c(library, before))
  on.exit(if (!isNamespaceLoaded("httpuv")) .libPaths(before))
  body
}

# Returns whether R is still evaluating .Rprofile.
is_starting <- function() {
  # R attaches methods before .Rprofile, and the other default packages after it.
  default <- setdiff(getOption("defaultPackages"), c("methods", "NULL"))
  length(default) > 0 && !any(paste0("package:", default) %in% search())
}

# A warning, because an error would skip the rest of .Rprofile.
warn_loaded <- function() {
  problem <- tryCatch(abort_loaded(), error = identity)
  warning(structure(
    list(message = conditionMessage(problem), call = NULL, users = problem$users),
    class = c("rookery_httpuv_loaded", "rookery_warning", "warning", "condition")
  ))
}

abort_loaded <- function() {
  found <- which_httpuv()
  users <- who_uses("httpuv")
  by <- if (length(users) > 0) {
    paste0(" It is used by ", paste(users, collapse = ", "), ", loaded in this session.")
  } else {
    " It was loaded explicitly in this session (`library(httpuv)` or `httpuv::`)."
  }
  abort(
    paste0(
      "httpuv ", found$version, " from `", found$path,
      "` is loaded already, and a loaded package cannot be exchanged.",
      by, "\nStart a new R session and call rookery::use_compat() before anything else, ",
      "or give rookery::serve() the path of the app, which then runs in a separate R process."
    ),
    "rookery_httpuv_loaded",
    users = users
  )
}

# Returns the loaded packages that import a package or depend on it.
who_uses <- function(package) {
  uses <- function(name) {
    if (name %in% c("base", package)) {
      return(FALSE)
    }
    if (package %in% names(getNamespaceImports(name))) {
      return(TRUE)
    }
    path <- getNamespaceInfo(name, "path")
    fields <- tryCatch(
      read.dcf(file.path(path, "DESCRIPTION"), fields = c("Imports", "Depends")),
      error = function(error) NA
    )
    named <- unlist(strsplit(as.character(fields[!is.na(fields)]), "[[:space:]]*,[[:space:]]*"))
    package %in% sub("[[:space:](].*$", "", trimws(named))
  }
  sort(Filter(uses, loadedNamespaces()))
}
