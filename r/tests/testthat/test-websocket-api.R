# Additions to httpuv's WebSocket: the reason for a close, the queue, and removing callbacks.

# Returns a server, a client that has opened a WebSocket, and the server's object of it.
opened <- function(app = list(), headers = character(0), env = parent.frame()) {
  seen <- new.env()
  on_open <- app$onWSOpen
  app$onWSOpen <- function(ws) {
    seen$ws <- ws
    if (!is.null(on_open)) on_open(ws)
  }
  server <- local_server(app, env)
  seen$client <- local_client(server, env)
  seen$reply <- upgrade(seen$client, headers = headers)
  serve_until(function() !is.null(seen$ws) || seen$reply$status != 101L)
  seen
}

close_frame <- function(code, reason = "") {
  frame(c(as.raw(c(code %/% 256, code %% 256)), charToRaw(enc2utf8(reason))), opcode = 8)
}

test_that("onClose gets target, code, reason and wasClean if it has an argument", {
  seen <- opened()
  told <- list()
  seen$ws$onClose(function(event) told$event <<- event)
  seen$ws$onClose(function() told$nothing <<- nargs())
  seen$ws$onClose(function(code = "mine") told$default <<- code)
  seen$ws$onClose(function(...) told$dots <<- ...length())
  send(seen$client, close_frame(4001, "done \u00fc"))
  serve_until(function() length(told) == 4)
  expect_identical(
    told$event, list(target = seen$ws, code = 4001L, reason = "done \u00fc", wasClean = TRUE)
  )
  expect_identical(Encoding(told$event$reason), "UTF-8")
  expect_identical(told[-1], list(nothing = 0L, default = "mine", dots = 0L))
})

test_that("the code distinguishes a missing close frame and an empty one", {
  events <- list()
  for (how in c("broken", "empty")) {
    seen <- opened()
    seen$ws$onClose(function(event) events[[how]] <<- event[c("code", "reason", "wasClean")])
    if (how == "broken") disconnect(seen$client) else send(seen$client, frame(raw(0), opcode = 8))
    serve_until(function() !is.null(events[[how]]))
  }
  expect_identical(events$broken, list(code = 1006L, reason = "", wasClean = FALSE))
  expect_identical(events$empty, list(code = 1005L, reason = "", wasClean = TRUE))
})

test_that("a failing closing callback does not prevent the others", {
  seen <- opened()
  told <- NULL
  seen$ws$onClose(function(event) stop("in close"))
  seen$ws$onClose(function(event) told <<- event$code)
  said <- stderr_of({
    disconnect(seen$client)
    serve_until(function() !is.null(told))
  })
  expect_identical(told, 1006L)
  expect_match(said, "a WebSocket's onClose.*in close", all = FALSE)
})

test_that("the value of on*() removes only its callback, once", {
  seen <- opened()
  got <- character()
  note <- function(binary, message) got <<- c(got, message)
  expect_invisible(first <- seen$ws$onMessage(note))
  second <- seen$ws$onMessage(note)
  other <- seen$ws$onMessage(function(binary, message) {
    got <<- c(got, "other")
    # During the delivery of a message.
    other()
  })
  send(seen$client, frame("1"))
  serve_until(function() length(got) == 3)
  expect_identical(got, c("1", "1", "other"))
  expect_null(first())
  expect_null(first())
  send(seen$client, frame("2"))
  serve_until(function() length(got) == 4)
  expect_identical(got[[4]], "2")
  second()
  expect_length(seen$ws$messageCallbacks, 0)
  closed <- 0
  gone <- seen$ws$onClose(function() closed <<- closed + 1)
  seen$ws$onClose(function() closed <<- closed + 10)
  gone()
  seen$ws$onDrain(print)()
  expect_length(seen$ws$drainCallbacks, 0)
  disconnect(seen$client)
  serve_until(function() closed > 0)
  expect_identical(closed, 10)
})

test_that("send() returns FALSE above a megabyte and after the end, and onDrain() is called", {
  seen <- opened()
  expect_invisible(seen$ws$send("one"))
  expect_identical(seen$ws$send("two"), TRUE)
  drained <- 0
  seen$ws$onDrain(function() drained <<- drained + 1)
  # More than the system buffers for a client that does not read.
  chunk <- raw(2e6)
  rounds <- 0
  repeat {
    can_go_on <- seen$ws$send(chunk)
    expect_true(isTRUE(can_go_on) || isFALSE(can_go_on))
    rounds <- rounds + 1
    service(5)
    # On a busy machine, the system may accept the queued data only now.
    if (!can_go_on && seen$ws$bufferedAmount() > 1e6) break
    if (rounds > 50) stop("it is never told to wait")
  }
  drained <- 0
  while (next_frame(seen$client)$opcode != 1) NULL
  wanted <- rounds
  got <- 0
  expect_identical(next_frame(seen$client)$payload, charToRaw("two"))
  while (got < wanted) {
    expect_length(next_frame(seen$client)$payload, 2e6)
    got <- got + 1
  }
  serve_until(function() drained > 0)
  expect_identical(drained, 1)
  expect_identical(seen$ws$bufferedAmount(), 0)
  over <- FALSE
  seen$ws$onClose(function() over <<- TRUE)
  disconnect(seen$client)
  serve_until(function() over)
  expect_invisible(seen$ws$send("late"))
  expect_identical(seen$ws$send("late"), FALSE)
  expect_identical(seen$ws$send(chunk), FALSE)
  expect_identical(seen$ws$bufferedAmount(), 0)
  expect_identical(seen$ws$ping(), FALSE)
})

test_that("a message is not lent to a connection that has ended unnoticed", {
  seen <- opened()
  disconnect(seen$client)
  # The I/O thread knows it, and R has not processed the event.
  until <- Sys.time() + 60
  while (seen$ws$send(raw(1e6)) || seen$ws$bufferedAmount() > 0) {
    if (Sys.time() > until) stop("never over")
    Sys.sleep(0.01)
  }
  expect_identical(seen$ws$send("x"), FALSE)
})

test_that("ping() sends a ping", {
  seen <- opened()
  expect_identical(seen$ws$ping(), TRUE)
  expect_identical(next_frame(seen$client)$opcode, 9)
})

test_that("the subprotocol is the first of the app's that the client offers", {
  spoken <- function(offered, ours = c("graphql-transport-ws", "chat")) {
    seen <- opened(
      list(wsProtocols = ours), paste0("Sec-WebSocket-Protocol: ", offered)[length(offered) > 0]
    )
    c(unname(seen$reply$headers["sec-websocket-protocol"]), seen$ws$protocol)
  }
  expect_identical(spoken("chat"), c("chat", "chat"))
  expect_identical(spoken("chat, graphql-transport-ws"), rep("graphql-transport-ws", 2))
  expect_identical(spoken(" chat ,x"), c("chat", "chat"))
  expect_identical(spoken("Chat"), c(NA, ""))
  expect_identical(spoken(character(0)), c(NA, ""))
  expect_identical(spoken("chat", NULL), c(NA, ""))
  expect_error(
    local_server(list(wsProtocols = "a, b")),
    "`app\\$wsProtocols` must be names of subprotocols, .* not \"a, b\""
  )
})

test_that("onHeaders accepts with a subprotocol and headers, or refuses", {
  asked <- 0
  app <- list(
    onHeaders = function(req) {
      asked <<- asked + 1
      if (identical(req$HTTP_X_WHO, "stranger")) {
        return(list(status = 403L, headers = list("X-Why" = "no"), body = "no"))
      }
      if (identical(req$HTTP_X_WHO, "plain")) return(accept_ws())
      accept_ws(protocol = c("v2", "v1"), headers = list("Set-Cookie" = "seen=1", "X-Two" = 2))
    },
    wsProtocols = "chat"
  )
  seen <- opened(app, "Sec-WebSocket-Protocol: v1, chat")
  expect_identical(seen$reply$status, 101L)
  expect_identical(seen$reply$headers[["sec-websocket-protocol"]], "v1")
  expect_identical(seen$reply$headers[["set-cookie"]], "seen=1")
  expect_identical(seen$reply$headers[["x-two"]], "2")
  expect_identical(seen$ws$protocol, "v1")
  seen$ws$send("open")
  expect_identical(rawToChar(next_frame(seen$client)$payload), "open")
  # A subprotocol that was not offered is not chosen.
  seen <- opened(app, "Sec-WebSocket-Protocol: chat")
  expect_false("sec-websocket-protocol" %in% names(seen$reply$headers))
  expect_identical(seen$ws$protocol, "")
  # Without subprotocols of its own, those of the app are used.
  seen <- opened(app, c("Sec-WebSocket-Protocol: chat", "X-Who: plain"))
  expect_identical(seen$ws$protocol, "chat")
  seen <- opened(app, "X-Who: stranger")
  expect_identical(c(seen$reply$status, seen$reply$text), c("403", "no"))
  expect_identical(seen$reply$headers[["x-why"]], "no")
  expect_null(seen$ws)
  expect_identical(asked, 4)
})

test_that("accept_ws() in a wrong place is an error that says so", {
  said <- stderr_of({
    server <- local_server(list(call = function(req) accept_ws(), onHeaders = function(req) NULL))
    expect_identical(get(local_client(server))$status, 500L)
    server <- local_server(list(
      onHeaders = function(req) accept_ws(headers = list("X-A" = "a\nb")), onWSOpen = print
    ))
    expect_identical(upgrade(local_client(server))$status, 500L)
  })
  expect_match(
    said, "accept_ws\\(\\) can only be returned by `onHeaders` for a WebSocket handshake",
    all = FALSE
  )
  expect_match(said, "a value in `headers` has a line break", all = FALSE)
  expect_error(accept_ws("a b"), "`protocol` must be names of subprotocols")
  expect_error(accept_ws(headers = list("x")), "`headers` must be a named list")
  expect_error(
    accept_ws(headers = list("sec-websocket-protocol" = "x")),
    "`headers` must not have sec-websocket-protocol"
  )
})

test_that("pages of other origins are refused before the app is called", {
  asked <- 0
  status <- function(origin, ...) {
    app <- list(onWSOpen = function(ws) asked <<- asked + 1, ...)
    upgrade(
      local_client(local_server(app)), headers = paste0("Origin: ", origin)[length(origin) > 0]
    )$status
  }
  # The helper sends `Host: test`.
  expect_identical(status("https://evil.org"), 101L)
  expect_identical(status("https://evil.org", wsOrigins = "same"), 403L)
  expect_identical(status("http://test", wsOrigins = "same"), 101L)
  expect_identical(status(character(0), wsOrigins = "same"), 101L)
  hosts <- c("*.example.org", "other:8000")
  expect_identical(status("https://www.example.org", wsOrigins = hosts), 101L)
  expect_identical(status("http://other:8000", wsOrigins = hosts), 101L)
  expect_identical(status("http://other", wsOrigins = hosts), 403L)
  expect_identical(asked, 5)
  withr::with_options(list(rookery.ws_origins = "same"), {
    expect_identical(status("https://evil.org"), 403L)
    expect_identical(status("https://evil.org", wsOrigins = "evil.org"), 101L)
  })
  expect_error(
    local_server(list(wsOrigins = "https://a.org")),
    "`app\\$wsOrigins` must be same, or hosts .* not \"https://a.org\""
  )
  expect_error(local_server(list(wsOrigins = TRUE)), "not TRUE")
  withr::with_options(
    list(rookery.ws_origins = "*"),
    expect_error(local_server(list()), "rookery.ws_origins.* not \"\\*\"")
  )
})

test_that("other values are sent as converted by as.character()", {
  registerS3method("as.character", "spoken", function(x, ...) "by its method", envir = baseenv())
  seen <- opened()
  sent <- list(
    "text", 42L, 1e5, TRUE, factor("level"), structure("own", class = "spoken"), as.name("symbol"),
    c("first", "second")
  )
  for (message in sent) {
    expect_true(seen$ws$send(message))
  }
  expect_error(seen$ws$send(character(0)), "must be a string or a raw vector")
  expect_error(seen$ws$send(NULL), "must be a string or a raw vector")
  expected <- c("text", "42", "1e+05", "TRUE", "level", "by its method", "symbol", "first")
  # Unmasked text frames: 0x81, a length, the text.
  bytes <- unlist(lapply(expected, function(text) c(as.raw(c(0x81, nchar(text))), charToRaw(text))))
  serve_until(function() {
    fill(seen$client)
    length(seen$client$read) >= length(bytes)
  })
  expect_identical(seen$client$read, bytes)
})

# Returns a compressed text message: a zlib stream without its header and checksum, which ends as
# RFC 7692, 7.2.3.4, requires.
deflated <- function(text) {
  zlib <- memCompress(charToRaw(text), "gzip")
  frame(c(zlib[3:(length(zlib) - 4)], as.raw(0)), opcode = 0x41)
}

# Returns whether the next frame is compressed, its size, and the decompressed text, which must be
# `expected`.
next_text <- function(client, expected) {
  serve_until(function() {
    fill(client)
    length(client$read) > 0
  })
  is_compressed <- bitwAnd(as.integer(client$read[[1]]), 0x40L) != 0
  payload <- next_frame(client)$payload
  if (!is_compressed) {
    return(list(compressed = FALSE, size = length(payload), text = rawToChar(payload)))
  }
  bytes <- as.integer(charToRaw(expected))
  low <- (1 + sum(bytes)) %% 65521
  high <- sum(length(bytes) * 1, rev(seq_along(bytes)) * bytes) %% 65521
  sum <- as.raw(c(high %/% 256, high %% 256, low %/% 256, low %% 256))
  zlib <- c(as.raw(c(0x78, 0x9c)), payload, as.raw(c(0, 0, 0xFF, 0xFF, 3, 0)), sum)
  list(compressed = TRUE, size = length(payload), text = rawToChar(memDecompress(zlib, "gzip")))
}

echo <- function(ws) ws$onMessage(function(binary, message) ws$send(message))

test_that("messages are compressed for clients that offer it, if wsCompression is on", {
  offer <- "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"
  answer <- function(compression, headers = offer) {
    seen <- opened(list(onWSOpen = echo, wsCompression = compression), headers)
    c(seen$reply$headers["sec-websocket-extensions"], use.names = FALSE)
  }
  expect_identical(answer(NULL), NA_character_)
  expect_identical(answer(FALSE), NA_character_)
  expect_identical(answer(TRUE, character(0)), NA_character_)
  alone <- "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
  expect_identical(answer(TRUE), alone)
  expect_identical(answer(list(level = 9)), alone)
  expect_identical(answer(list(takeover = TRUE)), "permessage-deflate")
  withr::with_options(list(rookery.ws_compression = TRUE), {
    expect_identical(answer(NULL), alone)
    expect_identical(answer(FALSE), NA_character_)
  })
})

test_that("compressed messages arrive unchanged in both directions, from the threshold on", {
  seen <- opened(
    list(onWSOpen = echo, wsCompression = list(threshold = 1000)),
    "Sec-WebSocket-Extensions: permessage-deflate"
  )
  for (n in c(1, 100, 1e4)) {
    text <- strrep("all work and no play ", n)
    send(seen$client, deflated(text))
    got <- next_text(seen$client, text)
    expect_identical(got$text, text)
    expect_identical(got$compressed, n > 1 && nchar(text) >= 1000)
    if (got$compressed) expect_lt(got$size, nchar(text) / 10)
  }
  # Invalid compressed data closes the connection.
  code <- NULL
  seen$ws$onClose(function(event) code <<- event$code)
  send(seen$client, frame(as.raw(c(0xFF, 0xFF)), opcode = 0x41))
  expect_identical(next_frame(seen$client)$opcode, 8)
  serve_until(function() !is.null(code))
  expect_identical(code, 1006L)
})

test_that("a wrong wsCompression is an error when the server is started", {
  bad <- list("perhaps", NA, list(), list(speed = 1), list(threshold = -1), list(takeover = NA))
  for (wrong in bad) {
    expect_error(
      local_server(list(wsCompression = wrong)),
      "`app\\$wsCompression` must be on, off, or one or more of level=1 to level=9"
    )
  }
  for (wrong in list(list(level = 0), list(level = 2.5))) {
    expect_error(
      local_server(list(wsCompression = wrong)),
      "`app\\$wsCompression`: level is a digit from 1 to 9, not (0|2.5)\\."
    )
  }
  withr::with_options(
    list(rookery.ws_compression = 3),
    expect_error(local_server(list()), "The option `rookery.ws_compression` must be .*not 3")
  )
})

test_that("a text message of 2 GiB, which R's strings cannot hold, becomes a raw vector", {
  # It takes 7 GB of memory and half a minute.
  skip_if(Sys.getenv("ROOKERY_TEST_HUGE") == "")
  skip_if_not_installed("processx")
  it <- local_r(c(
    "library(rookery)",
    "seen <- NULL",
    "server <- startServer('127.0.0.1', 0, list(onWSOpen = function(ws) {",
    "  ws$onMessage(function(binary, message) {",
    "    seen <<- list(binary, typeof(message), length(message), message[[2^31]])",
    "  })",
    "}), limits = server_limits(ws_max_message_size = 2^31, max_client_memory = 2^38))",
    "client <- sprintf(\"",
    "import socket, struct",
    "s = socket.create_connection(('127.0.0.1', %d))",
    "s.sendall(b'GET / HTTP/1.1\\\\r\\\\nHost: a\\\\r\\\\nConnection: Upgrade\\\\r\\\\nUpgrade: websocket\\\\r\\\\n'",
    "  b'Sec-WebSocket-Version: 13\\\\r\\\\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\\\r\\\\n\\\\r\\\\n')",
    "s.recv(1000)",
    "part = b'a' * 2**26",
    "for i in range(32):",
    "  first = (0x80 if i == 31 else 0) + (1 if i == 0 else 0)",
    "  s.sendall(bytes([first, 0xff]) + struct.pack('>QI', 2**26, 0) + part)",
    "while s.recv(1000): pass",
    "\", server$getPort())",
    "python <- processx::process$new('python3', c('-c', client), stderr = '')",
    "until <- Sys.time() + 100",
    "while (is.null(seen) && python$is_alive() && Sys.time() < until) service(100)",
    "python$kill()",
    "cat('seen', paste(seen), '\\n')"
  ))
  exit_of(it, 120)
  expect_match(it$tell(), "seen TRUE raw 2147483648 61", fixed = TRUE)
})

test_that("a long text in another encoding is sent as UTF-8", {
  text <- strrep("\u00e9", 1e5)
  server <- local_server(list(onWSOpen = function(ws) ws$send(iconv(text, "UTF-8", "latin1"))))
  client <- local_client(server)
  upgrade(client)
  expect_identical(next_frame(client)$payload, charToRaw(text))
})
