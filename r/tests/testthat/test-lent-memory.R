# Memory that R lends to the server is released after it was sent, whatever else happens.

skip_if_not_installed("later")
loadNamespace("later")

# Returns the size of R's heap in MiB.
heap <- function() sum(gc()[, 2])

# Opens a WebSocket of the server, and a client that reads everything.
local_taken <- function(env = parent.frame()) {
  it <- new.env()
  it$server <- local_server(list(onWSOpen = function(ws) it$ws <- ws), env)
  it$client <- local_client(it$server, env)
  upgrade(it$client)
  serve_until(function() !is.null(it$ws))
  it$taken <- 0
  it$take <- function() {
    if (socketSelect(list(it$client$socket), timeout = 0)) {
      it$taken <- it$taken + length(readBin(it$client$socket, "raw", 1e6))
    }
  }
  it
}

test_that("messages sent from callbacks are released after sending, without an event", {
  it <- local_taken()
  ran <- FALSE
  later::later(function() ran <<- TRUE)
  serve_until(function() ran)
  before <- heap()
  sent <- 0
  most <- 0
  push <- function() {
    it$ws$send(raw(300 * 1024))
    sent <<- sent + 1
    if (sent < 300) later::later(push, 0.002)
  }
  later::later(push)
  serve_until(function() {
    it$take()
    if (sent %% 50 == 49) most <<- max(most, heap())
    it$taken > 300 * 300 * 1024
  })
  # Of 88 MiB that were sent.
  expect_lt(most - before, 30)
  serve_until(function() heap() - before < 3)
})

test_that("a callback that sends in a loop releases the sent messages", {
  it <- local_taken()
  before <- heap()
  for (i in 1:200) {
    it$ws$send(raw(300 * 1024))
    while (it$ws$bufferedAmount() > 1024^2) it$take()
  }
  # No event loop has run.
  expect_lt(heap() - before, 20)
  serve_until(function() {
    it$take()
    it$ws$bufferedAmount() == 0
  })
  serve_until(function() heap() - before < 3)
})

test_that("chunks of a stream are released after sending, without an event", {
  stream <- NULL
  server <- local_server(function(req) stream <<- stream_response())
  client <- local_client(server)
  send(client, request())
  serve_until(function() !is.null(stream))
  serve_until(function() !is.null(stream$body$handle))
  before <- heap()
  for (i in 1:200) {
    stream$write(raw(300 * 1024))
    while (stream$buffered() > 1024^2) fill(client)
    client$read <- raw(0)
  }
  expect_lt(heap() - before, 20)
  serve_until(function() {
    fill(client)
    client$read <- raw(0)
    stream$buffered() == 0
  })
  serve_until(function() heap() - before < 3)
  stream$close()
})

test_that("without package later, an idle service() releases sent memory", {
  it <- local_r(c(
    "heap <- function() sum(gc()[, 2])",
    "server <- rookery::startServer('127.0.0.1', 0, list(onWSOpen = function(ws) {",
    "  ws$onMessage(function(binary, message) {",
    "    for (i in 1:40) ws$send(raw(300 * 1024))",
    "    cat('sent\\n')",
    "  })",
    "}))",
    "cat('port', server$getPort(), '\\n')",
    "before <- heap()",
    "repeat {",
    "  rookery::service(50)",
    "  cat('heap', heap() - before, if (isNamespaceLoaded('later')) 'with' else 'without', '\\n')",
    "}"
  ))
  expect_true(wait_until(function() grepl("port [0-9]+", it$tell())))
  server <- list(getPort = function() as.integer(sub(".*port ([0-9]+).*", "\\1", it$tell())))
  client <- local_client(server)
  send(client, paste0(
    "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
  ))
  expect_true(wait_until(function() has_switched(client)))
  send(client, frame("go"))
  taken <- 0
  expect_true(wait_until(function() {
    fill(client)
    taken <<- taken + length(client$read)
    client$read <- raw(0)
    taken >= 40 * 300 * 1024
  }))
  # Of 12 MiB that were sent, including what R has loaded meanwhile.
  last_heap <- function() {
    lines <- strsplit(sub(".*\nsent\n", "", it$tell()), "\n")[[1]]
    utils::tail(grep("^heap [-0-9.e]+ without", lines, value = TRUE), 1)
  }
  expect_true(wait_until(function() isTRUE(as.numeric(strsplit(last_heap(), " ")[[1]][2]) < 8)))
})
