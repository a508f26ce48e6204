# Serves one example for `make run`.
#
#   Rscript scripts/run-example.R <folder of a Shiny app> <port>

arguments <- commandArgs(trailingOnly = TRUE)
app <- arguments[[1]]
port <- as.integer(arguments[[2]])

invisible(loadNamespace("httpuv"))
if (!"rookery" %in% loadedNamespaces()) {
  stop("httpuv ", packageVersion("httpuv"), " from ", dirname(getNamespaceInfo("httpuv", "path")),
       " is not the one over rookery; run this by `make run`.", call. = FALSE)
}
cat("Rookery ", format(packageVersion("rookery")), " serves ", app, " at http://127.0.0.1:", port,
    " (Ctrl-C stops)\n", sep = "")
tryCatch(
  shiny::runApp(app, port = port, host = "127.0.0.1", launch.browser = FALSE, quiet = TRUE),
  interrupt = function(interrupt) cat("\nStopped.\n")
)
