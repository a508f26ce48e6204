# An app for `rookery serve --workers`: what the other contenders are asked to do, by the same handlers, which ask the command line.
commandArgs <- function(trailingOnly = FALSE) Sys.getenv(c("BENCH_PORT", "BENCH_WORKLOAD", "BENCH_STATIC"))
source(file.path(Sys.getenv("BENCH_CONTENDERS"), "handlers.R"), local = TRUE)
rook_app(rookery::staticPath)
