# Server-sent events as a browser takes them: see events.test.mjs.
library(rookery)

reasons <- list()
visits <- list()
open <- list()

note <- function(name) {
  function(reason) reasons[[name]] <<- c(reasons[[name]], reason)
}

# How often a route has been asked for.
visit <- function(name) {
  visits[[name]] <<- (if (is.null(visits[[name]])) 0 else visits[[name]]) + 1
  visits[[name]]
}

page <- function(body) list(status = 200L, headers = list("Content-Type" = "text/html"), body = body)
text <- function(body, status = 200L) list(status = status, headers = list("Content-Type" = "text/plain"), body = body)

# Events from the one that the client has not seen on; the connection is cut behind the third.
feed <- function(req) {
  last <- suppressWarnings(as.integer(req$HTTP_LAST_EVENT_ID))
  at <- if (length(last) == 1 && !is.na(last)) last else 0
  e <- sse_response(on_close = note("feed"))
  e$send(paste("hello, you have seen", at), event = "hello", retry = 50)
  later::later(function() {
    for (i in at + 1:3) e$send(paste("event", i), id = i)
    later::later(function() if (at < 3) e$abort(), 0.2)
  }, 0.05)
  open$feed <<- e
  e
}

# What is hard to write: lines, all three of their ends, names, comments, and what is no event.
texts <- function(req) {
  e <- sse_response()
  e$write(sse_event(comment = "nobody sees this"))
  e$send("one\ntwo\r\nthree\rfour")
  e$send("")
  e$send(" a space in front, \u00e4\u00f6\u00fc \u6f22\u5b57 \U1F99C")
  e$send("data: no field", event = "named")
  e$send("last")
  open$texts <<- e
  e
}

call <- function(req) {
  switch(
    req$PATH_INFO,
    "/" = page("<!doctype html><title>events</title>"),
    "/feed" = feed(req),
    "/texts" = texts(req),
    "/once" = if (visit("once") == 1) sse_body(function() NULL) else text("", 204L),
    "/failing" = if (visit("failing") == 1) text("not now", 503L) else sse_body(function() NULL),
    "/visits" = text(paste0(req$QUERY_STRING, "=", visits[[substring(req$QUERY_STRING, 2)]])),
    "/left" = {
      open$left <<- sse_response(on_close = note("left"))
      open$left
    },
    "/tokens" = {
      n <- 0
      # As an async generator of ellmer's: each piece is promised.
      source <- function() {
        n <<- n + 1
        i <- n
        promises::promise(function(resolve, reject) later::later(function() resolve(if (i <= 500) paste0("t", i)), 0.001))
      }
      sse_body(source, event = "token")
    },
    "/reasons" = text(paste(reasons[[substring(req$QUERY_STRING, 2)]], collapse = " ")),
    "/restart" = {
      later::later(function() {
        port <- server$getPort()
        server$stop()
        later::later(function() server <<- startServer("127.0.0.1", port, call), 0.5)
      }, 0.05)
      text("soon")
    },
    text("no such page", 404L)
  )
}

server <- startServer("127.0.0.1", as.integer(Sys.getenv("PORT", "8000")), call)
cat("http://127.0.0.1:", server$getPort(), "\n", sep = "")
service(0)
