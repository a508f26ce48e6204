# nanonext's http_server(), from the library that ROOKERY_PEERS names. Its handlers get a list, not a Rook environment.
here <- dirname(sub("--file=", "", grep("--file=", commandArgs(FALSE), value = TRUE)))
source(file.path(here, "handlers.R"))
.libPaths(c(Sys.getenv("ROOKERY_PEERS"), .libPaths()))
library(nanonext)

text <- c("Content-Type" = "text/plain")
hello <- function(req) list(status = 200L, headers = text, body = "Hello, World!")
idle <- function(req) {
  gc()
  list(status = 200L, headers = text, body = "Hello, World!")
}
json <- function(req) list(status = 200L, headers = c("Content-Type" = "application/json"), body = json_10k)
post <- function(req) list(status = 200L, headers = text, body = as.character(length(req$body)))

handlers <- switch(workload,
  hello = ,
  headers = list(handler("/", hello)),
  json = list(handler("/", json)),
  post = list(handler("/", post, method = "POST")),
  static = list(handler_directory("/static", static_dir)),
  idle = list(handler("/", hello), handler("/gc", idle)),
  ws = list(handler("/gc", idle), handler_ws("/ws", function(ws, data) ws$send(data), textframes = TRUE)),
  stop("nanonext has no workload ", workload)
)
server <- http_server(sprintf("http://127.0.0.1:%d", port), handlers)
server$start()
repeat run_event_loop()
