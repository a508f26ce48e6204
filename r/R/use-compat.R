#' Let packages written for httpuv use rookery
#'
#' Rookery includes a package that is *named* httpuv and calls rookery for
#' everything. It is in a folder of its own,
#' `system.file("compat", package = "rookery")`, in which R does not look for
#' packages. `use_compat()` loads it from there. Shiny, plumber and all other
#' packages that import httpuv then run on rookery, because R does not load a
#' second package of the same name. [serve()] does this by itself.
#'
#' @section Libraries:
#' `use_compat()` does not change `.libPaths()`, installs nothing and replaces no
#' installed httpuv. An R process that this session starts looks for httpuv in
#' the same libraries as any other R process. It uses rookery if it calls
#' `use_compat()` as well, for example in its `.Rprofile`.
#'
#' `packageVersion("httpuv")`, `sessionInfo()` and tools for deployment, such as
#' rsconnect and renv, still report the httpuv that is installed in the
#' libraries. `which_httpuv()` describes the httpuv that the session uses.
#'
#' @section For every session:
#' If the following line is in the `.Rprofile` of your home folder or of a
#' project, RStudio's *Run App* and a plain `shiny::runApp()` use rookery as
#' well:
#' ```
#' rookery::use_compat(quiet = TRUE)
#' ```
#' It takes a few milliseconds, and has no effect in the R processes of
#' `R CMD INSTALL`. In a project that uses renv, the line must follow
#' `source("renv/activate.R")`, which sets the library paths. If an earlier line
#' loads httpuv, `use_compat()` has no effect and gives a warning.
#'
#' @param ... Must be empty. The arguments that follow `...` must be given by
#'   name.
#' @param quiet Whether to suppress the message that packages now use rookery
#'   instead of httpuv.
#' @section Builds without httpuv:
#' Repositories such as CRAN do not accept a package that contains another
#' package named httpuv. Rookery's package of that name is then published as a
#' separate source package, one of the files of each release of rookery, which
#' `install_compat()` installs. The package goes
#' into rookery's own folder and never replaces an installed httpuv. Without
#' this package, rookery still serves apps that do not use httpuv, and
#' `use_compat()` raises an error of class `rookery_no_compat`.
#'
#' @return `use_compat()` returns the path of the folder with rookery's httpuv,
#'   invisibly. If another httpuv has already been loaded, it raises an error of
#'   class `rookery_httpuv_loaded`, because a loaded package cannot be replaced.
#'   In `.Rprofile`, errors are only warnings, so that the rest of the file is
#'   evaluated, and the value is `NULL`.
#' @examples
#' which_httpuv()
#' @export
use_compat <- function(..., quiet = FALSE) {
  check_dots("use_compat()", ..., known = "quiet")
  check_flag(quiet, "quiet")
  if (is_r_command()) {
    # R CMD INSTALL of rookery or of httpuv fails if the package is loaded.
    try(unloadNamespace("rookery"), silent = TRUE)
    return(invisible())
  }
  library <- tryCatch(load_compat(), rookery_error = function(error) {
    if (!is_starting()) stop(error)
    warn(conditionMessage(error), class(error)[[1]])
  })
  if (!quiet && stands_in_for_httpuv()) {
    message(
      "Packages that use httpuv run on rookery ", utils::packageVersion("rookery"),
      " in this session.\n",
      "For every session, put this line into .Rprofile: rookery::use_compat(quiet = TRUE)"
    )
  }
  invisible(if (stands_in_for_httpuv()) library)
}

#' @param file The source package of rookery's httpuv: the path or the URL of a
#'   file such as `httpuv_1.6.17.1.tar.gz`. `NULL` installs the one that rookery
#'   itself contains, if it could not be installed together with rookery.
#' @return `install_compat()` returns the path of the library with rookery's
#'   httpuv, invisibly.
#' @examples
#' \dontrun{
#' install_compat("httpuv_1.6.17.1.tar.gz")
#' }
#' @rdname use_compat
#' @export
install_compat <- function(file = NULL) {
  if (is.null(file)) {
    if (!has_compat_source()) abort_no_compat()
    return(invisible(fill_compat_library(compat_source())))
  }
  check_string(file, "file")
  work <- tempfile("compat-")
  dir.create(work)
  on.exit(unlink(work, recursive = TRUE))
  if (grepl("^(https?|file)://", file)) {
    url <- file
    file <- file.path(work, "httpuv.tar.gz")
    utils::download.file(url, file, mode = "wb", quiet = TRUE)
  } else if (!file.exists(file)) {
    abort(paste0("`", file, "` does not exist."), "rookery_bad_argument", argument = "file")
  }
  utils::untar(file, exdir = work)
  source <- file.path(work, "httpuv")
  if (!is_compat(source)) {
    abort(
      paste0("`", file, "` is not the source package of rookery's httpuv."),
      "rookery_bad_argument",
      argument = "file"
    )
  }
  invisible(fill_compat_library(source))
}

#' @return `which_httpuv()` returns a list that describes the httpuv that this
#'   session has loaded or would load: `kind` (`"rookery"`, `"httpuv"` or
#'   `"none"`), `version`, `path` and `loaded`.
#' @rdname use_compat
#' @export
which_httpuv <- function() {
  is_loaded <- isNamespaceLoaded("httpuv")
  is_ours <- stands_in_for_httpuv()
  path <- if (is_ours) {
    asNamespace("httpuv")$own_path
  } else if (is_loaded) {
    getNamespaceInfo("httpuv", "path")
  } else {
    found <- find.package("httpuv", quiet = TRUE)
    if (length(found) > 0) found[[1]]
  }
  if (is.null(path)) {
    return(new_which("none", NA_character_, NA_character_, FALSE))
  }
  version <- utils::packageDescription("httpuv", lib.loc = dirname(path), fields = "Version")
  new_which(if (is_ours || (!is_loaded && is_compat(path))) "rookery" else "httpuv", version, path, is_loaded)
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

# Returns whether the httpuv in a folder is rookery's, according to its DESCRIPTION.
is_compat <- function(path) {
  description <- file.path(path, "DESCRIPTION")
  file.exists(description) &&
    identical(read.dcf(description, fields = "Config/rookery/compat")[[1]], "true")
}

# Loads rookery's httpuv from its folder, and returns its library. A package that is loaded later
# and imports httpuv gets this one, because R looks for a package only if its namespace is not
# loaded. No library path changes, so other packages are found, and installed, as before.
load_compat <- function() {
  library <- compat_library()
  # The name is a variable, because R CMD check wants a package that is named here to be declared
  # as a dependency. Rookery does not depend on the httpuv of the libraries.
  name <- "httpuv"
  if (!isNamespaceLoaded(name)) loadNamespace(name, lib.loc = library)
  if (!stands_in_for_httpuv()) abort_loaded()
  library
}

# Loads rookery's httpuv if it is installed and no httpuv is loaded. Returns whether it did. An app
# that needs no httpuv runs without it. For other apps, use_compat() reports what to do.
prefer_compat <- function() {
  if (isNamespaceLoaded("httpuv")) {
    return(FALSE)
  }
  tryCatch(is.character(load_compat()), rookery_no_compat = function(error) FALSE)
}

# Returns the library with rookery's httpuv, which was created when rookery was installed, or by
# install_compat(). Another httpuv in these folders is not accepted.
compat_library <- function() {
  inside <- file.path(getNamespaceInfo("rookery", "path"), "compat")
  if (is_compat(file.path(inside, "httpuv"))) {
    return(inside)
  }
  if (is_compat(file.path(compat_cache(), "httpuv"))) {
    return(compat_cache())
  }
  abort_no_compat()
}

abort_no_compat <- function() {
  needed <- "Shiny, plumber and other packages that use httpuv need rookery's package of that name, "
  abort(
    if (has_compat_source()) {
      paste0(
        needed, "which could not be installed together with rookery. rookery::install_compat() ",
        "installs it, or reports the reason."
      )
    } else {
      paste0(
        needed, "which this build of rookery does not contain. Get its source package, httpuv_",
        httpuv_version(), ".tar.gz, from the files of rookery's release ",
        utils::packageVersion("rookery"), ", and install it ",
        "with rookery::install_compat(\"httpuv_", httpuv_version(), ".tar.gz\")."
      )
    },
    "rookery_no_compat"
  )
}

# Returns the folder with the source of rookery's httpuv, which some builds of rookery do not have.
compat_source <- function() {
  file.path(getNamespaceInfo("rookery", "path"), "compat-src", "httpuv")
}

has_compat_source <- function() {
  dir.exists(compat_source())
}

# Installs rookery's httpuv from its source into rookery's own folder or, if that is not writable,
# into the user's cache. Returns the library.
fill_compat_library <- function(source) {
  home <- getNamespaceInfo("rookery", "path")
  library <- if (file.access(home, 2) == 0) file.path(home, "compat") else compat_cache()
  problem <- build_compat(source, library)
  if (!is.null(problem)) {
    abort(problem, "rookery_no_compat")
  }
  library
}

# Returns the library with rookery's httpuv for users who cannot write into rookery's own folder.
compat_cache <- function() {
  version <- as.character(utils::packageVersion("rookery"))
  file.path(
    tools::R_user_dir("rookery", "cache"), paste0("compat-", version, "-R-", getRversion())
  )
}

# Evaluates an expression that creates an app, such as shiny::shinyApp(). Packages that the
# expression loads get rookery's httpuv. If it loads no package that uses httpuv, the session is as
# before.
with_compat <- function(body) {
  if (prefer_compat()) {
    on.exit({
      is_used <- "package:httpuv" %in% search() || length(who_uses("httpuv")) > 0
      if (!is_used) unloadNamespace("httpuv")
    })
  }
  body
}

# Returns whether R is still evaluating .Rprofile.
is_starting <- function() {
  # R attaches methods before .Rprofile, and the other default packages after it.
  default <- setdiff(getOption("defaultPackages"), c("methods", "NULL"))
  length(default) > 0 && !any(paste0("package:", default) %in% search())
}

# Returns whether this is an R process of a command such as R CMD INSTALL, which evaluates .Rprofile
# as well. These commands set the variable to an empty value.
is_r_command <- function() {
  identical(Sys.getenv("R_DEFAULT_PACKAGES", NA), "") && is_starting()
}

abort_loaded <- function() {
  found <- which_httpuv()
  users <- who_uses("httpuv")
  by <- if (length(users) > 0) {
    paste0(" It is used by ", paste(users, collapse = ", "), ", loaded in this session.")
  } else {
    " It was loaded explicitly in this session (`library(httpuv)` or `httpuv::`)."
  }
  line <- if (is_starting() || isTRUE(.globals$is_app_process)) {
    "Put `rookery::use_compat(quiet = TRUE)` into .Rprofile before the line that loads httpuv."
  } else {
    paste0(
      "Start a new R session and call `rookery::use_compat()` before anything else",
      if (length(users) > 0) paste0(", such as `library(", users[[1]], ")`"),
      ".\nOr give rookery::serve() the path of the app, which then runs in a separate R process."
    )
  }
  abort(
    paste0(
      line, "\nhttpuv ", found$version, " from `", found$path,
      "` is loaded already, and a loaded package cannot be exchanged.", by
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
