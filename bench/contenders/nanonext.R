# nanonext's http_server(), from the library in ROOKERY_CONTENDERS; `tls` serves it over TLS. Its
# handlers get a list instead of a Rook environment.
here <- dirname(sub("--file=", "", grep("--file=", commandArgs(FALSE), value = TRUE)))
source(file.path(here, "handlers.R"))
.libPaths(c(Sys.getenv("ROOKERY_CONTENDERS"), .libPaths()))
library(nanonext)

text <- c("Content-Type" = "text/plain")
hello <- function(req) list(status = 200L, headers = text, body = "Hello, World!")
idle <- function(req) {
  gc()
  list(status = 200L, headers = text, body = "Hello, World!")
}
json <- function(req) list(status = 200L, headers = c("Content-Type" = "application/json"),
  body = json_10k)
post <- function(req) list(status = 200L, headers = text, body = as.character(length(req$body)))

push_tokens <- function(conn, req) {
  conn$set_header("Content-Type", "text/plain")
  for (i in seq_len(tokens)) conn$send(token)
  conn$close()
}
# Sends events to all clients, ten times a second.
conns <- list()
opened <- function(conn, req) {
  conn$set_header("Content-Type", "text/event-stream")
  conn$send(format_sse(data = "hello"))
  conns[[as.character(conn$id)]] <<- conn
}
closed <- function(conn) conns[[as.character(conn$id)]] <<- NULL
if (workload == "events") {
  every_tenth(function() {
    event <- format_sse(data = event_data)
    for (conn in conns) conn$send(event)
  })
}

handlers <- switch(workload,
  hello = ,
  headers = list(handler("/", hello)),
  json = list(handler("/", json)),
  post = list(handler("/", post, method = "POST")),
  static = list(handler_directory("/static", static_dir)),
  idle = list(handler("/", hello), handler("/gc", idle)),
  tokens = ,
  `tokens-pushed` = list(handler_stream("/", push_tokens)),
  events = list(handler_stream("/", opened, closed)),
  `idle-events` = list(handler("/gc", idle), handler_stream("/events", opened, closed)),
  ws = list(handler("/gc", idle), handler_ws("/ws", function(ws, data) ws$send(data),
    textframes = TRUE)),
  stop("nanonext has no workload ", workload)
)
tls <- if (length(args) > 3L) tls_config(server = tls_file)
server <- http_server(sprintf("%s://127.0.0.1:%d", if (is.null(tls)) "http" else "https", port),
  handlers, tls)
server$start()
repeat run_event_loop()
