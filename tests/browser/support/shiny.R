# Serves one Shiny app on a free port, after a line of JSON that says which httpuv does it.
#
#   Rscript shiny.R <folder of the app>

app <- commandArgs(trailingOnly = TRUE)
stopifnot(length(app) == 1, dir.exists(app))

invisible(loadNamespace("httpuv"))
cat(jsonlite::toJSON(list(
  httpuv = as.character(packageVersion("httpuv")),
  from = dirname(getNamespaceInfo("httpuv", "path")),
  rookery = "rookery" %in% loadedNamespaces(),
  shiny = as.character(packageVersion("shiny"))
), auto_unbox = TRUE), "\n", sep = "")

# The port is Shiny's choice; it says which on stderr, as `Listening on http://127.0.0.1:<port>`.
shiny::runApp(app, host = "127.0.0.1", launch.browser = FALSE)
