# A client with plain sockets in the same R process. It writes, calls service(), and reads.

# Most tests expect httpuv's error texts; test-error-report.R has the other settings.
options(rookery.error_detail = "httpuv")

# Repeated errors are reported when R ends, when nothing reads stderr any more.
withr::defer(assign("error_reports", NULL, envir = rookery:::.globals), testthat::teardown_env())

# Calls service() until `done()` is true; raises an error after `seconds`.
serve_until <- function(done, seconds = 60) {
  until <- Sys.time() + seconds
  while (!isTRUE(done())) {
    if (Sys.time() > until) stop("not done after ", seconds, " s")
    service(5)
  }
  invisible()
}

local_server <- function(app, env = parent.frame()) {
  server <- startServer("127.0.0.1", 0, app)
  withr::defer(server$stop(), envir = env)
  server
}

# Starts a server with limits. Limits apply to the process, so no other server may run.
local_limited <- function(app, ..., env = parent.frame()) {
  stopAllServers()
  for (i in 1:20) service(NA)
  server <- startServer("127.0.0.1", 0, app, ...)
  withr::defer({
    server$stop()
    for (i in 1:20) service(NA)
    startServer("127.0.0.1", 0, app)$stop()
  }, envir = env)
  server
}

local_client <- function(server, env = parent.frame()) {
  socket <- socketConnection("127.0.0.1", server$getPort(), open = "r+b", blocking = FALSE)
  client <- new.env()
  client$socket <- socket
  client$read <- raw(0)
  client$is_open <- TRUE
  withr::defer(disconnect(client), envir = env)
  client
}

disconnect <- function(client) {
  if (client$is_open) {
    client$is_open <- FALSE
    close(client$socket)
  }
}

send <- function(client, ...) {
  for (bytes in list(...)) {
    writeBin(if (is.raw(bytes)) bytes else charToRaw(bytes), client$socket)
  }
}

# Reads what has arrived.
fill <- function(client) {
  if (socketSelect(list(client$socket), timeout = 0)) {
    client$read <- c(client$read, readBin(client$socket, "raw", 1e6))
  }
}

find_raw <- function(bytes, pattern) {
  at <- grepRaw(pattern, bytes, fixed = TRUE)
  if (length(at) == 0) 0 else at
}

# Calls service() until a complete response has arrived.
reply <- function(client, method = "GET") {
  end <- 0
  serve_until(function() {
    fill(client)
    end <<- find_raw(client$read, "\r\n\r\n")
    end > 0
  })
  lines <- strsplit(rawToChar(client$read[seq_len(end - 1)]), "\r\n")[[1]]
  status <- as.integer(substr(lines[[1]], 10, 12))
  fields <- regmatches(lines[-1], regexpr(":", lines[-1]), invert = TRUE)
  headers <- vapply(fields, function(field) trimws(field[[2]]), "")
  names(headers) <- tolower(vapply(fields, function(field) field[[1]], ""))
  client$read <- client$read[-seq_len(end + 3)]
  body <- raw(0)
  if (method != "HEAD" && !(status %in% c(101L, 204L, 304L))) {
    length <- as.integer(headers[["content-length"]])
    serve_until(function() {
      fill(client)
      length(client$read) >= length
    })
    body <- client$read[seq_len(length)]
    client$read <- client$read[-seq_len(length)]
  }
  list(status = status, headers = headers, body = body, text = rawToChar(body[body != 0]))
}

request <- function(path = "/", method = "GET", headers = character(0), body = "") {
  paste0(
    method, " ", path, " HTTP/1.1\r\nHost: test\r\n",
    paste0(headers, "\r\n", collapse = "")[length(headers) > 0],
    if (nzchar(body)) paste0("Content-Length: ", nchar(body, "bytes"), "\r\n"),
    "\r\n", body
  )
}

ask <- function(client, ...) {
  send(client, request(...))
  reply(client, ...elt(min(2, ...length())))
}

get <- function(client, path = "/", headers = character(0)) {
  send(client, request(path, headers = headers))
  reply(client)
}

post <- function(client, path = "/", body = "", headers = character(0)) {
  send(client, request(path, "POST", headers, body))
  reply(client)
}

ok <- function(body = "ok") {
  list(status = 200L, headers = list("Content-Type" = "text/plain"), body = body)
}

# Returns what the code writes to stderr, also from C.
stderr_of <- function(code) {
  path <- tempfile()
  file <- file(path, open = "w")
  sink(file, type = "message")
  on.exit({
    sink(type = "message")
    close(file)
    unlink(path)
  })
  force(code)
  flush(file)
  readLines(path)
}

# Returns R's cells in use, which include symbols, because R never frees symbols.
cells <- function() {
  for (i in 1:3) gc(full = TRUE)
  gc(full = TRUE)[["Ncells", "used"]]
}

# ---- WebSockets ----

upgrade <- function(client, path = "/", also = raw(0), headers = character(0)) {
  send(client, charToRaw(request(path, headers = c(
    "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", headers
  ))), also)
  reply(client)
}

# Returns a masked frame; the mask is zero.
frame <- function(payload, opcode = if (is.raw(payload)) 2 else 1) {
  force(opcode)
  if (!is.raw(payload)) payload <- charToRaw(payload)
  n <- length(payload)
  size <- if (n < 126) {
    as.raw(0x80 + n)
  } else if (n < 65536) {
    as.raw(c(0xFE, n %/% 256, n %% 256))
  } else {
    as.raw(c(0xFF, 0, 0, 0, 0, n %/% 2^24 %% 256, n %/% 2^16 %% 256, n %/% 256 %% 256, n %% 256))
  }
  c(as.raw(0x80 + opcode), size, raw(4), payload)
}

# Calls service() until a complete frame has arrived; returns its opcode and payload.
next_frame <- function(client) {
  header <- 2
  size <- NA
  serve_until(function() {
    fill(client)
    bytes <- as.integer(client$read[1:10])
    if (length(client$read) < 2) return(FALSE)
    header <<- c(2, 4, 10)[match(bytes[[2]], c(126, 127), nomatch = 0) + 1]
    if (length(client$read) < header) return(FALSE)
    size <<- switch(
      as.character(header),
      "2" = bytes[[2]],
      "4" = bytes[[3]] * 256 + bytes[[4]],
      "10" = sum(bytes[7:10] * 256^(3:0))
    )
    length(client$read) >= header + size
  })
  frame <- list(
    opcode = as.integer(client$read[[1]]) %% 16, payload = client$read[header + seq_len(size)]
  )
  client$read <- client$read[-seq_len(header + size)]
  frame
}

# Returns whether the response to a handshake has arrived, and removes it from the input.
has_switched <- function(client) {
  fill(client)
  end <- find_raw(client$read, "\r\n\r\n")
  if (end > 0) client$read <- client$read[-seq_len(end + 3)]
  end > 0
}
