# The static paths of a server. R keeps the paths and options as they were set, in an environment
# that belongs to the external pointer of the site. After each change, R resolves them and passes
# all of them to C.

site_new <- function(paths, options) {
  site <- .Call(ffi_site_new, new.env(parent = emptyenv()))
  site_update(site, paths, options)
  site
}

# If C rejects the paths with an error, nothing changes.
site_update <- function(site, paths, options) {
  # Sorted by the bytes of the keys, independently of the locale.
  paths <- if (length(paths) == 0) list() else paths[order(names(paths), method = "radix")]
  is_confirmed <- .Call(
    ffi_site_set, site, as.character(names(paths)), lapply(paths, resolve_path, options)
  )
  state <- .Call(ffi_site_state, site)
  state$paths <- paths
  state$options <- options
  if (!is_confirmed) {
    warn(
      paste(
        "The supervisor of the R processes has not confirmed the change of static paths in time.",
        "Until it does, it may serve the static paths as they were before."
      ),
      "rookery_static_paths_unconfirmed"
    )
  }
}

# Returns a path with all options resolved: an option that is NULL is taken from the server, or else
# from the defaults of staticPathOptions().
resolve_path <- function(path, options) {
  option <- function(name, default) {
    value <- path$options[[name]]
    if (is.null(value)) value <- options[[name]]
    if (is.null(value)) default else value
  }
  list(
    path = path$path,
    site = isTRUE(path$is_site),
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

# Adds `paths`, in the form of normalizeStaticPaths(). They replace paths of the same name.
site_set_paths <- function(site, paths) {
  state <- .Call(ffi_site_state, site)
  others <- state$paths[setdiff(names(state$paths), names(paths))]
  site_update(site, c(others, paths), state$options)
}

# Removes paths. `keys` must be exactly as in names(site_paths()), and unknown keys are ignored.
site_remove_paths <- function(site, keys) {
  state <- .Call(ffi_site_state, site)
  site_update(site, state$paths[!(names(state$paths) %in% enc2utf8(keys))], state$options)
}

site_options <- function(site) {
  options <- .Call(ffi_site_state, site)$options
  attr(options, "normalized") <- NULL
  options
}

# Sets the options in `changes` that are not NULL. If a name occurs twice, the first one counts.
site_set_options <- function(site, changes) {
  state <- .Call(ffi_site_state, site)
  keys <- names(changes)
  if (length(changes) > 0 && (is.null(keys) || anyNA(keys) || any(keys == ""))) {
    abort_argument("All items must be named.", argument = "...")
  }
  unknown <- setdiff(keys, names(option_readers))
  if (length(unknown) > 0) {
    abort_argument(
      "Unknown options: ", paste0(unknown, " , ", collapse = ""), argument = unknown[[1]]
    )
  }
  changes <- changes[!duplicated(keys)]
  changes <- normalizeStaticPathOptions(changes[!vapply(changes, is.null, logical(1))])
  options <- state$options
  options[names(changes)] <- changes
  site_update(site, state$paths, options)
}
