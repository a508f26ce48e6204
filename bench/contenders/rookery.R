# Rookery, from the library that ROOKERY_LIB names; `before` it, from that of ROOKERY_BEFORE. `tls` and `h2` speak TLS, and `socket` is behind a balancer.
here <- dirname(sub("--file=", "", grep("--file=", commandArgs(FALSE), value = TRUE)))
source(file.path(here, "handlers.R"))
shape <- if (length(args) > 3L) args[[4]] else ""
.libPaths(c(Sys.getenv(if (shape == "before") "ROOKERY_BEFORE" else "ROOKERY_LIB"), .libPaths()))
if (shape == "alone") {
  # without later: service() waits on its own condition only
  utils::assignInNamespace("run_now", function(timeoutSecs = 0, all = TRUE, loop = NULL) FALSE, "later")
}
library(rookery)
source(file.path(here, "streams.R"))
app <- if (workload %in% names(stream_apps)) stream_apps[[workload]]() else rook_app(rookery::staticPath)
if (shape == "evalq") {
  # what stood between httpuv's loop and the app before its issue 244
  handler <- app$call
  app$call <- function(req) {
    tryCatch(evalq(handler(req), environment()), error = function(e) list(status = 500L, headers = list(), body = ""))
  }
}
if (nzchar(Sys.getenv("BENCH_ALLOC_FILE"))) {
  measured <- app$call
  app$call <- function(req) {
    if (req$PATH_INFO != "/allocations") return(measured(req))
    list(status = 200L, headers = list(), body = as.character(.Call(getFromNamespace("ffi_allocations", "rookery"))))
  }
}
# An earlier build, as `before`, may know no argument `tls`.
if (shape == "socket") {
  # Behind a balancer.
  server <- startPipeServer(Sys.getenv("BENCH_SOCKET"), 63L, app)
  while (TRUE) service()
}
tls <- if (shape %in% c("tls", "h2")) list(tls = tls_config(tls_file))
server <- do.call(startServer, c(list("127.0.0.1", port, app, quiet = FALSE), tls))
while (TRUE) service()
