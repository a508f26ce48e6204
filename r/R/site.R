# What a server's I/O thread knows of its static paths. R holds what was asked for, in an environment that the site's
# external pointer keeps; C is told the outcome, the whole of it at once, each time it changes.

site_new <- function(paths, options) {
  state <- new.env(parent = emptyenv())
  site <- .Call(ffi_site_new, state)
  state$paths <- sort_paths(paths)
  state$options <- options
  site_update(site, state)
  site
}

# In the order of the keys' bytes, whatever the locale.
sort_paths <- function(paths) {
  paths[order(names(paths), method = "radix")]
}

# All paths, each with all its options: what is NULL is inherited.
site_update <- function(site, state) {
  .Call(ffi_site_set, site, names(state$paths), lapply(state$paths, resolve_path, state$options))
}

resolve_path <- function(path, options) {
  own <- path$options
  # An option of the server that is NULL as well is what staticPathOptions() says when it is not asked.
  inherited <- function(name, default) {
    value <- own[[name]]
    if (is.null(value)) value <- options[[name]]
    if (is.null(value)) default else value
  }
  list(
    path = path$path,
    exclude = isTRUE(own$exclude),
    indexhtml = inherited("indexhtml", TRUE),
    fallthrough = inherited("fallthrough", FALSE),
    html_charset = inherited("html_charset", "utf-8"),
    headers = inherited("headers", character(0)),
    validation = inherited("validation", character(0))
  )
}

site_paths <- function(site) {
  .Call(ffi_site_state, site)$paths
}

# Adds `paths`, in the form of normalizeStaticPaths(); those of the same name are replaced.
site_set_paths <- function(site, paths) {
  state <- .Call(ffi_site_state, site)
  kept <- state$paths[setdiff(names(state$paths), names(paths))]
  state$paths <- sort_paths(c(kept, paths))
  site_update(site, state)
}

# `keys` as they are in names(site_paths()): no "/" is added, none is taken away, and unknown ones are passed over.
site_remove_paths <- function(site, keys) {
  state <- .Call(ffi_site_state, site)
  state$paths <- state$paths[!(names(state$paths) %in% enc2utf8(keys))]
  site_update(site, state)
}

site_options <- function(site) {
  options <- .Call(ffi_site_state, site)$options
  attr(options, "normalized") <- NULL
  options
}

# Sets those of `options` that are not NULL; of two of the same name the first.
site_set_options <- function(site, options) {
  state <- .Call(ffi_site_state, site)
  names <- names(options)
  if (length(options) > 0 && (is.null(names) || anyNA(names) || any(names == ""))) {
    stop("All items must be named.", call. = FALSE)
  }
  unknown <- setdiff(names, names(option_readers))
  if (length(unknown) > 0) {
    stop("Unknown options: ", paste0(unknown, " , ", collapse = ""), call. = FALSE)
  }
  options <- options[!duplicated(names)]
  options <- normalizeStaticPathOptions(options[!vapply(options, is.null, logical(1))])
  state$options[names(options)] <- options
  site_update(site, state)
}
