# Event loops of package later: servers and clients belong to the loop that was current when they
# were created; and nested calls of service().

skip_if_not_installed("later")

# Runs only `loop` until `done()` is true.
run_loop_until <- function(loop, done, seconds = 60) {
  until <- Sys.time() + seconds
  while (!isTRUE(done())) {
    if (Sys.time() > until) stop("not done after ", seconds, " s")
    later::run_now(0.01, loop = loop)
  }
}

# A process that responds one byte at a time, without R's loops.
has_answer <- function(client) {
  fill(client)
  length(client$read) > 0
}

test_that("events of a client occur only in the loop that was current when it was created", {
  # In a separate process, because the other loop must run without this one.
  server <- local_r(c(
    "server <- rookery::startServer('127.0.0.1', 0, list(onWSOpen = function(ws) ws$onMessage(function(binary, message) ws$send(message))))",
    "cat('port', server$getPort(), '\\n')", "repeat rookery::service(1000)"
  ))
  expect_true(wait_until(function() grepl("port [0-9]+ \n?", server$tell())))
  url <- paste0("ws://127.0.0.1:", sub(".*port ([0-9]+).*", "\\1", server$tell()))
  loop <- later::create_loop(parent = NULL)
  withr::defer(later::destroy_loop(loop))
  seen <- character()
  later::with_loop(loop, {
    ws <- WebSocketClient$new(url)
    ws$onOpen(function(event) {
      seen <<- c(seen, "open")
      ws$send("hello")
    })
    ws$onMessage(function(event) {
      seen <<- c(seen, event$data)
      ws$close()
    })
    ws$onClose(function(event) seen <<- c(seen, "close"))
  })
  until <- Sys.time() + 0.5
  while (Sys.time() < until) {
    later::run_now(0.01)
    service(5)
  }
  expect_identical(seen, character())
  run_loop_until(loop, function() length(seen) == 3)
  expect_identical(seen, c("open", "hello", "close"))
  # A client that connects later also belongs to the loop in which it was created.
  seen <- character()
  ws <- later::with_loop(loop, WebSocketClient$new(url, autoConnect = FALSE))
  ws$onOpen(function(event) seen <<- "open")
  ws$connect()
  run_loop_until(loop, function() length(seen) == 1)
  ws$close()
})

test_that("a client whose loop was destroyed gets its close event in the global loop", {
  echo <- startServer(
    "127.0.0.1", 0,
    list(onWSOpen = function(ws) ws$onMessage(function(binary, message) ws$close(3001, "bye")))
  )
  withr::defer(echo$stop())
  loop <- later::create_loop(parent = NULL)
  state <- NULL
  code <- NULL
  ws <- later::with_loop(loop, WebSocketClient$new(paste0("ws://127.0.0.1:", echo$getPort())))
  ws$onOpen(function(event) state <<- "open")
  ws$onClose(function(event) code <<- event$code)
  serve_until(function() {
    later::run_now(0, loop = loop)
    identical(state, "open")
  })
  later::destroy_loop(loop)
  ws$send("close it")
  serve_until(function() !is.null(code))
  expect_equal(code, 3001)
})

test_that("requests are handled in the loop of the server's start, and in any service()", {
  stopAllServers()
  loop <- later::create_loop(parent = NULL)
  withr::defer(later::destroy_loop(loop))
  server <- later::with_loop(loop, startServer("127.0.0.1", 0, function(req) ok("here")))
  withr::defer(server$stop())
  client <- local_client(server)
  send(client, request())
  until <- Sys.time() + 0.5
  while (Sys.time() < until) later::run_now(0.01)
  expect_false(has_answer(client))
  run_loop_until(loop, function() has_answer(client))
  expect_equal(reply(client)$text, "here")
  expect_equal(get(client)$text, "here")
  later::with_temp_loop(expect_equal(get(client)$text, "here"))
})

test_that("a service() that waits in a private loop is woken by a request", {
  skip_if_not_installed("callr")
  server <- local_server(function(req) ok())
  url <- paste0("http://127.0.0.1:", server$getPort())
  # 20 requests with pauses, in which R goes to sleep. Without wake-ups, each would wait for 150 ms.
  ask <- function(url) {
    vapply(1:20, function(at) {
      Sys.sleep(0.02)
      system.time(curl::curl_fetch_memory(url))[["elapsed"]]
    }, 0)
  }
  time <- function() {
    process <- callr::r_bg(ask, list(url))
    while (process$is_alive()) service(1000)
    median(process$get_result())
  }
  loadNamespace("later")
  expect_lt(later::with_temp_loop(time()), max(0.05, 10 * time()))
})

test_that("more than 63 loops can be used one after the other", {
  server <- local_server(function(req) ok())
  client <- local_client(server)
  for (i in 1:150) later::with_temp_loop(service(2))
  expect_equal(get(client)$text, "ok")
  said <- stderr_of(others <- lapply(1:80, function(i) {
    later::with_temp_loop(startServer("127.0.0.1", 0, function(req) ok("other")))
  }))
  expect_length(said, 1)
  expect_match(said, "those in a further loop belong to the global loop")
  # Their loops were destroyed, so they belong to the global loop.
  client <- local_client(others[[80]])
  send(client, request())
  run_loop_until(later::global_loop(), function() has_answer(client))
  expect_equal(reply(client)$text, "other")
  for (other in others) other$stop()
})

test_that("at most 20 handlers are nested, and all requests get a response", {
  skip_if_not_installed("callr")
  depth <- 0
  most <- 0
  server <- local_server(function(req) {
    depth <<- depth + 1
    most <<- max(most, depth)
    on.exit(depth <<- depth - 1)
    if (req$PATH_INFO == "/loop") later::run_now(0.02) else service(20)
    ok()
  })
  said <- stderr_of(for (path in c("/service", "/loop")) {
    process <- local_requests(paste0("http://127.0.0.1:", server$getPort(), path), 300)
    serve_until(function() !process$is_alive())
    expect_equal(process$get_result(), rep(200L, 300))
  })
  # stderr has only the line about nested handlers.
  expect_equal(grep("too many handlers are nested", said, invert = TRUE, value = TRUE), character())
  expect_equal(depth, 0)
  expect_lte(most, 20)
  expect_gt(most, 1)
})

test_that("the innermost service() waits for its timeout, runs callbacks, and can be interrupted", {
  inner <- c()
  depth <- 0
  server <- local_server(function(req) {
    depth <<- depth + 1
    on.exit(depth <<- depth - 1)
    if (depth == 20) {
      ran <- FALSE
      later::later(function() ran <<- TRUE, 0.01)
      time <- system.time(while (!ran) service(1000))[["elapsed"]]
      rest <- system.time(service(100))[["elapsed"]]
      inner <<- c(time = time, rest = rest)
      later::later(interrupt, 0.01)
      service(0)
    } else {
      serve_until(function() depth < 20 && length(inner) > 0)
    }
    ok()
  })
  env <- environment()
  clients <- lapply(1:21, function(i) local_client(server, env))
  for (client in clients) send(client, request())
  for (client in clients) expect_equal(reply(client)$status, 200L)
  expect_gte(inner[["rest"]], 0.09)
  expect_lt(inner[["time"]], 30)
})

test_that("handlers that are nested too deeply are reported once, with the remedy", {
  it <- local_r(c(
    "depth <- 0; most <- 0",
    "server <- rookery::startServer('127.0.0.1', 0, function(req) {",
    "  depth <<- depth + 1",
    "  most <<- max(most, depth)",
    "  on.exit(depth <<- depth - 1)",
    "  until <- Sys.time() + 60",
    "  while (most < 20 && Sys.time() < until) rookery::service(10)",
    "  rookery::service(10)",
    "  list(status = 200L, headers = list(), body = 'ok')",
    "})",
    "for (round in 1:2) {",
    "  most <- 0",
    "  clients <- lapply(1:25, function(i) socketConnection('127.0.0.1', server$getPort(), open = 'r+b'))",
    "  for (client in clients) writeBin(charToRaw('GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n'), client)",
    "  until <- Sys.time() + 60",
    "  while (most < 20 && Sys.time() < until) rookery::service(10)",
    "  cat('round', round, 'depth', most, '\\n')",
    "  for (client in clients) close(client)",
    "  while (rookery:::connections_of(server) > 0 && Sys.time() < until) rookery::service(10)",
    "}"
  ))
  expect_equal(exit_of(it, 150), 0)
  expect_match(it$tell(), "round 1 depth 20")
  expect_match(it$tell(), "round 2 depth 20")
  lines <- grep("too many handlers are nested", strsplit(it$tell(), "\n")[[1]], value = TRUE)
  expect_length(lines, 1)
  expect_match(lines, "promise")
})
