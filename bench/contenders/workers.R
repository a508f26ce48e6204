# An app for `rookery serve --workers`, with the same handlers as the other contenders. The handlers
# read the workload from the command line.
commandArgs <- function(trailingOnly = FALSE) Sys.getenv(c("BENCH_PORT", "BENCH_WORKLOAD",
  "BENCH_STATIC"))
source(file.path(Sys.getenv("BENCH_CONTENDERS"), "handlers.R"), local = TRUE)
rook_app(rookery::staticPath)
