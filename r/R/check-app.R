# What `rookery check` does in R (crates/cli/src/commands/check_app.rs): it parses the files that an
# app reads when it starts, looks for the packages that they need, and loads the app on request.

# Checks an app, and prints the mistakes. If `loads` is true, also evaluates `serve`, which runs the
# app, until the app could serve. The program interrupts this process if that takes too long.
# Returns the exit status of the process.
check_target <- function(found, loads, serve) {
  mistakes <- mistakes_of(found)
  cat(paste0(c(mistakes$notes, mistakes$errors), "\n", recycle0 = TRUE), sep = "", file = stderr())
  if (length(mistakes$errors) > 0) {
    return(1L)
  }
  if (!loads) {
    return(0L)
  }
  .globals$is_loading <- TRUE
  tryCatch(
    {
      withCallingHandlers(serve, interrupt = end_of_failure)
      abort(
        paste0("`", found$path, "` cannot be served: its code has ended before it could serve."),
        "rookery_bad_target"
      )
    },
    rookery_loaded = function(loaded) 0L
  )
}

# Returns whether this process only loads an app. It does not listen then.
is_loading <- function() {
  isTRUE(.globals$is_loading)
}

# Ends the loading of an app. Called when the app could serve. The condition is not an error, which
# the app's own code might handle.
end_loading <- function() {
  signalCondition(structure(
    class = c("rookery_loaded", "condition"), list(message = "The app is loaded.", call = NULL)
  ))
}

# Returns list(errors =, notes =): texts about the mistakes in the files of an app, and about what
# may be one. Code of the app is not evaluated.
mistakes_of <- function(found) {
  # Packages that import httpuv need rookery's.
  prefer_compat()
  errors <- character()
  note_error <- function(error) errors <<- c(errors, paste("rookery:", conditionMessage(error)))
  if (found$kind %in% framework_kinds) {
    tryCatch(check_installed(found, is_installed), error = note_error)
  }
  if (is_own_file(found)) found <- settings_app(found$path, server_yml_lines(found$path))
  uses <- list()
  queue <- files_of_app(found)
  seen <- character()
  while (length(queue) > 0 && length(seen) < place_files) {
    file <- normalizePath(queue[[1]], winslash = "/", mustWork = FALSE)
    queue <- queue[-1]
    if (file %in% seen) next
    seen <- c(seen, file)
    found_here <- tryCatch(uses_in(file), error = note_error)
    if (is.list(found_here)) {
      uses <- c(uses, found_here)
      queue <- c(queue, files_named(found_here, found$dir))
    }
  }
  packages <- missing_packages(uses, found$dir)
  if (length(packages$errors) > 0) {
    packages$errors <- c(packages$errors, paste("To install:", install_call(packages$names)))
  }
  list(errors = c(errors, packages$errors), notes = packages$notes)
}

# ---- the files of an app ----

# Returns the files of R code that an app reads when it starts, without those that its code names.
files_of_app <- function(found) {
  dir <- found$dir
  is_folder <- identical(found$path, dir)
  files <- switch(
    found$kind,
    shiny = if (is_folder) named_files(dir, c("global.R", "ui.R", "server.R")) else found$path,
    plumber = if (is_folder) {
      utils::head(named_files(dir, c("entrypoint.R", "plumber.R")), 1)
    } else {
      found$path
    },
    rmarkdown = ,
    quarto = c(named_files(dir, "global.R"), found$path),
    engine = engine_files(found),
    site = character(),
    found$path
  )
  c(files, if (found$kind == "shiny" && loads_helpers(dir)) helper_files(dir))
}

# Returns the paths of the files with some names, which may differ in case.
named_files <- function(dir, names) {
  entries <- list.files(dir)
  at <- match(ascii_lower(names), ascii_lower(entries))
  file.path(dir, entries[at[!is.na(at)]])
}

helper_files <- function(dir) {
  list.files(file.path(dir, "R"), "[.][Rr]$", full.names = TRUE)
}

# Returns whether Shiny reads the files in the folder `R`.
loads_helpers <- function(dir) {
  isTRUE(getOption("shiny.autoload.r", TRUE)) &&
    length(named_files(file.path(dir, "R"), "_disable_autoload.R")) == 0
}

# Returns the R files in the fields of plumber2's `_server.yml`. They may name folders.
engine_files <- function(found) {
  fields <- tryCatch(
    read_yaml(read_utf8_lines(found$path), found$path), error = function(error) NULL
  )
  named <- as.character(unlist(fields[c("constructor", "routes")]))
  paths <- file.path(found$dir, named[!is.na(named)])
  is_folder <- dir.exists(paths)
  c(
    grep("[.][Rr]$", paths[file.exists(paths) & !is_folder], value = TRUE),
    list.files(paths[is_folder], "[.][Rr]$", full.names = TRUE)
  )
}

# Returns the files that the code of the app reads by functions with constant arguments.
files_named <- function(uses, dir) {
  of <- Filter(function(use) use$name %in% c("source", "sys.source", "plumb", "pr"), uses)
  named <- lapply(of, function(use) if (use$level >= part_level) path_in(use$call))
  paths <- file.path(dir, as.character(unlist(named)))
  loads_package <- any(vapply(uses, function(use) use$name == "load_all", NA))
  c(
    paths[file.exists(paths) & grepl("[.][Rr]$", paths)],
    if (loads_package) helper_files(dir)
  )
}

# Returns the path in the argument `file` of a call: a string, or file.path() of strings.
path_in <- function(call) {
  file <- argument_of(call, "file")
  if (is.call(file) && identical(file[[1]], quote(file.path))) {
    parts <- as.list(file)[-1]
    file <- if (all(vapply(parts, is.character, NA))) do.call(file.path, parts)
  }
  if (is.character(file)) file
}

# Returns the argument with a name, or else the first one without a name, or NULL.
argument_of <- function(call, name) {
  arguments <- as.list(call)[-1]
  given <- names(arguments) %||% rep("", length(arguments))
  at <- c(which(given == name), which(given == ""))
  value <- if (length(at) > 0) arguments[[at[[1]]]]
  if (missing(value)) NULL else value
}

# ---- the calls that name packages and files ----

# The levels of a call: a statement that is always evaluated, a part of one, code in a function, and
# code that may not be evaluated.
statement_level <- 3L
part_level <- 2L
function_level <- 1L
optional_level <- 0L

# The functions whose calls are returned by uses_in().
uses_of_packages <- c("library", "require", "loadNamespace", "attachNamespace", "::", ":::")
asks_for_packages <- c("requireNamespace", "is_installed")
installs_packages <- c(
  "install.packages", "p_load", "pkg_install", "install_github", "install_version", "install_local",
  ".libPaths"
)
names_files <- c("source", "sys.source", "plumb", "pr", "load_all")

# Functions that evaluate their arguments as the statements around them.
passes_on <- c(
  "{", "(", "local", "invisible", "suppressWarnings", "suppressMessages",
  "suppressPackageStartupMessages"
)
# Functions that may not evaluate their arguments, or that handle errors in them.
is_optional_in <- c(
  "if", "for", "while", "repeat", "switch", "&&", "||", "%||%", "try", "tryCatch", "try_fetch"
)
# Functions that do not evaluate their arguments.
keeps_code <- c("quote", "bquote", "substitute", "expression", "~")

# Returns the calls in a file that concern packages or files: list(name =, call =, level =, place =,
# source =) for each. Raises an error if the file is not valid R.
uses_in <- function(file) {
  lines <- read_utf8_lines(file)
  code <- parse_lines(if (grepl("[.][Rr]$", file)) lines else evaluated_lines(lines), file)
  uses <- list()
  visit <- function(part, level, reference) {
    if (!is.call(part)) {
      return(invisible())
    }
    name <- function_name(part)
    if (name %in% keeps_code) {
      return(invisible())
    }
    if (name %in% c(uses_of_packages, asks_for_packages, installs_packages, names_files) ||
        is_of_renv(part)) {
      line <- line_of(part, reference)
      uses[[length(uses) + 1L]] <<- list(
        name = if (is_of_renv(part)) "install.packages" else name, call = part, level = level,
        place = paste0(basename(file), ":", line), source = lines[[line]]
      )
    }
    level <- level_within(name, level)
    references <- attr(part, "srcref")
    inner <- as.list(part)
    for (at in seq_along(inner)) {
      code <- inner[[at]]
      if (!missing(code)) visit(code, level, references[[at]] %||% reference)
    }
  }
  references <- attr(code, "srcref")
  for (at in seq_along(code)) visit(code[[at]], statement_level, references[[at]])
  uses
}

# Returns the name of the function in a call, without its package, or "".
function_name <- function(call) {
  head <- call[[1]]
  if (is.call(head) && length(head) == 3 && is_namespaced(head)) head <- head[[3]]
  if (is.symbol(head) || is.character(head)) as.character(head) else ""
}

is_namespaced <- function(call) {
  identical(call[[1]], quote(`::`)) || identical(call[[1]], quote(`:::`))
}

# Returns whether a call is one of a function of package renv, which may change the libraries.
is_of_renv <- function(call) {
  head <- call[[1]]
  is.call(head) && is_namespaced(head) && identical(head[[2]], quote(renv))
}

level_within <- function(name, level) {
  most <- if (name %in% passes_on) {
    statement_level
  } else if (name == "function") {
    function_level
  } else if (name %in% is_optional_in) {
    optional_level
  } else {
    part_level
  }
  min(level, most)
}

# Returns the lines of a document, of which only those in chunks of R code that is evaluated are not
# empty.
evaluated_lines <- function(lines) {
  if (any(grepl("^#\\|\\s*(eval|engine):", lines))) {
    return(character())
  }
  chunk_lines(sub("\\{[rR]\\b(.*\\b(eval|engine)\\s*=)", "{other\\1", lines))
}

# ---- packages ----

# Returns list(errors =, notes =, names =) about packages that are not installed: texts, and the
# names of those that keep the app from starting.
missing_packages <- function(uses, dir) {
  of <- function(names) Filter(function(use) use$name %in% names, uses)
  optional <- vapply(of(asks_for_packages), function(use) package_in(use$call) %||% "", "")
  # The code of the app changes what is installed.
  is_fixed <- !any(vapply(of(installs_packages), changes_libraries, NA))
  description <- description_of(dir)
  needed <- c(
    Filter(function(use) is_fixed && is_needed(use), of(uses_of_packages)), description$uses
  )
  seen <- description$package
  texts <- list(errors = character(), notes = character(), names = character())
  for (use in needed) {
    package <- use$package %||% package_in(use$call)
    if (is.null(package) || package %in% seen || is_installed(package)) next
    seen <- c(seen, package)
    hint <- did_you_mean(package, unique(list.files(.libPaths())))
    texts$errors <- c(
      texts$errors, paste0("  ", use$place, ": ", use$source),
      paste0("Error (", use$place, "): package `", package, "` is not installed.", hint)
    )
    texts$names <- c(texts$names, package)
  }
  for (use in Filter(function(use) use$level > optional_level, of(uses_of_packages))) {
    package <- package_in(use$call)
    if (is.null(package) || package %in% c(seen, optional) || is_installed(package)) next
    seen <- c(seen, package)
    texts$notes <- c(
      texts$notes, paste0("Note (", use$place, "): package `", package, "` is not installed.")
    )
  }
  texts
}

# Returns whether the app cannot start without the package of a call. The value of require() may be
# that the package is missing.
is_needed <- function(use) {
  use$level >= if (use$name == "require") statement_level else part_level
}

changes_libraries <- function(use) {
  use$name != ".libPaths" || length(use$call) > 1
}

# Returns the name of the package in a call, or NULL if the call does not name one, or names another
# library.
package_in <- function(call) {
  if (is_namespaced(call)) {
    return(as.character(call[[2]]))
  }
  given <- names(call) %||% character()
  if (any(c("lib.loc", "help", "logical.return") %in% given)) {
    return(NULL)
  }
  name <- function_name(call)
  package <- argument_of(call, if (name == "is_installed") "pkg" else "package")
  is_name <- is.symbol(package) && name %in% c("library", "require") && !"character.only" %in% given
  if (is_name || (is.character(package) && length(package) == 1)) as.character(package)
}

is_installed <- function(package) {
  nzchar(system.file(package = package))
}

# Returns list(package =, uses =): the name of the package that an app is, and the packages that its
# DESCRIPTION imports, in the form of uses_in().
description_of <- function(dir) {
  path <- file.path(dir, "DESCRIPTION")
  fields <- tryCatch(
    read.dcf(path, fields = c("Package", "Depends", "Imports"))[1, ],
    error = function(error) NULL, warning = function(warning) NULL
  )
  if (is.null(fields)) {
    return(NULL)
  }
  named <- unlist(strsplit(fields[c("Depends", "Imports")], ",", fixed = TRUE))
  named <- sub("[[:space:](].*$", "", trimws(named))
  lines <- read_utf8_lines(path)
  uses <- lapply(setdiff(named[!is.na(named)], c("R", "")), function(package) {
    name <- gsub(".", "[.]", package, fixed = TRUE)
    pattern <- paste0("(^|[,:[:space:]])", name, "($|[,([:space:]])")
    line <- c(grep(pattern, lines), 1L)[[1]]
    list(package = package, place = paste0("DESCRIPTION:", line), source = lines[[line]])
  })
  list(package = fields[["Package"]], uses = uses)
}

# Returns the call that installs packages, as text.
install_call <- function(packages) {
  run <- if (nzchar(Sys.getenv("RENV_PROJECT"))) "renv::install" else "install.packages"
  quoted <- paste0("\"", packages, "\"", collapse = ", ")
  paste0(run, "(", if (length(packages) > 1) paste0("c(", quoted, ")") else quoted, ")")
}
