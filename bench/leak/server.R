# The server of run.py: every other body is read, every tenth as a connection; WebSockets echo.
.libPaths(c(Sys.getenv("ROOKERY_LIB"), .libPaths()))
library(rookery)
some <- 0
server <- startServer("127.0.0.1", 0L, list(
  call = function(req) {
    some <<- some + 1
    if (some %% 2 == 0) req$rook.input$read()
    if (some %% 10 == 0) readBin(req$.bodyData, "raw", 1L)
    list(status = 200L, headers = list("Content-Type" = "text/plain"), body = "Hello, World!")
  },
  onWSOpen = function(ws) {
    ws$onMessage(function(binary, message) ws$send(message))
    ws$onClose(function() NULL)
  }
))
cat(server$getPort(), "\n", sep = "")
while (TRUE) service()
