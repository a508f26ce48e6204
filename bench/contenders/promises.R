# Package promises by itself: makes the promised chunks of handlers.R one after the other and waits
# for each, as a stream of Rookery does, but sends a hundred at once. So the network costs next to
# nothing, and the difference from this is what a server adds to a promise.
here <- dirname(sub("--file=", "", grep("--file=", commandArgs(FALSE), value = TRUE)))
source(file.path(here, "handlers.R"))
source(file.path(here, "streams.R"))

# A write to a client that has disconnected is only a warning.
options(warn = 2)
hundred <- paste(rep(paste0("14\r\n", token, "\r\n"), 100L), collapse = "")

respond <- function(client, next_chunk) {
  writeLines(c("HTTP/1.1 200 OK", "Transfer-Encoding: chunked", ""), client, "\r\n")
  made <- 0L
  while (!is.null(chunk <- next_chunk())) {
    stopifnot(inherits(chunk, "promise"))
    # The callbacks of the promise, and those of the app that fulfil it.
    while (!later::loop_empty()) later::run_now(Inf)
    made <- made + 1L
    if (made %% 100L == 0L) writeChar(hundred, client, eos = NULL)
  }
  stopifnot(made == tokens)
  writeChar("0\r\n\r\n", client, eos = NULL)
}

app <- stream_apps[[workload]]()
listener <- serverSocket(port)
repeat {
  client <- socketAccept(listener, blocking = TRUE, open = "r+b", timeout = 86400L)
  # Until the client disconnects, perhaps within a response.
  tryCatch(
    while (length(line <- readLines(client, 1L)) == 1L) {
      while (nzchar(line)) line <- readLines(client, 1L)
      respond(client, app$call(NULL)$body)
    },
    error = function(e) NULL
  )
  close(client)
}
