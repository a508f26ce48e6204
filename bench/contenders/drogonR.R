# drogonR, from the library in ROOKERY_CONTENDERS, with one I/O thread. It has its own interface
# instead of Rook's.
here <- dirname(sub("--file=", "", grep("--file=", commandArgs(FALSE), value = TRUE)))
source(file.path(here, "handlers.R"))
.libPaths(c(Sys.getenv("ROOKERY_CONTENDERS"), .libPaths()))
library(drogonR)

text <- list("Content-Type" = "text/plain")
hello <- function(req) list(status = 200L, headers = text, body = "Hello, World!")
idle <- function(req) {
  gc()
  list(status = 200L, headers = text, body = "Hello, World!")
}
json <- function(req) list(status = 200L, headers = list("Content-Type" = "application/json"),
  body = json_10k)
post <- function(req) list(status = 200L, headers = text,
  body = as.character(nchar(req$body, "bytes")))

app <- dr_app()
app <- switch(workload,
  hello = ,
  headers = dr_get(app, "/", hello),
  json = dr_get(app, "/", json),
  post = dr_post(app, "/", post),
  static = dr_static(app, "/static", static_dir),
  idle = dr_get(dr_get(app, "/", hello), "/gc", idle),
  ws = dr_ws(dr_get(app, "/gc", idle), "/ws",
    on_message = function(conn, msg, binary) dr_ws_send(conn, msg)),
  stop("drogonR has no workload ", workload)
)
dr_serve(app, port = port, threads = 1L)
repeat later::run_now(timeoutSecs = 3600)
