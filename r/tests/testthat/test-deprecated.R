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
    workers <- workers_config(2, kill_stuck = "5min", name = "x", retry_begun = TRUE)
    wish <- acme(domains = c("a.org", "b.org"), agree_tos = TRUE, dir = tempdir())
    client <- WebSocketClient$new(
      "ws://127.0.0.1:1", autoConnect = FALSE, maxQueueSize = 5, pingTime = Inf, pongTime = 7
    )
  })
  expect_length(said, 7)
  expect_equal(
    workers,
    workers_config(2, worker_timeout = "5min", cookie_suffix = "x", retry_safe_methods = TRUE)
  )
  expect_equal(wish, acme(c("a.org", "b.org"), agree_tos = TRUE, dir = tempdir()))
  same <- WebSocketClient$new(
    "ws://127.0.0.1:1",
    autoConnect = FALSE, max_send_queue_size = 5, ping_interval = Inf, ping_timeout = 7
  )
  setup <- function(ws) ws$.__enclos_env__$private$core$setup
  expect_equal(setup(client), setup(same))
})

test_that("options of workers_config() that were moved keep working", {
  said <- messages_of(
    workers <- workers_config(2, request_timeout = "5s", admin = "127.0.0.1:9100")
  )
  expect_setequal(
    vapply(said, `[[`, "", "new"), c("`request_timeout` of server_limits()", "`admin` of serve()")
  )
  expect_equal(workers$request_timeout, "5s")
  expect_equal(workers$admin, "127.0.0.1:9100")
  expect_error(
    suppressMessages(workers_config(2, admin = 3, request_timeout = "never")), "must be",
    class = "rookery_bad_workers"
  )
})

test_that("giving both names is an error, and so is a wrong value", {
  error <- expect_error(
    workers_config(2, worker_timeout = 1, kill_stuck = 2),
    "`kill_stuck` of workers_config() is the deprecated name of `worker_timeout` of workers_config(): give only",
    fixed = TRUE, class = "rookery_bad_workers"
  )
  expect_equal(error$argument, "kill_stuck")
  expect_error(
    acme("a.org", domains = "b.org", agree_tos = TRUE), "give only `domain` of acme()", fixed = TRUE
  )
  suppressMessages(expect_error(
    workers_config(2, kill_stuck = "soon"), "`worker_timeout` must be a time",
    class = "rookery_bad_workers"
  ))
})

test_that("deprecated keys of a _server.yml keep working", {
  skip_if_not_installed("yaml")
  file <- withr::local_tempfile(lines = "function(req) NULL", fileext = ".R")
  settings <- function(lines) {
    path <- file.path(withr::local_tempdir(.local_envir = parent.frame()), "_server.yml")
    writeLines(c("engine: rookery", paste0("app: ", file), "options:", paste0("  ", lines)), path)
    path
  }
  path <- settings(c("kill-stuck: 5min", "retry_begun: true", "name: x", "request_timeout: 3s"))
  said <- messages_of(values <- rookery:::server_file(path)$values)
  expect_length(said, 4)
  expect_match(
    conditionMessage(said[[1]]),
    "`kill-stuck:` in `.*_server.yml`, line 4 is deprecated: write `worker_timeout:`"
  )
  expect_mapequal(
    values,
    list(worker_timeout = 300, retry_safe_methods = TRUE, cookie_suffix = "x", request_timeout = 3)
  )
  path <- settings(c("tls:", "  acme:", "    domains: a.org", "    agree_tos: true"))
  expect_length(messages_of(values <- rookery:::server_file(path)$values), 1)
  expect_equal(values$domain, "a.org")
  path <- settings(c("kill_stuck: 1s", "worker_timeout: 1s"))
  expect_error(
    rookery:::server_file(path),
    "`worker_timeout:` and `kill_stuck:` in line 4 are the same setting",
    class = "rookery_bad_setting"
  )
})

test_that("former names of limits keep working, wherever limits are given", {
  table <- rookery:::limit_table()
  former <- names(rookery:::renamed_limits())
  # Each former name has a new name in the table, and no former name is in the table.
  expect_length(setdiff(rookery:::renamed_limits(), table$name), 0)
  expect_length(intersect(former, table$name), 0)
  expect_false(anyDuplicated(rookery:::renamed_limits()) > 0)
  least <- structure(as.list(table$least), names = table$name)
  old <- least
  names(old)[match(rookery:::renamed_limits(), names(old))] <- former
  said <- messages_of(limits <- do.call(server_limits, old))
  expect_length(said, length(former))
  expect_mapequal(unclass(limits), unclass(do.call(server_limits, least)))
  expect_match(
    conditionMessage(messages_of(server_limits(request_time = 5))[[1]]),
    "use `request_timeout` of server_limits()", fixed = TRUE
  )
  expect_error(
    server_limits(max_body_size = 1, body_bytes = 2),
    "give only `max_body_size` of server_limits()", fixed = TRUE, class = "rookery_bad_argument"
  )
  expect_length(messages_of(limits <- rookery:::check_limits(list(connections = 5))), 1)
  expect_equal(limits$max_connections, 5)

  said <- messages_of({
    withr::with_options(
      list(rookery.body_bytes = "10 MB"), option <- rookery:::setting_of("max_body_size")
    )
    withr::with_envvar(
      c(ROOKERY_PING_TIME = "30 s"), variable <- rookery:::setting_of("ws_ping_interval")
    )
    withr::with_options(
      list(rookery.memory = "64 MiB"), passed_on <- rookery:::session_options(FALSE)
    )
    row <- rookery_options()["queue_requests"]
  })
  expect_length(said, 4)
  expect_equal(said[[1]]$old, "The option `rookery.body_bytes`")
  expect_equal(option[c("value", "origin")], list(value = 1e7, origin = "option"))
  expect_equal(variable[c("value", "origin")], list(value = 30, origin = "environment"))
  expect_equal(passed_on$rookery.max_client_memory, "64 MiB")
  expect_equal(row$name, "max_queued_requests")
  withr::with_envvar(c(ROOKERY_BODY_BYTES = "many"), suppressMessages(expect_error(
    rookery:::setting_of("max_body_size"), "The environment variable ROOKERY_BODY_BYTES must be",
    class = "rookery_bad_limit"
  )))
  withr::with_options(list(rookery.body_bytes = 1, rookery.max_body_size = 2), expect_error(
    rookery_options(), "`rookery.body_bytes` is the deprecated name of `rookery.max_body_size`",
    class = "rookery_bad_setting"
  ))
})

test_that("the command line and _server.yml accept limits under both names", {
  expect_equal(
    rookery:::lines_of(list(max_body_size = 10, disk_share = 5)),
    c("max_body_size=10", "disk_share=5")
  )
  skip_if_not_installed("yaml")
  dir <- withr::local_tempdir()
  writeLines("function(req) NULL", file.path(dir, "app.R"))
  file <- file.path(dir, "_server.yml")
  writeLines(
    c(
      "engine: rookery", "app: app.R", "options:", "  limits:", "    body-bytes: 10 MB",
      "    idle_timeout: 5s"
    ),
    file
  )
  expect_length(messages_of(read <- rookery:::settings_read(file)), 1)
  expect_equal(read$settings, list(max_body_size = 1e7, idle_timeout = 5))
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
