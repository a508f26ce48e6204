# The app of tests/fairness: a small and a large response of R, a slow one, a promise, a static file, and
# WebSockets that echo.
number <- function(req) as.numeric(sub("^[?]", "", req$QUERY_STRING))
answer <- function(body) list(status = 200L, headers = list("Content-Type" = "text/plain"), body = body)
kept <- new.env()
large <- function(size) {
  name <- as.character(size)
  if (is.null(kept[[name]])) assign(name, rep_len(as.raw(65), size), envir = kept)
  kept[[name]]
}
# A text that takes long to compress.
text <- function(size) {
  if (is.null(kept$text)) kept$text <- charToRaw(paste(sample(letters, size, TRUE), collapse = ""))
  kept$text
}
list(
  staticPaths = list("/files" = "www"),
  call = function(req) switch(req$PATH_INFO,
    "/large" = answer(large(number(req))),
    "/text" = answer(text(number(req))),
    # Whether a header has the name and value that the query says.
    "/header" = {
      name <- substring(req$QUERY_STRING, 2)
      variable <- paste0("HTTP_", toupper(gsub("-", "_", name)))
      is_right <- identical(req[[variable]], name) && identical(unname(req$HEADERS[tolower(name)]), name)
      c(list(status = if (is_right) 200L else 400L), answer("")[-1])
    },
    "/sleep" = { Sys.sleep(number(req)); answer(paste("slept on", Sys.getpid())) },
    "/promise" = promises::promise(function(resolve, reject) later::later(function() resolve(answer("kept")), number(req))),
    answer(paste0("small ", Sys.getpid()))
  ),
  onWSOpen = function(ws) ws$onMessage(function(binary, message) {
    if (!binary && startsWith(message, "sleep ")) Sys.sleep(as.numeric(sub("sleep ", "", message)))
    else if (!binary || length(message) < 1e6) ws$send(message)
  })
)
