# WebSocketClient with this package's server in the same process, and with scripted sockets.
# crates/websocket-client/tests has the tests without R.

# A server that echoes each message; `it$told` has the closes of its WebSockets.
local_echo <- function(env = parent.frame(), tls = NULL) {
  it <- new.env()
  it$opened <- list()
  it$ended <- 0
  app <- list(
    onWSOpen = function(ws) {
      it$opened[[length(it$opened) + 1]] <- ws
      ws$onMessage(function(binary, message) ws$send(message))
      ws$onClose(function() it$ended <- it$ended + 1)
    }
  )
  it$server <- suppressMessages(startServer("127.0.0.1", 0, app, tls = tls))
  withr::defer(it$server$stop(), envir = env)
  it$url <- paste0(
    if (is.null(tls)) "ws://127.0.0.1:" else "wss://localhost:", it$server$getPort(), "/"
  )
  it
}

# A client that records its events without their target in `it$seen`.
local_ws <- function(url, ..., env = parent.frame()) {
  it <- new.env()
  it$seen <- list()
  it$ws <- WebSocketClient$new(url, ...)
  note <- function(kind) {
    force(kind)
    function(event) {
      it$target <- event$target
      it$seen[[length(it$seen) + 1]] <- c(list(kind), event[-1])
    }
  }
  it$ws$onOpen(note("open"))
  it$ws$onMessage(note("message"))
  it$ws$onClose(note("close"))
  it$ws$onError(note("error"))
  withr::defer(try(it$ws$close(), silent = TRUE), envir = env)
  it
}

wait_for <- function(it, kind, count = 1) {
  found <- function() Filter(function(event) event[[1]] == kind, it$seen)
  serve_until(function() length(found()) >= count)
  found()[[count]]
}

test_that("client and server in one R process: events in order, text, bytes and the close", {
  echo <- local_echo()
  it <- local_ws(paste0(echo$url, "room?x=1"), headers = list("X-Who" = "me"))
  expect_equal(it$ws$readyState(), 0L)
  expect_equal(it$ws$url(), paste0(echo$url, "room?x=1"))
  wait_for(it, "open")
  expect_identical(it$target, it$ws)
  expect_equal(it$ws$readyState(), 1L)
  expect_equal(it$ws$status(), 101L)
  expect_equal(it$ws$protocol(), "")
  request <- echo$opened[[1]]$request
  expect_equal(
    c(request$PATH_INFO, request$QUERY_STRING, request$HTTP_X_WHO), c("/room", "?x=1", "me")
  )
  latin1 <- iconv("\u00e4", "UTF-8", "latin1")
  expect_invisible(it$ws$send("hello \u6f22\u5b57"))
  it$ws$send("")
  it$ws$send(latin1)
  it$ws$send(as.raw(c(0, 1, 255)))
  it$ws$send(raw(0))
  it$ws$send(raw(3e6))
  wait_for(it, "message", 6)
  data <- lapply(it$seen[-1], `[[`, "data")
  expect_identical(
    data, list("hello \u6f22\u5b57", "", "\u00e4", as.raw(c(0, 1, 255)), raw(0), raw(3e6))
  )
  it$ws$close(3001L, "done")
  expect_equal(it$ws$readyState(), 2L)
  expect_identical(wait_for(it, "close"), list("close", code = 3001L, reason = "", wasClean = TRUE))
  expect_equal(it$ws$readyState(), 3L)
  serve_until(function() echo$ended == 1)
  expect_silent(it$ws$close())
})

test_that("a close by the server is passed on with code and reason", {
  echo <- local_echo()
  it <- local_ws(echo$url)
  wait_for(it, "open")
  echo$opened[[1]]$close(4002L, "go away")
  expect_identical(
    wait_for(it, "close"), list("close", code = 4002L, reason = "go away", wasClean = TRUE)
  )
  it <- local_ws(echo$url)
  wait_for(it, "open")
  echo$server$stop()
  expect_equal(wait_for(it, "close")$code, 1001L)
})

test_that("callbacks can be removed, a failing one stops no others, and none follows the end", {
  echo <- local_echo()
  ws <- WebSocketClient$new(echo$url)
  heard <- character()
  add <- function(name) {
    force(name)
    ws$onMessage(function(event) heard <<- c(heard, paste(name, event$data)))
  }
  remove_one <- add("one")
  ws$onMessage(function(event) stop("on purpose"))
  same <- function(event) heard <<- c(heard, "same")
  remove_same <- ws$onMessage(same)
  ws$onMessage(same)
  add("two")
  ws$onOpen(function(event) ws$send("a"))
  said <- stderr_of(serve_until(function() "two a" %in% heard))
  expect_equal(heard, c("one a", "same", "same", "two a"))
  expect_match(
    said, "rookery: a callback of a WebSocketClient: on purpose", fixed = TRUE, all = FALSE
  )
  expect_null(remove_one())
  remove_same()
  remove_same()
  heard <- character()
  stderr_of({
    ws$send("b")
    serve_until(function() "two b" %in% heard)
  })
  expect_equal(heard, c("same", "two b"))
  ended <- 0
  ws$onClose(function(event) ended <<- ended + 1)
  ws$close()
  serve_until(function() ended == 1)
  service(50)
  expect_equal(ended, 1)
})

test_that("with autoConnect = FALSE nothing happens before connect(), which works once", {
  echo <- local_echo()
  it <- local_ws(echo$url, autoConnect = FALSE)
  service(50)
  expect_length(it$seen, 0)
  expect_equal(it$ws$readyState(), 0L)
  it$ws$connect()
  wait_for(it, "open")
  expect_error(it$ws$connect(), "connect only once")
  unused <- WebSocketClient$new(echo$url, autoConnect = FALSE)
  unused$close()
  expect_equal(unused$readyState(), 3L)
  expect_error(unused$connect(), "connect only once")
})

test_that("a client works with package later only: in a loop of run_now(), and in a callback", {
  server <- local_echo()
  it <- local_ws(server$url)
  later::later(function() it$ws$onOpen(function(event) event$target$send("sent")))
  until <- Sys.time() + 60
  while (length(it$seen) < 2 && Sys.time() < until) later::run_now(0.05)
  expect_identical(it$seen[[2]], list("message", data = "sent"))
})

# A socket of plain R that accepts one connection and responds to it.
local_peer <- function(env = parent.frame()) {
  port <- free_port()
  listening <- serverSocket(port)
  withr::defer(close(listening), envir = env)
  list(port = port, url = paste0("ws://127.0.0.1:", port), listening = listening)
}

test_that("a handshake that is refused, or gets no response, is an error and does not block", {
  echo <- local_echo()
  peer <- local_peer()
  it <- local_ws(peer$url)
  socket <- socketAccept(peer$listening, open = "r+b")
  writeBin(charToRaw("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), socket)
  expect_equal(wait_for(it, "error")$status, 404L)
  expect_match(it$seen[[1]]$message, "responded to the handshake with status 404")
  expect_equal(it$ws$readyState(), 3L)
  expect_equal(it$ws$status(), 404L)
  expect_length(it$seen, 1)
  close(socket)

  it <- local_ws(peer$url, connect_timeout = 2)
  ticks <- 0
  tick <- function() {
    ticks <<- ticks + 1
    if (it$ws$readyState() == 0L) later::later(tick, 0.01)
  }
  tick()
  expect_match(wait_for(it, "error")$message, "did not respond within 2 s")
  expect_identical(it$seen[[1]]$status, NA_integer_)
  expect_gt(ticks, 5)

  # The client that stopped connecting was in the accept queue of the socket.
  close(socketAccept(peer$listening, open = "r+b"))
  it <- local_ws(peer$url)
  socket <- socketAccept(peer$listening, open = "r+b")
  writeLines("this is no HTTP\r\n\r", socket)
  expect_match(
    wait_for(it, "error")$message, "response to the handshake is invalid: malformed head"
  )
  close(socket)

  it <- local_ws(echo$url)
  it$ws$close()
  expect_equal(wait_for(it, "error")$message, "the client was closed before it was open")
})

test_that("limits: message size, send queue, and time for closing", {
  echo <- local_echo()
  it <- local_ws(echo$url, maxMessageSize = 1000)
  wait_for(it, "open")
  it$ws$send(strrep("x", 1000))
  wait_for(it, "message")
  it$ws$send(strrep("x", 1001))
  expect_identical(
    wait_for(it, "close")[-1], list(code = 1009L, reason = "message too big", wasClean = FALSE)
  )

  # R does not run the event loop meanwhile, so the server stops reading.
  it <- local_ws(echo$url, max_send_queue_size = 1e6, close_timeout = 0.3)
  wait_for(it, "open")
  message <- raw(5e5)
  sent <- 0
  refused <- NULL
  while (is.null(refused) && sent < 1000) {
    refused <- tryCatch(it$ws$send(message), error = conditionMessage)
    if (is.null(refused)) sent <- sent + 1
  }
  expect_match(refused, "was not sent.*max_send_queue_size")
  expect_lte(it$ws$bufferedAmount(), 1e6)
  expect_equal(it$ws$readyState(), 1L)
  peer <- local_peer()
  silent <- local_ws(peer$url, close_timeout = 0.3)
  socket <- socketAccept(peer$listening, blocking = TRUE, open = "r+b")
  withr::defer(close(socket))
  key <- sub(
    "^.*: ", "",
    grep("^sec-websocket-key: ", readLines(socket, 6), ignore.case = TRUE, value = TRUE)
  )
  skip_if_not_installed("openssl")
  accept <- openssl::base64_encode(openssl::sha1(
    charToRaw(paste0(key, "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
  ))
  writeBin(charToRaw(paste0(
    "HTTP/1.1 101 Go\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ",
    accept, "\r\n\r\n"
  )), socket)
  wait_for(silent, "open")
  silent$ws$close()
  expect_identical(
    wait_for(silent, "close")[-1],
    list(code = 1006L, reason = "the server did not respond to the close frame", wasClean = FALSE)
  )
})

test_that("wss: a custom authority, and an unknown one", {
  withr::local_envvar(R_USER_DATA_DIR = withr::local_tempdir())
  echo <- local_echo(tls = "dev")
  file <- file.path(tools::R_user_dir("rookery", "data"), "tls", "localhost.pem")
  it <- local_ws(echo$url, ca = file)
  wait_for(it, "open")
  it$ws$send("secret")
  expect_identical(wait_for(it, "message")$data, "secret")
  certificate <- paste(readLines(file), collapse = "\n")
  certificate <- sub("(-----END CERTIFICATE-----).*$", "\\1\n", certificate)
  it <- local_ws(echo$url, ca = certificate)
  wait_for(it, "open")
  # The system's authorities. A system without any reports that at once.
  skip_if_not(file.exists("/etc/ssl/certs/ca-certificates.crt"))
  it <- local_ws(echo$url)
  expect_match(wait_for(it, "error")$message, "^TLS with localhost failed: ")
  expect_false(any(vapply(it$seen, function(event) event[[1]] == "open", NA)))
  expect_error(WebSocketClient$new(echo$url, ca = "/no/such.pem"), "/no/such.pem cannot be read")
})

test_that("R's collection closes a client without callbacks, and not one with callbacks", {
  echo <- local_echo()
  make <- function(listens) {
    ws <- WebSocketClient$new(echo$url)
    if (listens) ws$onMessage(function(event) heard <<- c(heard, event$data))
    NULL
  }
  heard <- character()
  make(FALSE)
  serve_until(function() length(echo$opened) == 1)
  gc()
  serve_until(function() echo$ended == 1)
  make(TRUE)
  serve_until(function() length(echo$opened) == 2)
  gc()
  echo$opened[[2]]$send("still there")
  serve_until(function() length(heard) == 1)
  expect_equal(heard, "still there")
  # The end of the connection releases the object.
  echo$opened[[2]]$close()
  serve_until(function() echo$ended == 2)
})

test_that("clients that have ended leak nothing", {
  echo <- local_echo()
  round <- function(n) {
    for (i in seq_len(n)) {
      it <- local_ws(echo$url)
      wait_for(it, "open")
      it$ws$close()
      wait_for(it, "close")
    }
    echo$opened <- list()
  }
  descriptors <- function() length(list.files("/proc/self/fd"))
  round(5)
  before <- cells()
  open <- descriptors()
  round(30)
  serve_until(function() descriptors() <= open + 2)
  expect_lt(cells() - before, 30 * 40 + 5000)
})

test_that("a fork cannot use a client of its parent, and can create its own", {
  skip_on_os("windows")
  echo <- local_echo()
  it <- local_ws(echo$url)
  wait_for(it, "open")
  said <- in_fork(function() {
    theirs <- list(
      tryCatch(it$ws$send("lost"), error = conditionMessage),
      tryCatch(it$ws$close(), error = conditionMessage),
      format(it$ws)
    )
    own <- local_echo(env = globalenv())
    mine <- local_ws(own$url, env = globalenv())
    wait_for(mine, "open")
    mine$ws$send("mine")
    c(theirs, wait_for(mine, "message")$data)
  })
  expect_match(said[[1]], "belongs to the process from which this one was forked")
  expect_match(said[[2]], "belongs to the process from which this one was forked")
  expect_match(said[[3]], "of another R process")
  expect_identical(said[[4]], "mine")
  it$ws$send("here")
  expect_identical(wait_for(it, "message")$data, "here")
  copy <- unserialize(serialize(it$ws, NULL))
  expect_error(copy$send("stray"), "was saved and restored")
})

test_that("quit() and unloading close clients, also one whose server does not read", {
  skip_if_not_installed("processx")
  server <- list(ended = 0, opened = 0)
  app <- list(onWSOpen = function(ws) {
    server$opened <<- server$opened + 1
    ws$onClose(function() server$ended <<- server$ended + 1)
  })
  listening <- local_server(app)
  url <- paste0("ws://127.0.0.1:", listening$getPort())
  peer <- local_peer()
  program <- function(end) {
    c(
      "ws <- rookery::WebSocketClient$new(Sys.getenv('URL'))",
      "stuck <- rookery::WebSocketClient$new(Sys.getenv('STUCK'))",
      "ws$onClose(function(event) cat('closed', event$code, '\\n'))",
      "while (ws$readyState() != 1L) later::run_now(1)",
      "cat('open\\n')",
      end,
      "cat('after\\n')"
    )
  }
  environment <- c(URL = url, STUCK = peer$url)
  it <- local_r(program("quit(status = 7)"), environment = environment)
  serve_until(function() server$ended == 1, 60)
  expect_equal(exit_of(it), 7)
  it <- local_r(program("unloadNamespace('rookery')"), environment = environment)
  serve_until(function() server$ended == 2, 60)
  expect_equal(exit_of(it), 0)
  expect_match(it$tell(), "open\nclosed 1001 \nafter")
})

test_that("arguments say what is wrong with them", {
  new <- function(url = "ws://127.0.0.1:1", ...) WebSocketClient$new(url, ..., autoConnect = FALSE)
  expect_error(WebSocketClient$new(1), "`url` must be one string")
  for (case in list(
    list("http://host/", "must begin with ws:// or wss://"),
    list("ws://host/#a", "it contains a fragment"),
    list("ws://me@host/", "user name or password"),
    list("ws://host:99999/", "does not have the form")
  )) {
    expect_error(
      WebSocketClient$new(case[[1]]),
      paste0("`url` is not the address of a WebSocket: .*", case[[2]])
    )
  }
  expect_error(new(protocols = 1), "`protocols` must be names of subprotocols")
  expect_error(new(headers = list("x")), "`headers` must be a named list")
  expect_error(new(headers = c(Host = "x")), "`headers` has host, which the handshake sends itself")
  expect_error(
    new(maxMessageSize = 0), "`maxMessageSize` must be a positive number of bytes, not 0"
  )
  expect_error(
    new(max_send_queue_size = Inf), "`max_send_queue_size` must be a positive number of bytes"
  )
  expect_error(new(connect_timeout = "1"), "`connect_timeout` must be a positive number of seconds")
  expect_error(new(close_timeout = NA), "`close_timeout` must be")
  expect_error(new(ping_timeout = -1), "`ping_timeout` must be")
  expect_error(new(compress = 1), "`compress` must be TRUE or FALSE")
  expect_error(new(ca = 1), "`ca` must be one string")
  expect_error(
    WebSocketClient$new("ws://a", autoConnect = NA), "`autoConnect` must be TRUE or FALSE"
  )
  ws <- new(ping_interval = Inf, accessLogChannels = NULL, errorLogChannels = "all")
  expect_error(ws$onOpen("x"), "`func` must be a function")
  expect_error(ws$send("early"), "is connecting: send while it is open")
  expect_error(ws$send(1), "`msg` must be one string or a raw vector, not 1")
  expect_error(ws$send(NA_character_), "`msg` must be one string")
  expect_error(ws$close(1001), "`code` must be 1000, or one of 3000 to 4999")
  expect_error(ws$close(reason = strrep("x", 124)), "at most 123 bytes")
  ws$close()
  expect_error(ws$send("late"), "is closed")
})

test_that("a client prints its address and state", {
  echo <- local_echo()
  it <- local_ws(echo$url)
  expect_equal(format(it$ws), paste0("<WebSocketClient ", echo$url, ": connecting>"))
  wait_for(it, "open")
  expect_output(
    expect_identical(expect_invisible(print(it$ws)), it$ws), paste0(echo$url, ": open>"),
    fixed = TRUE
  )
  it$ws$close()
  expect_match(format(it$ws), ": closing")
  wait_for(it, "close")
  expect_match(format(it$ws), ": closed>$")
})

test_that("package websocket has the same events in the same order", {
  skip_if_not_installed("websocket")
  told_by <- function(class) {
    echo <- local_echo()
    seen <- list()
    ws <- class$new(paste0(echo$url, "x"), headers = list(A = "b"), autoConnect = FALSE)
    note <- function(kind, ...) {
      function(event) {
        seen[[length(seen) + 1]] <<- c(kind, event[c(...)], list(identical(event$target, ws)))
      }
    }
    ws$onOpen(note("open"))
    ws$onOpen(function(event) ws$send("text"))
    remove <- ws$onMessage(note("removed"))
    remove()
    ws$onMessage(note("message", "data"))
    ws$onMessage(function(event) {
      if (is.raw(event$data)) echo$opened[[1]]$close() else ws$send(as.raw(1:3))
    })
    ws$onClose(note("close"))
    states <- ws$readyState()
    ws$connect()
    serve_until(function() as.integer(ws$readyState()) == 3L && length(seen) == 4)
    refused <- class$new("ws://127.0.0.1:1/")
    refused$onError(note("error"))
    serve_until(function() length(seen) == 5)
    list(
      seen, as.integer(states), as.integer(refused$readyState()), echo$opened[[1]]$request$HTTP_A
    )
  }
  expect_equal(told_by(WebSocketClient), told_by(getExportedValue("websocket", "WebSocket")))
})

test_that("an interrupted callback does not stop the clients of the session", {
  skip_if_not_installed("processx")
  # In a process of its own, because the processes of parallel tests handle interrupts themselves.
  server <- local_server(list(onWSOpen = function(ws) {
    ws$onMessage(function(binary, message) for (text in c("stop", "a", "b")) ws$send(text))
  }))
  it <- local_r(c(
    "library(rookery)",
    "seen <- list(character(), character())",
    "clients <- lapply(1:2, function(i) {",
    sprintf("  client <- WebSocketClient$new('ws://127.0.0.1:%d')", server$getPort()),
    "  client$onOpen(function(event) client$send('go'))",
    "  client$onMessage(function(event) {",
    "    seen[[i]] <<- c(seen[[i]], event$data)",
    "    if (i == 1 && event$data == 'stop') {",
    "      tools::pskill(Sys.getpid(), tools::SIGINT)",
    "      Sys.sleep(60)",
    "    }",
    "  })",
    "  client",
    "})",
    "until <- Sys.time() + 20",
    "while (any(lengths(seen) < 3) && Sys.time() < until) {",
    "  tryCatch(later::run_now(0.05), interrupt = function(condition) cat('interrupted\\n'))",
    "}",
    "cat(vapply(seen, paste, '', collapse = ' '), sep = '\\n')"
  ))
  serve_until(function() !it$process$is_alive(), 25)
  told <- it$tell()
  expect_match(told, "a callback of a WebSocketClient: interrupted")
  expect_match(told, "stop a b\nstop a b")
  expect_length(gregexpr("(^|\n)interrupted\n", told)[[1]], 1)
})

test_that("the package can be unloaded after an interrupted callback of a client", {
  skip_if_not_installed("processx")
  server <- local_server(list(onWSOpen = function(ws) for (i in 1:40) ws$send("message")))
  it <- local_r(c(
    "library(rookery)",
    sprintf("client <- WebSocketClient$new('ws://127.0.0.1:%d')", server$getPort()),
    "seen <- 0",
    "client$onMessage(function(event) {",
    "  seen <<- seen + 1",
    "  if (seen == 3) { tools::pskill(Sys.getpid(), tools::SIGINT); Sys.sleep(60) }",
    "})",
    "# Newer versions of package later return before R handles the interrupt.",
    "tryCatch(",
    "  { while (seen < 3) later::run_now(0.05); Sys.sleep(20) },",
    "  interrupt = function(condition) cat('interrupted\\n')",
    ")",
    "unloadNamespace('rookery')",
    "cat('unloaded\\n')"
  ))
  serve_until(function() !it$process$is_alive(), 20)
  expect_match(it$tell(), "interrupted\n.*unloaded")
})

test_that("in one R process, the close of the server's WebSocket precedes that of its client", {
  loops <- list(
    function() service(5), function() service(NA), function() later::run_now(0.01),
    function() later::run_now(0.01, all = FALSE)
  )
  for (step in loops) for (is_by_client in c(TRUE, FALSE)) for (i in 1:3) {
    order <- c()
    accepted <- NULL
    server <- local_server(list(onWSOpen = function(ws) {
      accepted <<- ws
      ws$onClose(function() order <<- c(order, "server"))
    }))
    client <- local_ws(paste0("ws://127.0.0.1:", server$getPort()))
    client$ws$onClose(function(event) order <<- c(order, "client"))
    run_until <- function(done) {
      until <- Sys.time() + 20
      while (!done() && Sys.time() < until) step()
    }
    run_until(function() !is.null(accepted) && length(client$seen) == 1)
    if (is_by_client) client$ws$close() else accepted$close()
    run_until(function() length(order) == 2)
    expect_identical(order, c("server", "client"))
  }
})
