# What a server's I/O thread knows of its static paths. R holds what was asked for, in an environment that the site's
# external pointer keeps; C is told the outcome, the whole of it at once, each time it changes.

site_new <- function(paths, options) {
  site <- .Call(ffi_site_new, new.env(parent = emptyenv()))
  site_update(site, paths, options)
  site
}

# If C refuses the paths with an error, everything is as it was.
site_update <- function(site, paths, options) {
  # In the order of the keys' bytes, whatever the locale.
  paths <- if (length(paths) == 0) list() else paths[order(names(paths), method = "radix")]
  is_confirmed <- .Call(ffi_site_set, site, as.character(names(paths)), lapply(paths, resolve_path, options))
  state <- .Call(ffi_site_state, site)
  state$paths <- paths
  state$options <- options
  if (!is_confirmed) {
    warn(
      paste(
        "The program in front of the R processes has not confirmed the change of static paths in time.",
        "Until it does, it may serve the static paths as they were before."
      ),
      "rookery_static_paths_unconfirmed"
    )
  }
}

# A path with all its options: those that are NULL are the server's, and if these are NULL too, what
# staticPathOptions() says when it is not asked.
resolve_path <- function(path, options) {
  option <- function(name, default) {
    value <- path$options[[name]]
    if (is.null(value)) value <- options[[name]]
    if (is.null(value)) default else value
  }
  list(
    path = path$path,
    exclude = isTRUE(path$options$exclude),
    indexhtml = option("indexhtml", TRUE),
    fallthrough = option("fallthrough", FALSE),
    html_charset = option("html_charset", "utf-8"),
    headers = option("headers", structure(character(0), names = character(0))),
    validation = option("validation", character(0))
  )
}

site_paths <- function(site) {
  .Call(ffi_site_state, site)$paths
}

# Adds `paths`, in the form of normalizeStaticPaths(); those of the same name are replaced.
site_set_paths <- function(site, paths) {
  state <- .Call(ffi_site_state, site)
  others <- state$paths[setdiff(names(state$paths), names(paths))]
  site_update(site, c(others, paths), state$options)
}

# `keys` as they are in names(site_paths()): no "/" is added, none is taken away, and unknown ones are passed over.
site_remove_paths <- function(site, keys) {
  state <- .Call(ffi_site_state, site)
  site_update(site, state$paths[!(names(state$paths) %in% enc2utf8(keys))], state$options)
}

site_options <- function(site) {
  options <- .Call(ffi_site_state, site)$options
  attr(options, "normalized") <- NULL
  options
}

# Sets those of `changes` that are not NULL; of two of the same name the first.
site_set_options <- function(site, changes) {
  state <- .Call(ffi_site_state, site)
  keys <- names(changes)
  if (length(changes) > 0 && (is.null(keys) || anyNA(keys) || any(keys == ""))) {
    abort_argument("All items must be named.", argument = "...")
  }
  unknown <- setdiff(keys, names(option_readers))
  if (length(unknown) > 0) {
    abort_argument("Unknown options: ", paste0(unknown, " , ", collapse = ""), argument = unknown[[1]])
  }
  changes <- changes[!duplicated(keys)]
  changes <- normalizeStaticPathOptions(changes[!vapply(changes, is.null, logical(1))])
  options <- state$options
  options[names(changes)] <- changes
  site_update(site, state$paths, options)
}
