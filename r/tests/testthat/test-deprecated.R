# Former names, which work for one more release and give a message once per session.

# Runs code as if no deprecated name had been used in this session; returns its messages.
messages_of <- function(code) {
  globals <- rookery:::.globals
  before <- globals$deprecated
  globals$deprecated <- NULL
  on.exit(globals$deprecated <- before)
  said <- list()
  withCallingHandlers(code, rookery_deprecated = function(condition) {
    said[[length(said) + 1]] <<- condition
    invokeRestart("muffleMessage")
  })
  said
}

test_that("a deprecated name gives one message per session, with the new name", {
  said <- messages_of(for (i in 1:3) event_stream())
  expect_length(said, 1)
  expect_s3_class(said[[1]], c("rookery_deprecated", "message", "condition"), exact = TRUE)
  expect_equal(said[[1]]$old, "`event_stream()`")
  expect_equal(said[[1]]$new, "`sse_response()`")
  expect_equal(
    conditionMessage(said[[1]]),
    "rookery: `event_stream()` is deprecated and will be removed in the next release: use `sse_response()`.\n"
  )
  expect_length(messages_of({
    event_stream()
    stream_events(function() NULL)
  }), 2)
})

test_that("deprecated functions have their former arguments, in their former order", {
  suppressMessages({
    pushed <- event_stream(list(a = "b"), 20)
    expect_equal(format(pushed), "<rookery_events: not yet a response, 0 B waiting>")
    pulled <- stream_events(function() NULL, "token", function(x) x, 15, NULL, list(a = "b"))
    expect_equal(pulled$headers$a, "b")
    expect_s3_class(pulled$body, "rookery_source")
  })
})

test_that("deprecated arguments have the effect of the new ones", {
  said <- messages_of({
    client <- WebSocketClient$new(
      "ws://127.0.0.1:1", autoConnect = FALSE, maxQueueSize = 5, pingTime = Inf, pongTime = 7
    )
  })
  expect_length(said, 3)
  same <- WebSocketClient$new(
    "ws://127.0.0.1:1",
    autoConnect = FALSE, max_send_queue_size = 5, ping_interval = Inf, ping_timeout = 7
  )
  setup <- function(ws) ws$.__enclos_env__$private$core$setup
  expect_equal(setup(client), setup(same))
})

test_that("options of functions must be named", {
  positional <- alist(
    sse_response(list()), sse_body(identity, "token"), sse_event("a", "name"),
    stream_body(function() NULL, print),
    stream_response(200L), receive_body(identity, identity, identity), accept_ws("chat", list()),
    tls_config("c", "k", "secret"),
    acme("a.org", "me@a.org"), workers_config(2, 1), use_compat(TRUE), install_cli("dir", TRUE),
    WebSocketClient$new("ws://a", character(), NULL, FALSE, "none", NULL, 1e6, "ca.pem"),
    plumber_errors(structure(new.env(), class = "Plumber"), identity)
  )
  for (call in positional) {
    error <- expect_error(
      eval(call), "options must be given by name: `", fixed = TRUE, class = "rookery_bad_argument",
      info = deparse(call)
    )
    expect_equal(error$argument, "...")
  }
  error <- expect_error(
    stream_body(function() NULL, onclose = print), "Did you mean `on_close`?", fixed = TRUE,
    class = "rookery_bad_argument"
  )
  expect_equal(error$argument, "onclose")
  expect_equal(
    conditionMessage(error), "stream_body(): `onclose` is not an argument. Did you mean `on_close`?"
  )
  expect_error(
    workers_config(2, drian = 5),
    "workers_config(): `drian` is not an argument. Did you mean `drain`?", fixed = TRUE
  )
  expect_error(
    sse_response()$send("x", "event"), "$send(): options must be given by name", fixed = TRUE
  )
})

test_that("every new function has its options after `...`", {
  httpuvs <- c(
    "startServer", "startPipeServer", "startDaemonizedServer", "runServer", "runStaticServer",
    "service", "interrupt", "stopServer",
    "stopDaemonizedServer", "stopAllServers", "listServers", "staticPath", "staticPathOptions",
    "as.staticPath", "excludeStaticPath",
    "encodeURI", "encodeURIComponent", "decodeURI", "decodeURIComponent", "rawToBase64", "ipFamily",
    "randomPort", "getRNGState"
  )
  deprecated <- c("event_stream", "stream_events")
  exports <- Filter(
    function(name) is.function(getExportedValue("rookery", name)), getNamespaceExports("rookery")
  )
  for (name in setdiff(exports, c(httpuvs, deprecated))) {
    # Only arguments that come from httpuv have names in camelCase.
    expect_no_match(name, "[a-z][A-Z]")
    arguments <- names(formals(getExportedValue("rookery", name)))
    if (length(arguments) > 1) expect_true("..." %in% arguments, info = name)
  }
})
