# Unloading the package and loading it again, in a separate process.

skip_if_not_installed("processx")

reload_code <- c(
  "library(rookery)",
  "connect <- function(server) socketConnection('127.0.0.1', server$getPort(), open = 'r+b', blocking = FALSE)",
  "exchange <- function(server, bytes, done, turn = function() service(20)) {",
  "  socket <- connect(server)",
  "  on.exit(close(socket))",
  "  writeBin(bytes, socket)",
  "  got <- raw()",
  "  until <- Sys.time() + 60",
  "  while (!grepl(done, rawToChar(got[got != 0]), useBytes = TRUE)) {",
  "    if (Sys.time() > until) stop('no answer but: ', rawToChar(got[got != 0]))",
  "    turn()",
  "    got <- c(got, readBin(socket, 'raw', 1e5))",
  "  }",
  "}",
  # Uses everything that C keeps of R: bodies, promises, WebSockets, errors, static paths, R at its
  # prompt.
  "use <- function() {",
  "  app <- list(",
  "    call = function(req) {",
  "      if (req$PATH_INFO == '/error') stop('an error')",
  "      body <- req$rook.input$read()",
  "      promises::promise_resolve(list(status = 200L, headers = list(), body = body))",
  "    },",
  "    onWSOpen = function(ws) {",
  "      ws$onMessage(function(binary, message) ws$send(toupper(message)))",
  "      ws$onClose(function() cat('closed\\n'))",
  "      kept <<- c(kept, ws)",
  "    },",
  "    staticPaths = list('/static' = R.home('doc'))",
  "  )",
  "  server <- startServer('127.0.0.1', 0, app)",
  "  text <- function(...) charToRaw(paste0(..., collapse = ''))",
  "  exchange(server, text('POST / HTTP/1.1\\r\\nHost: a\\r\\nContent-Length: 8\\r\\n\\r\\nthe body'), 'the body')",
  "  exchange(server, text('GET /error HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n'), '500 Internal Server Error')",
  "  exchange(server, text('GET /static/COPYING HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n'), 'GNU GENERAL PUBLIC LICENSE')",
  "  exchange(server, text('GET /later HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n'), '200 OK', function() later::run_now(0.02))",
  "  handshake <- text(",
  "    'GET /ws HTTP/1.1\\r\\nHost: a\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n',",
  "    'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\nSec-WebSocket-Version: 13\\r\\n\\r\\n'",
  "  )",
  "  frame <- as.raw(c(0x81, 0x82, 0, 0, 0, 0, 0x68, 0x69))",
  "  exchange(server, c(handshake, frame), 'HI')",
  "  server",
  "}",
  "kept <- list()"
)

test_that("the package serves after it was unloaded and loaded again", {
  it <- local_r(c(
    reload_code,
    "use()$stop()",
    "for (i in 1:3) {",
    "  unloadNamespace('rookery')",
    "  library(rookery)",
    "  use()$stop()",
    "}",
    "cat('all done\\n')"
  ))
  expect_equal(exit_of(it), 0, info = it$tell())
  expect_match(it$tell(), "all done")
})

test_that("objects from before unloading are harmless, and report that they have ended", {
  it <- local_r(c(
    reload_code,
    "server <- use()",
    "socket <- connect(server)",
    "pending <- NULL",
    "other <- startServer('127.0.0.1', 0, function(req) promises::promise(function(resolve, reject) pending <<- resolve))",
    "asked <- connect(other)",
    "writeBin(charToRaw('GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n'), asked)",
    "while (is.null(pending)) service(20)",
    "unloadNamespace('rookery')",
    # The closing callbacks of the WebSockets have run.
    "ws <- kept[[1]]",
    "cat('handle', is.null(ws$handle), 'running', server$isRunning(), other$isRunning(), '\\n')",
    "stopifnot(is.null(server$stop()), isFALSE(ws$send('x')), is.null(server$getStaticPaths()))",
    "pending(list(status = 200L, headers = list(), body = 'late'))",
    "for (i in 1:20) later::run_now(0.01)",
    "library(rookery)",
    "use()$stop()",
    "pending <- NULL; kept <- NULL; rm(server, other, ws); gc()",
    "use()$stop()",
    "cat('all done\\n')"
  ))
  expect_equal(exit_of(it), 0, info = it$tell())
  expect_match(it$tell(), "closed\nhandle TRUE running FALSE FALSE")
  expect_match(it$tell(), "all done")
})

test_that("a hook that another package has put before ours stays in order", {
  skip_if_not_installed("tcltk")
  skip_if_not(capabilities("tcltk"))
  it <- local_r(c(
    reload_code,
    "use()$stop()",
    "unloadNamespace('rookery')",
    # Package tcltk calls the hook of R_PolledEvents that it finds, which is ours if ours remains.
    "library(rookery)",
    "use()$stop()",
    "suppressWarnings(loadNamespace('tcltk'))",
    "unloadNamespace('rookery')",
    "for (i in 1:2) {",
    "  library(rookery)",
    "  use()$stop()",
    "  unloadNamespace('rookery')",
    "}",
    # R calls the hook while it sleeps.
    "Sys.sleep(0.1)",
    "cat('all done\\n')"
  ))
  expect_equal(exit_of(it), 0, info = it$tell())
  expect_match(it$tell(), "all done")
})
