# Rookery, from the library in ROOKERY_LIB; `before` uses the library in ROOKERY_BEFORE. `tls` and
# `h2` serve TLS, and `socket` listens for a balancer. `observed` and `off` are serve() with and
# without an access log and an admin listener. The file of the log and the address of the listener
# are the last arguments.
here <- dirname(sub("--file=", "", grep("--file=", commandArgs(FALSE), value = TRUE)))
source(file.path(here, "handlers.R"))
shape <- if (length(args) > 3L) args[[4]] else ""
.libPaths(c(Sys.getenv(if (shape == "before") "ROOKERY_BEFORE" else "ROOKERY_LIB"), .libPaths()))
if (shape == "alone") {
  # without later, service() waits only on its own condition
  utils::assignInNamespace("run_now", function(timeoutSecs = 0, all = TRUE, loop = NULL) FALSE,
    "later")
}
library(rookery)
source(file.path(here, "streams.R"))
is_streamed <- workload %in% names(stream_apps)
app <- if (is_streamed) stream_apps[[workload]]() else rook_app(rookery::staticPath)
if (shape == "evalq") {
  # the wrapper between httpuv's loop and the app before its issue 244
  handler <- app$call
  app$call <- function(req) {
    tryCatch(evalq(handler(req), environment()),
      error = function(e) list(status = 500L, headers = list(), body = ""))
  }
}
if (nzchar(Sys.getenv("BENCH_ALLOC_FILE"))) {
  measured <- app$call
  app$call <- function(req) {
    if (req$PATH_INFO != "/allocations") return(measured(req))
    list(status = 200L, headers = list(),
      body = as.character(.Call(getFromNamespace("ffi_allocations", "rookery"))))
  }
}
# An earlier build, as in `before`, may not have the argument `tls`.
if (shape == "socket") {
  # Behind a balancer.
  server <- startPipeServer(Sys.getenv("BENCH_SOCKET"), 63L, app)
  while (TRUE) service()
}
if (shape == "observed") {
  serve(app, port = port, log = args[[5]], log_format = "json", admin = args[[6]])
} else if (shape == "off") {
  serve(app, port = port, log = FALSE)
}
tls <- if (shape %in% c("tls", "h2")) list(tls = tls_config(tls_file))
server <- do.call(startServer, c(list("127.0.0.1", port, app, quiet = FALSE), tls))
while (TRUE) service()
