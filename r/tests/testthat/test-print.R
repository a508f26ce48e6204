# Print methods of servers, WebSockets, streams and event streams. test-stream-response.R tests the
# states of streams.

test_that("a server prints its address, whether it runs, and its number of connections", {
  server <- local_server(list(onWSOpen = function(ws) NULL, call = function(req) ok()))
  url <- paste0("http://127.0.0.1:", server$getPort())
  expect_equal(format(server), paste0("<WebServer ", url, ": running, 0 connections>"))
  get(local_client(server))
  serve_until(function() grepl("running, 1 connection>", format(server), fixed = TRUE))
  upgrade(local_client(server))
  serve_until(function() {
    grepl("running, 2 connections, 1 WebSocket>", format(server), fixed = TRUE)
  })
  expect_output(
    expect_identical(expect_invisible(print(server)), server), format(server), fixed = TRUE
  )
  expect_output(print(listServers()), url, fixed = TRUE)
  server$stop()
  expect_equal(format(server), paste0("<WebServer ", url, ": stopped>"))
})

test_that("servers on IPv6, with HTTPS and on a Unix socket print as well", {
  six <- tryCatch(
    suppressMessages(startServer("::1", 0, list(), quiet = TRUE)), error = function(e) NULL
  )
  if (!is.null(six)) {
    expect_match(format(six), "^<WebServer http://\\[::1\\]:[0-9]+: running, 0 connections>$")
    six$stop()
  }
  withr::local_envvar(R_USER_DATA_DIR = withr::local_tempdir())
  https <- suppressMessages(startServer("127.0.0.1", 0, list(), tls = "dev"))
  withr::defer(https$stop())
  expect_match(format(https), "^<WebServer https://127.0.0.1:[0-9]+: running, 0 connections>$")
  path <- withr::local_tempfile()
  unix <- startPipeServer(path, NULL, list())
  expect_equal(
    format(unix), paste0("<PipeServer unix:", normalizePath(path), ": running, 0 connections>")
  )
  unix$stop()
  expect_match(format(unix), ": stopped>$")
})

test_that("a restored server does not print that it runs", {
  server <- local_server(list())
  restored <- unserialize(serialize(server, NULL))
  restored$.__enclos_env__$private$session <- new.env()
  expect_match(format(restored), ": stopped>$")
})

test_that("a WebSocket prints its path, its client, and whether it has ended", {
  given <- NULL
  server <- local_server(list(onWSOpen = function(ws) given <<- ws))
  client <- local_client(server)
  upgrade(client, "/chat?room=1")
  serve_until(function() !is.null(given))
  expect_match(
    format(given), "^<WebSocket [0-9]+: open, /chat\\?room=1, from 127[.]0[.]0[.]1:[0-9]+>$"
  )
  expect_output(
    expect_identical(expect_invisible(print(given)), given), format(given), fixed = TRUE
  )
  copy <- unserialize(serialize(given, NULL))
  expect_match(format(copy), "^<WebSocket: of another R process, /chat")
  given$close()
  expect_match(format(given), "^<WebSocket: closed, /chat")
  expect_equal(format(WebSocket$new(NULL, NULL)), "<WebSocket: closed>")
})

test_that("text chosen by a client is escaped when printed", {
  request <- list2env(list(PATH_INFO = "/\033[2J\n", QUERY_STRING = ""))
  expect_equal(format(WebSocket$new(NULL, request)), "<WebSocket: closed, /\\033[2J\\n>")
})

test_that("objects of other packages with the same class names print as before", {
  other <- R6::R6Class("WebSocket", parent_env = globalenv(), public = list(field = "theirs"))$new()
  expect_output(print(other), "field: theirs")
  expect_no_match(paste(format(other), collapse = ""), "closed")
  other <- R6::R6Class("Server", parent_env = globalenv(), public = list(field = "theirs"))$new()
  expect_output(print(other), "field: theirs")
  expect_no_match(paste(format(other), collapse = ""), "stopped")
})

test_that("streams and events print their state, chunks and bytes, for pull and push", {
  events <- sse_response()
  expect_equal(format(events), "<rookery_events: not yet a response, 0 B waiting>")
  pulled <- stream_body(function() NULL)
  expect_equal(format(pulled), "<rookery_stream: not yet a response, 0 B waiting>")
  asked <- sse_body(function() NULL)$body
  expect_output(print(asked), "<rookery_events: not yet a response, 0 B waiting>", fixed = TRUE)

  # The third chunk is never requested, so the promise stays pending.
  given <- list("one", "three", promises::promise(function(resolve, reject) NULL))
  pulled <- stream_body(do.call(chunks_of, given))
  bodies <- list("/pulled" = streamed(pulled), "/events" = events)
  server <- local_server(function(req) bodies[[req$PATH_INFO]])
  client <- local_client(server)
  send(client, request("/pulled"))
  read_to(client, "three")
  serve_until(function() grepl("0 B waiting", format(pulled), fixed = TRUE))
  expect_match(format(pulled), "^<rookery_stream [0-9]+: open, 2 chunks, 8 B, 0 B waiting>$")
  number <- sub("^<[a-z_]+ ([0-9]+):.*", "\\1", format(pulled))

  other <- local_client(server)
  send(other, request("/events"))
  read_to(other, "\r\n\r\n")
  for (i in 1:3) events$send(strrep("x", 600))
  read_to(other, strrep("x", 600))
  serve_until(function() events$buffered() == 0)
  expect_match(format(events), "^<rookery_events [0-9]+: open, 3 chunks, 1.8 kB, 0 B waiting>$")
  expect_false(grepl(paste0(" ", number, ":"), format(events), fixed = TRUE))
  copy <- unserialize(serialize(pulled, NULL))
  expect_equal(format(copy), "<rookery_stream: of another R process>")
  events$close()
  serve_until(function() grepl("over", format(events)))
  expect_match(format(events), "^<rookery_events [0-9]+: over [(]done[)]>$")
})

test_that("events and the values for onHeaders have print methods", {
  event <- sse_event("one\ntwo", event = "price", id = 7)
  expect_s3_class(event, "rookery_sse_event")
  expect_equal(
    format(event),
    c("<server-sent event>", "  event: price", "  id: 7", "  data: one", "  data: two")
  )
  expect_output(expect_invisible(print(sse_event("\033[2J"))), "data: \\033[2J", fixed = TRUE)
  # The event is text, which a stream accepts.
  expect_identical(paste0(event), "event: price\nid: 7\ndata: one\ndata: two\n\n")
  expect_output(print(accept_ws()), "<rookery_accept_ws: protocol chosen from wsProtocols>", fixed = TRUE)
  expect_equal(
    format(accept_ws(c("a", "b"), headers = list("Set-Cookie" = "secret"))),
    "<rookery_accept_ws: protocol a, b; headers: Set-Cookie>"
  )
  expect_output(
    print(receive_body(identity, identity)), "<rookery_receiver: not yet used for a request>",
    fixed = TRUE
  )
})

test_that("subsets of rookery_options() print correctly", {
  options <- rookery_options()
  expect_output(print(options["max_body_size"]), "^setting +value +origin\nmax_body_size ")
  expect_equal(options[c("spool_dir", "max_body_size")]$name, c("spool_dir", "max_body_size"))
  expect_error(options["x"], "There is no setting `x`", class = "rookery_bad_setting")
  expect_error(
    options["max_body_siz"], "Did you mean `max_body_size`", class = "rookery_bad_setting"
  )
  expect_identical(class(options["name"]), "data.frame")
  expect_output(print(options[1:2, c("name", "value")]), "name +value")
  expect_output(print(options[1:2, ]), "setting +value +origin")
  expect_identical(options[["name"]], options$name)
  expect_s3_class(options[options$name == "spool_dir", ], "rookery_options")
  without <- options
  without$origin <- NULL
  expect_output(print(without), "name")
})
