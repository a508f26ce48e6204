# Bodies in the server's memory that become R vectors without being copied.

post <- function(client, body, head = NULL) {
  send(
    client,
    paste0("POST / HTTP/1.1\r\nHost: a\r\n", head, "Content-Length: ", length(body), "\r\n\r\n"),
    body
  )
  reply(client)
}

some_bytes <- function(n) as.raw(seq_len(n) %% 251)

test_that("bodies around every size threshold arrive unchanged", {
  server <- local_server(function(req) {
    bytes <- req$rook.input$read()
    list(status = 200L, headers = list(), body = bytes)
  })
  client <- local_client(server)
  for (n in c(1, 65535, 65536, 65537, 200000, 1048575, 1048576, 1048577)) {
    expect_identical(post(client, some_bytes(n))$body, some_bytes(n), info = n)
  }
})

test_that("a body can be read again, partially and as a connection", {
  sent <- some_bytes(300000)
  seen <- NULL
  server <- local_server(function(req) {
    first <- req$rook.input$read()
    req$rook.input$rewind()
    changed <- first
    changed[1:10] <- as.raw(255)
    part <- req$rook.input$read(100)
    req$rook.input$rewind()
    again <- req$rook.input$read()
    connection <- readBin(req$.bodyData, "raw", 1e6)
    gc()
    seen <<- list(
      first = first, part = part, again = again, connection = connection, changed = changed
    )
    list(status = 200L, headers = list(), body = "")
  })
  expect_identical(post(local_client(server), sent)$status, 200L)
  expect_identical(seen$first, sent)
  expect_identical(seen$part, sent[1:100])
  expect_identical(seen$again, sent)
  expect_identical(seen$connection, sent)
  expect_identical(seen$changed[-(1:10)], sent[-(1:10)])
})

# Returns the number of blocks that R has after garbage collection, including callbacks of earlier
# requests.
blocks_in_use <- function() {
  for (i in 1:20) service(NA)
  for (i in 1:3) gc(full = TRUE)
  .Call(ffi_lent_blocks)
}

test_that("R may keep a body after its server was stopped, and returns its memory", {
  before <- blocks_in_use()
  kept <- list()
  local({
    server <- local_server(function(req) {
      kept[[length(kept) + 1]] <<- req$rook.input$read()
      list(status = 200L, headers = list(), body = "")
    })
    client <- local_client(server)
    for (n in 100000 + 1:20) post(client, some_bytes(n))
  })
  expect_identical(blocks_in_use(), before + 20L)
  for (i in 1:20) {
    expect_identical(kept[[i]], some_bytes(100000 + i))
  }
  expect_identical(unserialize(serialize(kept[[1]], NULL)), kept[[1]])
  kept[[1]][[1]] <- as.raw(0)
  expect_identical(kept[[1]][[2]], as.raw(2))
  kept <- NULL
  expect_lte(blocks_in_use(), before)
})

test_that("a body that is announced but not sent reserves no memory", {
  server <- local_server(function(req) list(status = 200L, headers = list(), body = ""))
  before <- .Call(ffi_live_bytes)
  here <- environment()
  clients <- lapply(1:50, function(i) local_client(server, here))
  for (client in clients) {
    send(client, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1048576\r\n\r\n", some_bytes(1000))
  }
  serve_until(local({
    until <- Sys.time() + 1
    function() Sys.time() > until
  }))
  expect_lt(.Call(ffi_live_bytes) - before, 50 * 100000)
})

test_that("after large bodies, a process keeps only what R has not collected", {
  skip_if_not_installed("processx")
  skip_if_not(file.exists("/proc/self/status"))
  # The last vector that the app has read stays in R's heap until R collects garbage.
  it <- local_r(c(
    "library(rookery)",
    "resident <- function() {",
    "  line <- grep('^VmRSS', readLines('/proc/self/status'), value = TRUE)",
    "  as.numeric(gsub('[^0-9]', '', line)) / 1024",
    "}",
    "server <- startServer('127.0.0.1', 0, function(req) {",
    "  text <- switch(req$PATH_INFO,",
    "    '/read' = length(req$rook.input$read()),",
    "    '/connection' = length(readBin(req$.bodyData, 'raw', 1e8)),",
    "    '/resident' = resident(),",
    "    '/collected' = { gc(); resident() }",
    "  )",
    "  list(status = 200L, headers = list(), body = format(text, scientific = FALSE))",
    "}, limits = server_limits(max_body_size = 1e8))",
    "cat('port', server$getPort(), '\\n')",
    "service(0)"
  ))
  expect_true(wait_until(function() grepl("port [0-9]+", it$tell())))
  url <- sub(".*port ([0-9]+).*", "http://127.0.0.1:\\1", it$tell())
  body <- raw(5e7)
  send_body <- function(path) {
    fetch(paste0(url, path), post = TRUE, postfieldsize = length(body), postfields = body)$text
  }
  for (path in c("/read", "/connection")) expect_identical(send_body(path), "50000000")
  before <- as.numeric(fetch(paste0(url, "/collected"))$text)
  for (path in c("/read", "/connection", "/read")) send_body(path)
  expect_lt(as.numeric(fetch(paste0(url, "/collected"))$text) - before, 20)
  # A body that the app does not read never becomes resident.
  for (i in 1:3) send_body("/resident")
  expect_lt(as.numeric(send_body("/resident")) - before, 20)
})
