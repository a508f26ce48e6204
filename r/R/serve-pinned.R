# What a worker serves is what it has read when it started.
#
# Shiny reads `app.R`, `ui.R` and `server.R` anew whenever they have changed, so a broken edit would
# reach all workers that serve at once, and a reload that fails could not leave them as they were. A
# worker therefore keeps what they gave. A copy of the folder was the other way: what an app writes
# beside its code, such as a database, would go to the copy.

# A path of a Shiny app that is kept as it is read now; in a process that is no worker, and where
# the app's developer asks Shiny to reload, the path as it is. It stays a string, because runApp()
# looks for a DESCRIPTION beside a path.
pin_shiny <- function(app) {
  if (!is.character(app) || !is_worker() || isTRUE(getOption("shiny.autoreload"))) {
    return(app)
  }
  registerS3method("as.shiny.appobj", "rookery_pinned", pinned_app, envir = asNamespace("shiny"))
  structure(app, class = c("rookery_pinned", "character"))
}

pinned_app <- function(x) {
  app <- shiny::as.shiny.appobj(unclass(x))
  start <- app$onStart
  # By then `global.R` and the folder `R` have been read, which the others need.
  app$onStart <- function() {
    if (is.function(start)) start()
    if (!pin_sources(start)) {
      cat(
        "rookery: this version of shiny reads the app's files anew when they change, also in workers that serve: reload right after an edit\n",
        file = stderr()
      )
    }
  }
  app
}

# The functions of shinyAppDir() that read a file when it has changed: of `app.R`, and of `ui.R` and
# `server.R`.
shiny_sources <- c("appObj", "uiHandlerSource", "serverSource")

# Replaces these functions by what they give now; whether there were any. `start` is the function
# beside which they are defined.
pin_sources <- function(start) {
  beside <- if (is.function(start)) environment(start) else emptyenv()
  names <- Filter(function(name) is.function(get0(name, beside, inherits = FALSE)), shiny_sources)
  for (name in names) {
    value <- get(name, beside)()
    assign(name, constant(value), envir = beside)
  }
  length(names) > 0
}

constant <- function(value) {
  force(value)
  function(...) value
}
