# Reading streamed responses, and sources of chunks.

# Reads until the input contains `text`.
read_to <- function(client, text) {
  serve_until(function() {
    fill(client)
    find_raw(client$read, text) > 0
  })
}

# Reads a chunked response: status, headers and chunks.
chunked <- function(client) {
  read_to(client, "\r\n\r\n")
  end <- find_raw(client$read, "\r\n\r\n")
  head <- rawToChar(client$read[seq_len(end - 1)])
  client$read <- client$read[-seq_len(end + 3)]
  chunks <- list()
  repeat {
    read_to(client, "\r\n")
    line <- find_raw(client$read, "\r\n")
    size <- strtoi(rawToChar(client$read[seq_len(line - 1)]), 16)
    serve_until(function() {
      fill(client)
      length(client$read) >= line + 1 + size + 2
    })
    chunk <- client$read[line + 1 + seq_len(size)]
    client$read <- client$read[-seq_len(line + 1 + size + 2)]
    if (size == 0) break
    chunks[[length(chunks) + 1]] <- chunk
  }
  list(
    status = as.integer(substr(head, 10, 12)), head = head, chunks = chunks,
    text = text_of(unlist(chunks))
  )
}

# Reads until the connection ends, also by a reset.
rest_of <- function(client) {
  serve_until(function() {
    if (!socketSelect(list(client$socket), timeout = 0)) return(FALSE)
    bytes <- suppressWarnings(tryCatch(
      readBin(client$socket, "raw", 1e6), error = function(e) raw(0)
    ))
    client$read <- c(client$read, bytes)
    length(bytes) == 0
  })
  client$read
}

plain <- list("Content-Type" = "text/plain")

streamed <- function(body, headers = plain, status = 200L) {
  list(status = status, headers = headers, body = body)
}

# Returns a source of chunks.
chunks_of <- function(...) {
  chunks <- list(...)
  function() {
    if (length(chunks) == 0) return(NULL)
    chunk <- chunks[[1]]
    chunks <<- chunks[-1]
    chunk
  }
}

# Returns a generator like those of package coro: it returns the values and then a symbol, and
# `close = TRUE` ends it early.
generator <- function(values, on_exit = function() NULL) {
  at <- 0
  function(arg, close = FALSE) {
    if (close) {
      on_exit()
      return(quote(.__exhausted__.))
    }
    at <<- at + 1
    if (at > length(values)) quote(.__exhausted__.) else values[[at]]
  }
}

text_of <- function(bytes) {
  rawToChar(as.raw(bytes[bytes != 0]))
}
