# Errors about arguments are raised when the argument is given, and name it.

hello_app <- function(req) list(status = 200L, headers = list(), body = "hello")

is_name <- function(x) is.character(x) && length(x) == 1 && !is.na(x) && nzchar(x)

test_that("every exported function reports a bad argument at once", {
  server <- local_server(hello_app)
  ws <- WebSocket$new(NULL, NULL)
  bad <- list(
    list(quote(startServer("127.0.0.1", 0, 42)), "`app` must be a function .* not 42"),
    list(quote(startServer("127.0.0.1", 0, "app.R")), "`app` must be .* not \"app.R\""),
    list(quote(startServer("127.0.0.1", 0, NA)), "`app` must be .* not NA"),
    list(quote(startServer("127.0.0.1", 0, quote(x))), "`app` must be .* not a symbol"),
    list(
      quote(startServer("127.0.0.1", 0, list(call = 42))), "`app\\$call` must be a function, not 42"
    ),
    list(
      quote(startServer("127.0.0.1", 0, list(onHeaders = "x"))),
      "`app\\$onHeaders` must be a function"
    ),
    list(
      quote(startServer("127.0.0.1", 0, list(onWSOpen = list()))),
      "`app\\$onWSOpen` must be a function, not a list"
    ),
    list(quote(startServer("127.0.0.1", 0, list(staticPaths = 1))), "paths must be a named"),
    list(
      quote(startServer("127.0.0.1", 0, list(staticPathOptions = list()))),
      "staticPathOptions must be an object"
    ),
    list(
      quote(startServer("127.0.0.1", 0, list(), quiet = NULL)),
      "`quiet` must be TRUE or FALSE, not NULL"
    ),
    list(
      quote(startServer("127.0.0.1", 0, list(onError = "x"))), "`app\\$onError` must be a function"
    ),
    list(quote(sse_response(headers = 42)), "`headers` must be a named list"),
    list(quote(stream_response(headers = list("x"))), "`headers` must be a named list"),
    list(quote(sse_body(identity, headers = "x")), "`headers` must be a named list"),
    list(
      quote(startServer("127.0.0.1", 0, list(), limits = 42)),
      "`limits` must be the value of server_limits"
    ),
    list(quote(server_limits(body = 1)), "`body` is not an argument"),
    list(
      quote(server_limits(max_body_size = "ten")), "`max_body_size` must be a size.* not \"ten\""
    ),
    list(quote(startServer(NULL, 0, list())), "`host` must be"),
    list(quote(startServer(c("::1", "::"), 0, list())), "`host` must be"),
    list(quote(startServer("127.0.0.1", "80", list())), "`port` must be"),
    list(
      quote(startServer("127.0.0.1", 70000, list())),
      "`port` must be one whole number from 0 to 65535, not 70000"
    ),
    list(quote(startDaemonizedServer("127.0.0.1", 0, 42)), "`app` must be"),
    list(quote(runServer("127.0.0.1", 0, 42)), "`app` must be"),
    list(quote(startPipeServer(42, NULL, list())), "`name` must be the path of a socket"),
    list(quote(startPipeServer("", NULL, list())), "`name` must be the path of a socket"),
    list(quote(startPipeServer(tempfile(), "077", list())), "`mask` must be NULL or a umask"),
    list(quote(startPipeServer(tempfile(), 0.5, list())), "`mask` must be NULL or a umask"),
    list(quote(startPipeServer(tempfile(), NULL, 42)), "`app` must be"),
    list(quote(service(NULL)), "`timeoutMs` must be one number"),
    list(quote(service("100")), "`timeoutMs` must be one number"),
    list(quote(service(c(1, 2))), "`timeoutMs` must be one number"),
    list(quote(service(TRUE)), "`timeoutMs` must be one number"),
    list(quote(stopServer("x")), "Object must be an object of class Server"),
    list(quote(ws$onMessage("x")), "`func` must be a function, not \"x\""),
    list(quote(ws$onClose(NULL)), "`func` must be a function, not NULL"),
    list(quote(ws$onClose(emptyenv())), "`func` must be a function, not an environment"),
    list(quote(ws$onDrain(1)), "`func` must be a function, not 1"),
    list(quote(accept_ws(1)), "`protocol` must be names of subprotocols, .* not 1"),
    list(
      quote(startServer("127.0.0.1", 0, list(wsProtocols = 1))),
      "`app\\$wsProtocols` must be names of subprotocols"
    ),
    list(quote(server$setStaticPath("a")), "paths must be a named"),
    list(quote(server$removeStaticPath(42)), "`path` must be names of static paths"),
    list(quote(server$setStaticPathOption(nonsense = 1)), "Unknown options: nonsense"),
    list(quote(staticPath(42)), "`path` must be a non-empty string"),
    list(quote(staticPath("/no/such/folder")), "No such file"),
    list(quote(staticPathOptions(indexhtml = "x")), "`indexhtml` option must be TRUE or FALSE"),
    list(quote(as.staticPath(42)), "Cannot convert object of class numeric"),
    list(quote(runStaticServer(42)), "`dir` must be one string, not 42"),
    list(
      quote(runStaticServer(tempdir(), background = NA)),
      "`background` must be TRUE or FALSE, not NA"
    ),
    list(quote(runStaticServer(tempdir(), browse = "x")), "`browse` must be TRUE or FALSE"),
    list(quote(runStaticServer(tempdir(), host = "example.org")), "`host` must be an IP address"),
    list(
      quote(randomPort(host = "example.org")), "`host` must be an IP address .* not \"example.org\""
    ),
    list(quote(randomPort(host = 1)), "`ip` must be one string"),
    list(quote(randomPort(min = "a")), "`min` must be one number"),
    list(quote(randomPort(n = -1)), "`n` must not be negative"),
    list(quote(ipFamily(1)), "`ip` must be one string"),
    list(quote(acme("a.org")), "agree to these terms with `agree_tos = TRUE`"),
    list(quote(rawToBase64("x")), "`x` must be a raw vector"),
    list(quote(encodeURI(list())), "`value` must be a character vector"),
    list(quote(decodeURIComponent(NULL)), "`value` must be a character vector"),
    list(quote(use_compat(quiet = "no")), "`quiet` must be TRUE or FALSE"),
    list(quote(install_compat(1)), "`file` must be one string"),
    list(quote(install_compat("none.tar.gz")), "`none.tar.gz` does not exist"),
    list(quote(install_cli(dir = 1)), "`dir` must be one string"),
    list(
      quote(install_cli(dir = tempdir(), overwrite = NULL)), "`overwrite` must be TRUE or FALSE"
    ),
    list(quote(serve(42, port = 0)), "class numeric cannot be served"),
    list(
      quote(serve(hello_app, host = "example.org")), "`host` must be \"localhost\" or an IP address"
    ),
    list(quote(serve(hello_app, port = "http")), "`port` must be a whole number"),
    list(quote(serve(hello_app, port = 0, log = 1)), "`log` must be TRUE"),
    list(quote(serve(hello_app, port = 0, log_format = "xml")), "`log_format` must be"),
    list(
      quote(serve(hello_app, port = 0, log = FALSE, threads = 4)),
      "no further arguments to this app: `threads`"
    ),
    list(quote(stream_body(42)), "`source` must be a function that returns a chunk"),
    list(quote(stream_body(function() NULL, on_close = 3)), "`on_close` must be a function"),
    list(quote(stream_response(status = "x")), "`status` must be one whole number from 200 to 999"),
    list(quote(sse_response(heartbeat = "a")), "`heartbeat` must be a number of seconds"),
    list(quote(sse_body(42)), "`source` must be a function"),
    list(quote(sse_body(function() NULL, map = 3)), "`map` must be a function"),
    list(quote(stream_body(function() NULL, compress = 1)), "`compress` must be TRUE or FALSE"),
    list(quote(sse_response(compress = "x")), "`compress` must be TRUE or FALSE"),
    list(quote(sse_event("a", id = "a\nb")), "`id` must be one string without line breaks"),
    list(quote(receive_body(42, function() NULL)), "`on_data` must be a function, not 42"),
    list(
      quote(receive_body(function(x) NULL, function() NULL, on_close = 3)),
      "`on_close` must be a function, not 3"
    ),
    list(quote(plumber_errors(42)), "`pr` must be a plumber router, not 42"),
    list(
      quote(plumber_errors(structure(new.env(), class = "Plumber"), on_error = 1)),
      "`on_error` must be a function, not 1"
    ),
    list(quote(tls_config(1)), "`cert` must be the path of a PEM file or its text"),
    list(
      quote(startServer("127.0.0.1", 0, hello_app, tls = TRUE)), "`tls` must be made by tls_config"
    ),
    list(
      quote(workers_config(drain = TRUE)),
      "workers_config\\(\\): `drain` must be a time .*, not TRUE"
    ),
    list(quote(workers_config(fail_fast = "perhaps")), "`fail_fast` must be TRUE or FALSE, not"),
    list(
      quote(workers_config(spares = 1:2)),
      "`spares` must be a whole number from 0 to 1000, not"
    ),
    list(quote(workers_config(warmup = NA_character_)), "`warmup` must be paths .*, not NA"),
    list(quote(workers_config(embed = 2)), "`embed` must be TRUE or FALSE, not 2"),
    list(
      quote(serve(hello_app, port = 0, admin = TRUE)),
      "`admin` must be an address with a port, such as 127.0.0.1:9100"
    ),
    list(
      quote(serve(hello_app, workers = TRUE)),
      "`workers` must be auto, or a whole number from 1 to 1000, not TRUE"
    ),
    list(quote(serve(hello_app, workers = 2)), "Workers can only serve a path"),
    list(quote(rookery_options(prot = 1)), "`prot` is not a setting. Did you mean `port`"),
    list(quote(launch_server(42)), "`settings` must be one string"),
    list(quote(launch_server("/no/such.yml")), "does not exist"),
    list(quote(dev(5)), "`path` must be a string")
  )
  for (case in bad) {
    info <- deparse(case[[1]])[[1]]
    said <- tryCatch(
      suppressMessages(capture.output(eval(case[[1]]), type = "message")), error = identity
    )
    if (inherits(said, "error")) {
      expect_s3_class(said, "rookery_error")
      expect_true(is_name(said$argument) || is_name(said$reason), info = info)
      if (inherits(said, "rookery_bad_argument")) expect_true(is_name(said$argument), info = info)
      said <- conditionMessage(said)
    }
    expect_match(paste(said, collapse = "\n"), case[[2]], info = info)
  }
  # Every function with arguments is in the table, or accepts any value, as stopAllServers() does.
  called <- unlist(lapply(bad, function(case) all.names(case[[1]])))
  takes <- Filter(
    function(name) is.function(getExportedValue("rookery", name)), getNamespaceExports("rookery")
  )
  takes <- Filter(function(name) length(formals(getExportedValue("rookery", name))) > 0, takes)
  others <- c("stopDaemonizedServer", "encodeURIComponent", "decodeURI")
  expect_setequal(setdiff(takes, called), others)
})

test_that("apps may be NULL, empty lists, environments, functions or objects, as in httpuv", {
  methods::setClass("AppS4", representation(call = "function"), where = environment())
  apps <- list(
    NULL, list(), new.env(), hello_app, list(call = NULL), list(call = hello_app, onWSOpen = NULL),
    R6::R6Class("App", public = list(call = hello_app))$new(),
    methods::setRefClass(
      "AppRef", methods = list(call = function(req) hello_app(req)), where = environment()
    )$new()
  )
  statuses <- vapply(apps, function(app) {
    server <- local_server(app)
    get(local_client(server), "/")$status
  }, 1L)
  expect_identical(statuses, c(404L, 404L, 404L, 200L, 404L, 200L, 200L, 200L))
})

test_that("a restored server raises an error, and does not stop other servers", {
  server <- local_server(hello_app)
  file <- withr::local_tempfile()
  # Saves and restores the object as `.RData` does.
  save(server, file = file)
  restored <- new.env()
  load(file, envir = restored)
  expect_true(server$isRunning())
  expect_false(restored$server$isRunning())
  expect_error(restored$server$getStaticPaths(), "was started by another R session.*startServer")
  expect_error(restored$server$setStaticPath(a = tempdir()), "was started by another R session")
  expect_error(restored$server$removeStaticPath("a"), "was started by another R session")
  expect_error(restored$server$getStaticPathOptions(), "was started by another R session")
  expect_error(
    restored$server$setStaticPathOption(indexhtml = TRUE), "was started by another R session"
  )
  expect_warning(
    stopServer(restored$server), "Nothing to stop: this server was started by another R session"
  )
  # The error is raised once, and the server with the same handle continues.
  expect_no_warning(stopServer(restored$server))
  expect_identical(get(local_client(server), "/")$text, "hello")
})

test_that("a restored WebSocket does not send to another connection with the same id", {
  opened <- NULL
  server <- local_server(list(call = hello_app, onWSOpen = function(ws) opened <<- ws))
  client <- local_client(server)
  upgrade(client)
  serve_until(function() !is.null(opened))
  restored <- unserialize(serialize(opened, NULL))
  expect_error(restored$send("stray"), "was saved and restored")
  expect_error(restored$close(), "was saved and restored")
  opened$send("meant")
  expect_identical(rawToChar(next_frame(client)$payload), "meant")
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
  exports <- Filter(
    function(name) is.function(getExportedValue("rookery", name)), getNamespaceExports("rookery")
  )
  for (name in setdiff(exports, httpuvs)) {
    # Only arguments that come from httpuv have names in camelCase.
    expect_no_match(name, "[a-z][A-Z]")
    arguments <- names(formals(getExportedValue("rookery", name)))
    if (length(arguments) > 1) expect_true("..." %in% arguments, info = name)
  }
})
