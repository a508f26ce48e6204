# One server of the wake measurements: `Rscript server.R <port> with|without <foreign.so>`.
args <- commandArgs(TRUE)
if (args[[2]] == "without") {
  # The same server without `later`: its turn costs a function call and does nothing, and service() waits on its own
  # condition only.
  utils::assignInNamespace("run_now", function(timeoutSecs = 0, all = TRUE, loop = NULL) FALSE, "later")
}
library(rookery)
dll <- dyn.load(args[[3]])
server <- startServer("127.0.0.1", as.integer(args[[1]]), list(call = function(req) {
  if (req$PATH_INFO == "/start") .Call(dll$wake_start, 100L)
  body <- if (req$PATH_INFO == "/delays") paste(format(.Call(dll$wake_delays)), collapse = " ") else "Hello, World!"
  list(status = 200L, headers = list("Content-Type" = "text/plain"), body = body)
}))
while (TRUE) service()
