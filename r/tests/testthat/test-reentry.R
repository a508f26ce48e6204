# R may collect garbage at any allocation, and thereby run finalizers of the app. A finalizer may
# call service(), which handles another request while the C code is in the middle of the first.

# Compiles reentry.c, which calls an R function at an exact allocation.
reentry_library <- function(env = parent.frame()) {
  skip_if_not_installed("processx")
  skip_if_not(Sys.info()[["sysname"]] == "Linux")
  skip_if(Sys.which("cc") == "")
  dir <- withr::local_tempdir(.local_envir = env)
  library <- file.path(dir, "reentry.so")
  processx::run("cc", c(
    "-shared", "-fPIC", "-O0", paste0("-I", R.home("include")), test_path("reentry.c"), "-o",
    library
  ), stderr_to_stdout = TRUE)
  library
}

# Runs a script in an R process of its own, because a fault ends the process. In the script,
# `collect_at(k)` makes the k-th allocation from there call `in_finalizer()`, and `ask()` is a
# client that has sent a request.
run_reentrant <- function(lines, env = parent.frame()) {
  library <- reentry_library(env)
  running <- local_r(c(
    "library(rookery)",
    sprintf("dyn.load('%s')", library),
    "in_finalizer <- function() service(NA)",
    "finalizer <- function() {",
    "  fired <<- fired + 1",
    "  try(in_finalizer(), silent = TRUE)",
    "}",
    "fired <- 0",
    "collect_at <- function(k) invisible(.Call('call_at', finalizer, k))",
    "ok <- function(body = 'end') list(status = 200L, headers = list(), body = body)",
    "ask <- function(path, method = 'GET', body = '', more = '') {",
    "  socket <- socketConnection('127.0.0.1', server$getPort(), open = 'r+b', blocking = FALSE)",
    "  cat(method, ' ', path, ' HTTP/1.0\\r\\nHost: a\\r\\n', more,",
    "    if (nzchar(body)) paste0('Content-Length: ', nchar(body), '\\r\\n'), '\\r\\n', body,",
    "    sep = '', file = socket)",
    "  socket",
    "}",
    "# Returns the bodies that the server sends; each ends with `end`.",
    "answers <- function(sockets) {",
    "  until <- Sys.time() + 20",
    "  texts <- rep('', length(sockets))",
    "  while (!all(grepl('end$', texts)) && Sys.time() < until) {",
    "    service(1)",
    "    collect_at(0)",
    "    for (i in seq_along(sockets)) {",
    "      texts[i] <- paste0(texts[i], rawToChar(readBin(sockets[[i]], 'raw', 1e5)))",
    "    }",
    "  }",
    "  for (socket in sockets) close(socket)",
    "  sub('.*\\r\\n\\r\\n', '', texts)",
    "}",
    lines,
    "cat('fired', fired > 10, 'complete\\n')"
  ), env = env, environment = c(LD_PRELOAD = library))
  status <- exit_of(running)
  list(status = status, text = running$tell())
}

expect_complete <- function(ran) {
  expect_identical(ran$status, 0L, info = ran$text)
  expect_match(ran$text, "fired TRUE complete", fixed = TRUE)
  expect_no_match(ran$text, "wrong")
}

test_that("a finalizer may handle events before the next guarded call is entered", {
  # A time limit is reset by a second guarded call, a few allocations after the handler. The last
  # guarded call of the other request writes the response of onError.
  expect_complete(run_reentrant(c(
    "options(rookery.interrupt_after = 60)",
    "handled <- c()",
    "server <- startServer('127.0.0.1', 0, list(",
    "  call = function(req) {",
    "    handled <<- c(handled, req$PATH_INFO)",
    "    if (req$PATH_INFO == '/second') stop('second')",
    "    Sys.sleep(0.002)",
    "    collect_at(k)",
    "    ok()",
    "  },",
    "  onError = function(cond) ok('error end')",
    "))",
    "for (k in 1:80) {",
    "  handled <- c()",
    "  texts <- answers(list(ask('/first'), ask('/second')))",
    "  if (!identical(texts, c('end', 'error end')) || length(handled) != 2) {",
    "    cat('wrong', k, handled, texts, '\\n')",
    "  }",
    "}"
  )))
})

test_that("a finalizer may handle events between the callbacks of a WebSocket", {
  expect_complete(run_reentrant(c(
    "closed <- 0",
    "server <- startServer('127.0.0.1', 0, list(",
    "  call = function(req) ok(),",
    "  onWSOpen = function(ws) {",
    "    ws$onClose(function() { Sys.sleep(0.002); collect_at(k) })",
    "    ws$onClose(function() closed <<- closed + 1)",
    "  }",
    "))",
    "handshake <- paste0('Connection: Upgrade\\r\\nUpgrade: websocket\\r\\n',",
    "  'Sec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n')",
    "for (k in 1:40) {",
    "  ws <- socketConnection('127.0.0.1', server$getPort(), open = 'r+b', blocking = FALSE)",
    "  cat('GET / HTTP/1.1\\r\\nHost: a\\r\\n', handshake, '\\r\\n', sep = '', file = ws)",
    "  while (length(readBin(ws, 'raw', 1000)) == 0) service(1)",
    "  close(ws)",
    "  answers(list(ask('/')))",
    "  for (i in 1:20) if (closed < k) service(10)",
    "  if (closed != k) cat('wrong', k, closed, '\\n')",
    "  closed <- k",
    "}"
  )))
})

test_that("a finalizer may handle events while the body of a request is bound, and streams begin", {
  # The request of onHeaders gets its body with a second event. The stream of a request whose
  # `.bodyData` was opened begins after R code has closed that connection.
  expect_complete(run_reentrant(c(
    "server <- startServer('127.0.0.1', 0, list(",
    "  onHeaders = function(req) NULL,",
    "  call = function(req) {",
    "    if (req$PATH_INFO == '/arm') { Sys.sleep(0.002); collect_at(k); return(ok()) }",
    "    text <- readLines(req$.bodyData, warn = FALSE)",
    "    stream <- stream_response()",
    "    stream$write(c(text, ' end'))",
    "    stream$close()",
    "    if (req$PATH_INFO == '/armed') { Sys.sleep(0.002); collect_at(k) }",
    "    stream",
    "  }",
    "))",
    "for (first in c('/arm', '/armed')) for (k in seq(1, 240, 4)) {",
    "  texts <- answers(list(",
    "    ask(first, 'POST', 'one'), ask('/b', 'POST', 'two'), ask('/c', 'POST', 'three')",
    "  ))",
    "  expected <- c(if (first == '/arm') 'end' else 'one end', 'two end', 'three end')",
    "  if (!identical(texts, expected)) cat('wrong', first, k, texts, '\\n')",
    "}"
  )))
})

test_that("a finalizer may keep objects while the table of kept objects grows", {
  # Each slot keeps an object. Another one for the same slot releases the one before and closes it.
  expect_complete(run_reentrant(c(
    "server <- startServer('127.0.0.1', 0, function(req) ok())",
    "kept <- lapply(1:3000, function(slot) new.env())",
    "keep <- function(slot) {",
    "  ticket <- c(slot, slot, 0, -1, 0, 0)",
    "  both <- list(NULL, kept[[slot]])",
    "  collect_at(k)",
    "  .Call(rookery:::ffi_body_opened, ticket, both)",
    "  collect_at(0)",
    "}",
    "in_finalizer <- function() {",
    "  k <<- 0",
    "  for (slot in inner) {",
    "    kept[[slot]] <<- new.env()",
    "    keep(slot)",
    "  }",
    "  inner <<- inner + step",
    "}",
    "# With step 0, the same object is replaced; with 3, three more are kept.",
    "for (step in c(0, 3)) {",
    "  inner <- if (step == 0) 3000 else 2001:2003",
    "  # Closing the previous object of a slot allocates as well.",
    "  for (slot in if (step == 0) rep(1:30, 10) else 301:900) {",
    "    k <- 1 + slot %% 4",
    "    keep(slot)",
    "  }",
    "}",
    "k <- 0",
    "for (slot in c(1:30, 301:900, setdiff(seq_len(inner[[1]] - 1), 1:2000), 3000)) {",
    "  last <- kept[[slot]]",
    "  keep(slot)",
    "  if (!exists('.bodyData', last, inherits = FALSE)) cat('wrong', slot, '\\n')",
    "}"
  )))
})

test_that("a finalizer may wait in another event loop before service() waits", {
  skip_if_not_installed("later")
  expect_complete(run_reentrant(c(
    "server <- startServer('127.0.0.1', 0, function(req) ok())",
    "invisible(later::run_now())",
    "in_finalizer <- function() later::with_temp_loop(service(4))",
    "for (k in 1:90) {",
    "  collect_at(k)",
    "  service(6)",
    "  collect_at(0)",
    "}"
  )))
})
