# What the tests of deployment files ask for.
next_event <- function() {
  at <- 0
  function() {
    at <<- at + 1
    if (at == 1) return("data: first\n\n")
    if (at > 2) return(NULL)
    Sys.sleep(1)
    "data: second\n\n"
  }
}

list(
  call = function(req) {
    if (startsWith(req$PATH_INFO, "/routed/")) {
      req$ROUTE <- "/routed/<id>"
      return(list(status = 200L, headers = list(), body = "routed"))
    }
    text <- list(
      "/" = function() "hello",
      "/who" = function() paste(req$REMOTE_ADDR, req$HTTP_X_FORWARDED_FOR, req$rook.url_scheme, req$HTTP_HOST),
      "/size" = function() as.character(length(req$rook.input$read())),
      "/sleep" = function() {
        Sys.sleep(6)
        "slept"
      }
    )
    if (req$PATH_INFO == "/events") {
      return(list(status = 200L, headers = list("Content-Type" = "text/event-stream"), body = next_event()))
    }
    list(status = 200L, headers = list("Content-Type" = "text/plain"), body = text[[req$PATH_INFO]]())
  },
  onWSOpen = function(ws) ws$onMessage(function(binary, message) ws$send(paste("you said", message)))
)
