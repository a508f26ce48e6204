# Pins the version of a Shiny app that a worker has read at its start.
#
# Shiny reads `app.R`, `ui.R` and `server.R` again whenever they change. Without pinning, a broken
# edit would reach all running workers at once, and a failed reload could not leave them unchanged.
# A worker therefore keeps the values that these files returned. The alternative was to copy the
# folder, but files that an app writes beside its code, such as a database, would then be written to
# the copy.

# Returns the path of a Shiny app, marked so that the version that is read now is kept. If the
# process is not a worker and does not load the app as one, or if Shiny's own reloading is on, the
# path is returned unchanged. The result is a string, because runApp() looks for a DESCRIPTION beside
# a path.
pin_shiny <- function(app) {
  is_pinned <- (is_worker() || is_loading()) && !isTRUE(getOption("shiny.autoreload"))
  if (!is.character(app) || !is_pinned) {
    return(app)
  }
  registerS3method("as.shiny.appobj", "rookery_pinned", pinned_app, envir = asNamespace("shiny"))
  structure(app, class = c("rookery_pinned", "character"))
}

pinned_app <- function(x) {
  app <- shiny::as.shiny.appobj(unclass(x))
  start <- app$onStart
  # At this point Shiny has read `global.R` and the folder `R`, which `ui.R` and `server.R` need.
  app$onStart <- function() {
    if (is_loading()) drop_on_start(start)
    if (is.function(start)) start()
    if (!pin_sources(start)) {
      cat(
        "rookery: with this version of shiny, running workers read the app's files again when the ",
        "files change: reload right after an edit\n",
        sep = "", file = stderr()
      )
    }
  }
  app
}

# Keeps `start`, the function `onStart` of an app in a folder, from calling the one that `app.R` has
# given to shinyApp().
drop_on_start <- function(start) {
  beside <- if (is.function(start)) environment(start) else emptyenv()
  source <- get0("appObj", beside, mode = "function", inherits = FALSE)
  if (!is.null(source)) assign("appObj", constant(without_on_start(source())), envir = beside)
}

# Returns an app without its own function `onStart`. That of an app in a folder is Shiny's, and reads
# `global.R`.
without_on_start <- function(app) {
  if (inherits(app, "shiny.appobj") && !is_shinys(app$onStart)) app$onStart <- NULL
  app
}

# The names of the functions within shinyAppDir() that read a changed file again: one for `app.R`,
# and two for `ui.R` and `server.R`.
shiny_sources <- c("appObj", "uiHandlerSource", "serverSource")

# Replaces these functions by ones that always return the present value. Returns whether any of them
# was found and all apps within were pinned as well. `start` is a function from the environment in
# which they are defined.
pin_sources <- function(start) {
  beside <- if (is.function(start)) environment(start) else emptyenv()
  names <- Filter(function(name) is.function(get0(name, beside, inherits = FALSE)), shiny_sources)
  is_pinned <- length(names) > 0
  for (name in names) {
    value <- get(name, beside)()
    assign(name, constant(value), envir = beside)
    is_pinned <- pin_inner(value) && is_pinned
  }
  is_pinned
}

# Pins the app that an `app.R` returned. An app of shinyAppDir() or shinyAppFile() reads files of
# its own, and one of shinyApp() reads none. Returns FALSE if it is unknown whether the app reads
# files.
pin_inner <- function(app) {
  if (!inherits(app, "shiny.appobj")) {
    return(TRUE)
  }
  source <- app$serverFuncSource
  if (!is_shinys(source)) {
    return(FALSE)
  }
  has_files <- any(shiny_sources %in% ls(environment(source), all.names = TRUE))
  !has_files || pin_sources(source)
}

# Returns whether a function was made by package shiny and not by an app that wraps such a function.
is_shinys <- function(func) {
  is.function(func) && identical(topenv(environment(func)), asNamespace("shiny"))
}

constant <- function(value) {
  force(value)
  function(...) value
}
