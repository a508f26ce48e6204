# A chat in plain R. Pages receive messages as server-sent events, and send them by POST. `rookery dev .`
# serves it while you write it, and starts it again when you save a file.

library(rookery)

# The open pages: the event stream of each.
pages <- new.env()
opened <- 0

# The last messages, which a page gets when it is opened.
messages <- character()

# Messages are in the memory of this R process. An app with several workers needs a database for them.
say <- function(text) {
  messages <<- utils::tail(c(messages, text), 50)
  for (page in as.list(pages)) page$send(text)
}

open_page <- function() {
  opened <<- opened + 1
  id <- as.character(opened)
  page <- sse_response(on_close = function(reason) rm(list = id, envir = pages))
  assign(id, page, envir = pages)
  for (text in messages) page$send(text)
  page
}

answer <- function(status) {
  list(status = status, headers = list("Content-Type" = "text/plain"), body = "")
}

list(
  staticPaths = list("/" = staticPath("www", fallthrough = TRUE)),
  call = function(req) {
    if (req$REQUEST_METHOD == "GET" && req$PATH_INFO == "/events") return(open_page())
    if (req$REQUEST_METHOD != "POST" || req$PATH_INFO != "/say") return(answer(404L))
    text <- trimws(paste(req$rook.input$read_lines(), collapse = " "))
    Encoding(text) <- "UTF-8"
    if (!validUTF8(text) || !nzchar(text) || nchar(text) > 1000) return(answer(400L))
    say(text)
    answer(204L)
  }
)
