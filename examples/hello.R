# The smallest server: one function that answers every request.
#
#   Rscript examples/hello.R        then open http://127.0.0.1:8000; PORT=9000 in front of it for another port
#   rookery serve examples/hello.R

library(rookery)

port <- as.integer(Sys.getenv("PORT", "8000"))
cat("http://127.0.0.1:", port, " (Ctrl-C stops)\n", sep = "")

runServer("127.0.0.1", port, function(req) {
  list(
    status = 200L,
    headers = list("Content-Type" = "text/plain; charset=utf-8"),
    body = paste0("Hello from R ", getRversion(), ". You asked for ", req$PATH_INFO, "\n")
  )
})
