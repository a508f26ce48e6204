# Errors and warnings of the package have classes, and name what is wrong.

test_that("all errors of the package are made by abort()", {
  source <- testthat::test_path("..", "..")
  skip_if_not(dir.exists(file.path(source, "src")), "the package's source is not here")
  found <- function(folder, pattern, allowed) {
    files <- list.files(file.path(source, folder), "[.][RchC]+$", full.names = TRUE)
    lines <- unlist(lapply(
      files, function(file) paste0(basename(file), ": ", trimws(readLines(file)))
    ))
    lines <- grep("^[^:]+: (#|//)", grep(pattern, lines, value = TRUE), invert = TRUE, value = TRUE)
    grep(allowed, lines, invert = TRUE, value = TRUE)
  }
  # Conditions that are passed on, and one that only replaces R's last message.
  expect_equal(
    found(
      "R", "(^|[^$.a-z_])stop\\(|stopifnot\\(",
      "stop\\((condition|error|error_unavailable_port|structure)|\"none\""
    ),
    character()
  )
  # Errors without memory for a condition, or before R functions exist.
  expect_equal(
    found(
      "src", "Rf_error(call)?\\(",
      "out of memory|internal error|cannot create a pipe|ROOKERY_VERSION|Rf_error\\(\"%s\", text\\)"
    ),
    character()
  )
})

test_that("errors have a specific class and rookery_error", {
  expect_class <- function(code, class) {
    error <- tryCatch(code, error = identity)
    expect_s3_class(error, "rookery_error")
    expect_s3_class(error, class)
    invisible(error)
  }
  expect_class(service("a"), "rookery_bad_argument")
  expect_class(startServer("127.0.0.1", 8000.5, list()), "rookery_bad_argument")
  expect_class(staticPath("/no/such/folder"), "rookery_bad_argument")
  expect_class(decodeURI("%00"), "rookery_bad_argument")
  expect_class(randomPort(n = 0), "httpuv_unavailable_port")
  server <- startServer("127.0.0.1", 0, list())
  withr::defer(server$stop())
  error <- expect_class(
    startServer("127.0.0.1", server$getPort(), list(), quiet = TRUE), "rookery_no_server"
  )
  # httpuv's message, for which packages search, and the reason.
  expect_equal(conditionMessage(error), paste0("Failed to create server: ", error$reason))
  expect_match(error$reason, "in use")
  missing <- expect_class(
    startPipeServer("/no/such/folder/socket", NULL, list(), quiet = TRUE), "rookery_no_server"
  )
  expect_match(conditionMessage(missing), "Failed to create server: .+")
  ws <- WebSocketClient$new("ws://127.0.0.1:1", autoConnect = FALSE)
  expect_class(ws$send("a"), "rookery_bad_state")
})

test_that("errors have `$argument`, the name of the argument that is wrong, or `$reason`", {
  argument_of <- function(code) tryCatch(code, error = function(error) error$argument)
  expect_equal(argument_of(service("a")), "timeoutMs")
  expect_equal(argument_of(startServer("127.0.0.1", 70000, list())), "port")
  expect_equal(argument_of(startServer("127.0.0.1", 0, list(call = 1))), "app$call")
  expect_equal(argument_of(staticPath("/no/such/folder")), "path")
  expect_equal(argument_of(stopServer(1)), "server")
  expect_equal(argument_of(tls_config("c", http2 = NA)), "http2")
  expect_equal(argument_of(acme("a.org")), "agree_tos")
  # acme() is called within the arguments of tls_config(), and its own argument is named.
  expect_equal(argument_of(tls_config(acme = acme(3))), "domain")
  expect_equal(argument_of(serve(identity, 8080)), "host")
  expect_equal(argument_of(serve(identity, log = 1)), "log")
  expect_equal(argument_of(serve(identity, log = "/no/such/folder/log")), "log")
  expect_equal(argument_of(serve(identity, admin = 1)), "admin")
  expect_equal(argument_of(serve("/no/such/app")), "target")
  expect_equal(argument_of(serve(identity, worker = 2)), "worker")
  expect_equal(argument_of(workers_config(max_age = "soon")), "max_age")
  expect_equal(argument_of(rookery_options()["nothing"]), "nothing")
  expect_equal(argument_of(rookery_options(prot = 1)), "prot")
  expect_equal(argument_of(rookery_options(1)), "...")
  expect_equal(argument_of(server_limits(max_body = 1)), "max_body")
  ws <- WebSocketClient$new("ws://127.0.0.1:1", autoConnect = FALSE)
  error <- tryCatch(ws$send("a"), error = identity)
  expect_null(error$argument)
  expect_equal(error$reason, conditionMessage(error))
})

test_that("serve() suggests the argument for a misspelt one, and passes other arguments on", {
  near <- function(...) tryCatch(serve("nowhere", ...), error = conditionMessage)
  expect_match(
    near(prot = 1), "`prot` is not an argument of serve(). Did you mean `port`?", fixed = TRUE
  )
  expect_match(near(logFormat = "json"), "Did you mean `log_format`?", fixed = TRUE)
  expect_match(near(log.format = "json"), "Did you mean `log_format`?", fixed = TRUE)
  expect_match(near(work = 2), "Did you mean `workers`?", fixed = TRUE)
  expect_match(near(Host = "::"), "Did you mean `host`?", fixed = TRUE)
  expect_match(near(lim = list()), "Did you mean `limits`?", fixed = TRUE)
  for (name in c(
    "launch.browser", "quiet", "display.mode", "test.mode", "docs", "debug", "block", "silent",
    "shiny_args", "open"
  )) {
    expect_match(
      do.call(near, stats::setNames(list(TRUE), name)), "`nowhere` does not exist", info = name
    )
  }
})

test_that("constructors check their arguments, and name the wrong one", {
  client <- function(...) WebSocketClient$new(..., autoConnect = FALSE)
  url <- "ws://127.0.0.1:1"
  for (case in list(
    list(quote(client("http://a")), "WebSocketClient: `url` is not the address of a WebSocket"),
    list(quote(client("ws://")), "WebSocketClient: `url` is not"),
    list(
      quote(client(url, maxMessageSize = 0)),
      "WebSocketClient: `maxMessageSize` must be a positive number of bytes, not 0"
    ),
    list(
      quote(client(url, protocols = "a b")),
      "WebSocketClient: `protocols` must be names of subprotocols"
    ),
    list(quote(client(url, headers = c("a b" = "x"))), "WebSocketClient: `headers` has \"a b\""),
    list(quote(client(url, headers = c(a = "x\r\nb: y"))), "WebSocketClient: `headers` has \"a\""),
    list(
      quote(acme("http://a.org", agree_tos = TRUE)),
      "acme(): no certificate can be ordered for `http://a.org`"
    ),
    list(
      quote(acme("a.org", email = "nobody", agree_tos = TRUE)),
      "acme(): `nobody` is not an e-mail address"
    ),
    list(quote(acme(NA)), "acme(): `domain` must be host names"),
    list(
      quote(tls_config("c.pem", http2 = NA)), "tls_config(): `http2` must be TRUE or FALSE, not NA"
    ),
    list(quote(workers_config(max_age = "soon")), "workers_config(): `max_age` must be a time"),
    list(
      quote(workers_config(max_memory = 512)), "workers_config(): `max_memory` must be 0, or a size"
    ),
    list(quote(workers_config("a")), "workers_config(): `workers` must be auto, or a whole number"),
    list(quote(workers_config(surge = 2)), "workers_config(): `surge` must be 0 or 1"),
    list(
      quote(workers_config(warmup = "x")),
      "workers_config(): `warmup` must be paths that begin with /"
    ),
    list(
      quote(serve("nowhere", worker = 2)),
      "`worker` is not an argument of serve(). Did you mean `workers`?"
    ),
    list(
      quote(serve("nowhere", max_body_size = "1MB")),
      "give it as `limits = server_limits(max_body_size = )`."
    ),
    list(
      quote(serve(identity, max_age = "1h")), "give it as `workers = workers_config(max_age = )`."
    ),
    list(quote(serve(identity, 8080)), "Did you mean `port = 8080`?"),
    list(quote(serve(list(cal = identity))), "Did you mean `call` instead of its field `cal`?")
  )) {
    expect_error(
      eval(case[[1]]), case[[2]], fixed = TRUE, class = "rookery_error", info = deparse(case[[1]])
    )
  }
  for (fine in list(
    quote(workers_config(2, max_memory = 2e9, drain = 5, warmup = c("/", "/x"))),
    quote(workers_config("4", max_memory = 0))
  )) {
    expect_s3_class(eval(fine), "rookery_workers")
  }
  expect_equal(
    rookery:::lines_of(workers_config(2, max_memory = 2e9)), c("workers=2", "max_memory=2000000000")
  )
})

test_that("a misspelt field of an app gives a warning, and other unknown fields give none", {
  start <- function(app) startServer("127.0.0.1", 0, app)$stop()
  expect_warning(
    start(list(onWsOpen = identity)),
    "`app$onWsOpen` is not a field of an app. Did you mean `onWSOpen`?", fixed = TRUE,
    class = "rookery_unknown_field"
  )
  expect_warning(start(list(cal = identity)), "Did you mean `call`?", fixed = TRUE)
  expect_warning(
    start(list2env(list(static_paths = list()))), "Did you mean `staticPaths`?", fixed = TRUE
  )
  expect_warning(start(list(call = identity, calls = 0, anything = 1)), NA)
  expect_warning(start(list()), NA)
})

test_that("a failed client gives one warning, unless it has onError or was closed", {
  skip_if_not_installed("processx")
  it <- local_r(c(
    "library(rookery)", "options(warn = 1)",
    "go <- function(ws) while (ws$readyState() != 3) service(20)",
    "port <- randomPort()",
    "url <- paste0('ws://127.0.0.1:', port, '/a?token=secret')",
    "ws <- WebSocketClient$new(url)", "go(ws); service(50)", "cat('then\\n')",
    "ws <- WebSocketClient$new(url)", "ws$onError(function(event) cat('told\\n'))",
    "go(ws); service(50)",
    "ws <- WebSocketClient$new(url)", "ws$close()", "for (i in 1:5) service(20)"
  ))
  expect_equal(exit_of(it), 0)
  text <- it$tell()
  expect_match(text, "The WebSocketClient of ws://127.0.0.1:[0-9]+/a has failed: .*then\ntold")
  expect_equal(lengths(regmatches(text, gregexpr("has failed", text))), 1)
  expect_no_match(text, "secret")
})

test_that("warnings appear as they happen while serve() runs, unless `warn` is set", {
  skip_if_not_installed("processx")
  app <- "function(req) { warning('careful'); list(status = 200L, headers = list(), body = 'a') }"
  it <- local_r(paste0("rookery::serve(", app, ", port = 0, log = FALSE)"))
  url <- expect_serving(it)
  fetch(url)
  expect_true(wait_until(function() grepl("careful", it$tell())))
  it <- local_r(c("options(warn = -1)", paste0("rookery::serve(", app, ", port = 0, log = FALSE)")))
  fetch(expect_serving(it))
  it$signal(15)
  expect_equal(exit_of(it), 0)
  expect_no_match(it$tell(), "careful")
})
