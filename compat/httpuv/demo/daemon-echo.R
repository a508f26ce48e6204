# Serves while R is idle at its prompt. Stop the server with stopServer(server).
library(httpuv)

app <- list(
  call = function(req) {
    list(status = 200L, headers = list("Content-Type" = "text/plain"), body = paste0(req$PATH_INFO, "\n"))
  },
  onWSOpen = function(ws) {
    ws$onMessage(function(binary, message) ws$send(message))
  }
)

server <- startServer("127.0.0.1", 9454, app)
message("http://127.0.0.1:9454/ and ws://127.0.0.1:9454/, until stopServer(server)")
