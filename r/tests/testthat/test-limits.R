# Limits and settings: their forms, their sources, and their enforcement.

set_all <- function(names, value) {
  structure(as.list(rep_len(value, length(names))), names = names)
}

test_that("limits have units", {
  limits <- server_limits(
    max_body_size = "10 MB", max_header_size = "64 KiB", header_timeout = "500 ms",
    request_timeout = "2 min", idle_timeout = 30, max_connections = "none",
    max_client_memory = 2^30
  )
  expect_mapequal(unclass(limits), list(
    max_body_size = 1e7, max_header_size = 65536, max_connections = Inf, header_timeout = 0.5,
    idle_timeout = 30, max_client_memory = 2^30, request_timeout = 120
  ))
  printed <- capture.output(print(limits))
  expect_match(printed, "max_body_size +10 MB", all = FALSE)
  expect_match(printed, "request_timeout +2 min", all = FALSE)
  expect_match(capture.output(print(server_limits())), "all defaults")
})

test_that("errors name the nearest limit for an unknown name and an example for a wrong value", {
  expect_error(
    server_limits(maxbodysize = 1), "`maxbodysize` is not an argument. Did you mean `max_body_size`",
    class = "rookery_bad_limit"
  )
  expect_error(server_limits(10), "must be given by name")
  for (bad in list("ten", NA, -1, c(1, 2), "1 XB", TRUE, list())) {
    expect_error(
      server_limits(max_body_size = bad), "`max_body_size` must be a size",
      class = "rookery_bad_limit"
    )
  }
  expect_error(server_limits(max_header_size = 10), "at least 8 KiB")
  expect_error(server_limits(max_connections = 1.5), "a whole number")
  error <- expect_error(server_limits(max_connections = -1), class = "rookery_bad_limit")
  expect_s3_class(error, "rookery_bad_argument")
  expect_equal(error$argument, "max_connections")
})

test_that("all documented forms of values are accepted, and no others", {
  same <- function(...) {
    for (value in list(...)) {
      expect_equal(server_limits(max_body_size = value)$max_body_size, 1e7, info = value)
    }
  }
  same(
    1e7, 10000000L, "10 MB", "10MB", " 10 mb ", "10_MB", "1e7", "10000000", "10000 kB", "0.01 GB",
    "10.0 MB"
  )
  # The forms of GNU coreutils, systemd and Docker.
  for (value in c("10M", "10 MiB", "10mib")) {
    expect_equal(server_limits(max_body_size = value)$max_body_size, 10 * 1024^2, info = value)
  }
  expect_equal(server_limits(max_body_size = 10.9)$max_body_size, 10)
  # Numbers that are too large are errors, also on the command line and in a file.
  expect_error(server_limits(max_body_size = "1e400"), "must be a size")
  bad <- list(
    NaN, NA_character_, NA_integer_, -Inf, "-1", "", " ", "MB", "10 X", "10 MB/s", "10 %", "10 s",
    "1,5 MB", "0x10", "10 MB 5", ".", "1e", "NaN",
    "NA", "\xff", "10 \xff", as.difftime(2, units = "mins"), factor("10"), Sys.time(), 1i, raw(1),
    quote(x), function() 1, new.env(),
    list(10), numeric(), character(), c("1", "2")
  )
  for (value in bad) {
    expect_error(
      server_limits(max_body_size = value), "`max_body_size` must be a size",
      class = "rookery_bad_limit"
    )
  }
  for (value in list(0, "0 s", "10 MB", -5)) {
    expect_error(server_limits(idle_timeout = value), "seconds", class = "rookery_bad_limit")
  }
  expect_error(server_limits(max_body_size = 1, 5), "must be given by name", class = "rookery_bad_limit")
  expect_error(
    server_limits(max_body = 1), "`max_body` is not an argument. Did you mean `max_body_size`?",
    fixed = TRUE, class = "rookery_bad_limit"
  )
  expect_error(
    rookery_options(prot = 1), "`prot` is not a setting. Did you mean `port`?", fixed = TRUE,
    class = "rookery_bad_setting"
  )
  expect_error(
    rookery_options(max_body_size = 1), "takes no arguments: .*sets a setting[.]$",
    class = "rookery_error"
  )
  expect_error(server_limits(body = 1), "`body` is not an argument", class = "rookery_bad_limit")
  for (limits in list("10 MB", 10, list(10), function() 1, c(max_body_size = 1))) {
    expect_error(startServer("127.0.0.1", 0, list(), limits = limits), class = "rookery_bad_limit")
  }
})

test_that("an invalid environment variable is an error that names the variable", {
  wrong <- function(variable, value, text) {
    withr::local_envvar(set_names_of(variable, value))
    expect_error(
      startServer("127.0.0.1", 0, list()),
      paste0("The environment variable ", variable, ".*", text), info = value
    )
  }
  set_names_of <- function(name, value) structure(value, names = name)
  withr::local_options(rookery.error_detail = NULL)
  for (value in c("ten", "-1", "10 parsecs", "\xff", "1 2")) {
    wrong("ROOKERY_MAX_BODY_SIZE", value, "must be a size")
  }
  wrong("ROOKERY_MAX_CONNECTIONS", "1.5", "must be a whole number")
  wrong("ROOKERY_REQUEST_TIMEOUT", "0", "at least 10 ms")
  for (value in c("perhaps", "2", "\xff")) wrong("ROOKERY_PROXY_PROTOCOL", value, "must be")
  for (value in c("all", "\xff", "NONE")) wrong("ROOKERY_ERROR_DETAIL", value, "must be")
  wrong("ROOKERY_SPOOL_DIR", "/no/such/folder", "not a folder")
  wrong("ROOKERY_TRUSTED_PROXIES", "\xff", "must be")
  wrong("ROOKERY_WS_ORIGINS", "https://example.org", "must be same, or hosts")
  wrong("ROOKERY_WS_COMPRESSION", "level 3", "must be on, off")
  # An empty value counts as not given.
  withr::local_envvar(ROOKERY_MAX_BODY_SIZE = "", ROOKERY_PROXY_PROTOCOL = "")
  startServer("127.0.0.1", 0, list())$stop()
})

test_that("settings are read from environment variables", {
  value_of <- function(name, value) {
    withr::local_options(structure(list(NULL), names = paste0("rookery.", name)))
    withr::local_envvar(structure(value, names = paste0("ROOKERY_", toupper(name))))
    found <- rookery:::setting_of(name)
    expect_equal(found$origin, "environment")
    found$value
  }
  for (value in c("1", "TRUE", "true", "T")) expect_true(value_of("proxy_protocol", value))
  for (value in c("0", "FALSE", "false")) expect_false(value_of("ws_compression", value))
  expect_equal(value_of("trusted_proxies", "10.0.0.0/8, 192.0.2.1,"), c("10.0.0.0/8", "192.0.2.1"))
  expect_equal(
    value_of("ws_origins", "example.org,*.example.org"), c("example.org", "*.example.org")
  )
  withr::local_options(
    rookery.ws_compression = list(level = 3, takeover = TRUE),
    rookery.ws_origins = c("a.org", "b.org")
  )
  printed <- capture.output(print(rookery_options()))
  expect_match(
    printed, "^ws_compression +level = 3, threshold = 512, takeover = TRUE +option$", all = FALSE
  )
  expect_match(printed, "^ws_origins +a.org, b.org +option$", all = FALSE)
})

test_that("a server without limits serves, and one with all minimums stops cleanly", {
  app <- list(
    call = function(req) {
      if (req$PATH_INFO == "/stream") {
        streamed(chunks_of("a", "b"))
      } else {
        ok(rawToChar(req$rook.input$read()))
      }
    },
    onWSOpen = function(ws) ws$onMessage(function(binary, message) ws$send(message)),
    wsCompression = list(takeover = TRUE)
  )
  server <- local_limited(app, limits = set_all(limit_names(), Inf))
  lines <- paste0("X-", 1:500, ": a")
  expect_equal(post(local_client(server), "/", strrep("x", 3e6), lines)$text, strrep("x", 3e6))
  client <- local_client(server)
  send(client, request("/stream"))
  serve_until(function() {
    fill(client)
    find_raw(client$read, charToRaw("0\r\n\r\n")) > 0
  })
  client <- local_client(server)
  upgrade(client)
  send(client, frame("to and fro"))
  expect_equal(rawToChar(next_frame(client)$payload), "to and fro")
  # Without a request timeout, stopping would wait for the response.
  disconnect(client)
  server$stop()
  for (i in 1:20) service(NA)
  least <- set_all(limit_names(), 1)
  least[c("max_header_size", "max_client_memory")] <- list(8192, 1048576)
  server <- local_limited(app, limits = least)
  client <- local_client(server)
  send(client, request("/"))
  for (i in 1:20) service(5)
  server$stop()
  expect_false(server$isRunning())
  server <- local_limited(app, limits = list(max_client_memory = "1 MiB"))
  expect_equal(get(local_client(server), "/")$status, 200)
})

test_that("limits that the running servers do not have are reported, wherever they were set", {
  first <- startServer("127.0.0.1", 0, list())
  withr::defer({
    first$stop()
    service(NA)
  })
  second <- function() startServer("127.0.0.1", 0, list())$stop()
  withr::with_options(list(rookery.max_body_size = "1 KB"), {
    warned <- expect_warning(second(), class = "rookery_bad_limit")
    expect_match(
      conditionMessage(warned),
      "^The option `rookery.max_body_size` has no effect on this server, whose `max_body_size` is none"
    )
    # An error has no warning besides.
    expect_no_warning(
      expect_error(startServer("127.0.0.1", 0, list(), limits = list(idle_timeout = "7 s")))
    )
  })
  withr::with_envvar(c(ROOKERY_IDLE_TIMEOUT = "7 s"), {
    expect_warning(second(), "variable ROOKERY_IDLE_TIMEOUT has no effect", class = "rookery_bad_limit")
  })
  for (place in c("cli", "file", "argument")) {
    assign("settings", set_names(list(list(max_body_size = 1000)), place), envir = .globals)
    expect_error(second(), "same limits", class = "rookery_bad_limit")
  }
  .globals$settings <- NULL
  # The same values, or none, are no reason for a warning.
  withr::local_options(rookery.max_body_size = Inf)
  expect_no_warning(second())
})

test_that("the environment variables of settings have the same names in a Turkish locale", {
  skip_if(Sys.which("localedef") == "", "localedef is not installed")
  locales <- withr::local_tempdir()
  made <- system2(
    "localedef",
    c("-i", "tr_TR", "-f", "UTF-8", "--no-archive", file.path(locales, "tr_TR.UTF-8")),
    stdout = FALSE, stderr = FALSE
  )
  withr::local_envvar(LOCPATH = locales, ROOKERY_MAX_BODY_SIZE = "1 KB")
  former <- Sys.getlocale("LC_CTYPE")
  withr::defer(Sys.setlocale("LC_CTYPE", former))
  skip_if(suppressWarnings(Sys.setlocale("LC_CTYPE", "tr_TR.UTF-8")) == "", "no Turkish locale")
  expect_false(toupper("i") == "I")
  expect_equal(setting_of("max_body_size")$value, 1000)
  expect_equal(ascii_lower("CONTENT-DISPOSITION"), "content-disposition")
  expect_error(staticPath("/usr", headers = list("TRANSFER-ENCODING" = "x")), "cannot have")
  expect_error(accept_ws(headers = list("CONNECTION" = "x")), "must not have CONNECTION")
})

test_that("no case mapping of the package depends on the locale", {
  sources <- test_path("..", "..", c("R", "src"))
  skip_if_not(all(dir.exists(sources)), "the source of the package")
  files <- list.files(sources, "[.](R|c|h)$", full.names = TRUE)
  mapping <- "^[^#/]*\\b(to(upper|lower)|casefold|strn?casecmp|ignore[.]case) *[(=]"
  found <- unlist(lapply(files, function(file) grep(mapping, readLines(file), value = TRUE)))
  expect_equal(grep("#'", found, value = TRUE, invert = TRUE), character())
})

test_that("limits are enforced, and shared by all servers", {
  server <- local_limited(function(req) ok(), limits = server_limits(max_body_size = 10))
  expect_equal(post(local_client(server), "/", "123456789")$status, 200)
  expect_equal(post(local_client(server), "/", "12345678901")$status, 413)
  expect_error(
    startServer("127.0.0.1", 0, list(), limits = list(max_body_size = 20)), "have the same limits",
    class = "rookery_bad_limit"
  )
  # A server with the same limits, or none given, can be started as well.
  other <- startServer("127.0.0.1", 0, list(), limits = list(max_body_size = 10))
  withr::defer(other$stop())
  expect_equal(post(local_client(other), "/", "12345678901")$status, 413)
  # Limits that were given to serve() are not ignored silently.
  expect_error(
    serve(
      list(call = function(req) ok()), port = 0, log = FALSE, limits = list(max_body_size = 20)
    ),
    "have the same limits"
  )
})

test_that("the order is argument, environment, option, default", {
  origin <- function(name) {
    all <- rookery_options()
    unlist(all[all$name == name, c("value", "origin")], use.names = FALSE)
  }
  expect_equal(origin("max_body_size"), c("none", "default"))
  withr::local_options(rookery.max_body_size = "many")
  expect_error(rookery_options(), "The option `rookery.max_body_size` must be a size")
  withr::local_options(rookery.max_body_size = "20 MB")
  expect_equal(origin("max_body_size"), c("20 MB", "option"))
  withr::local_envvar(ROOKERY_MAX_BODY_SIZE = "10")
  expect_equal(origin("max_body_size"), c("10 B", "environment"))
  server <- local_limited(function(req) ok())
  expect_equal(post(local_client(server), "/", "12345678901")$status, 413)
  server$stop()
  server <- local_limited(function(req) ok(), limits = list(max_body_size = "1 KB"))
  expect_equal(post(local_client(server), "/", "12345678901")$status, 200)
  expect_error(withr::with_envvar(c(ROOKERY_ERROR_DETAIL = "all"), withr::with_options(
    list(rookery.error_detail = NULL), rookery_options()
  )), "The environment variable ROOKERY_ERROR_DETAIL must be")
})

test_that("settings are printed with their origin", {
  withr::local_options(rookery.header_timeout = "5 s")
  printed <- capture.output(print(rookery_options()))
  expect_match(printed[[1]], "^setting +value +origin$")
  expect_match(printed, "^header_timeout +5 s +option$", all = FALSE)
  expect_match(printed, "^max_client_memory +a quarter of the memory .* +default$", all = FALSE)
})

test_that("a request that takes too long results in status 504, and R continues", {
  late <- NULL
  app <- function(req) {
    if (req$PATH_INFO == "/quick") return(ok("quick"))
    promises::promise(function(resolve, reject) late <<- resolve)
  }
  server <- local_limited(app, limits = list(request_timeout = "1 s"))
  client <- local_client(server)
  answer <- get(client, "/never")
  expect_equal(answer$status, 504)
  expect_equal(get(client, "/quick")$text, "quick")
  # No client waits for it any more.
  late(ok("late"))
  expect_equal(get(client, "/quick")$text, "quick")
})

test_that("R is interrupted only with interrupt_requests", {
  app <- function(req) {
    until <- Sys.time() + if (req$PATH_INFO == "/ok") 0 else 4
    while (Sys.time() < until) Sys.sleep(0.01)
    ends <<- ends + 1
    ok()
  }
  ends <- 0
  server <- local_limited(app, limits = list(request_timeout = "1 s"))
  client <- local_client(server)
  expect_equal(get(client, "/slow")$status, 504)
  expect_equal(ends, 1)
  server$stop()
  withr::local_options(rookery.interrupt_requests = TRUE)
  server <- local_limited(app, limits = list(request_timeout = "1 s"))
  client <- local_client(server)
  said <- stderr_of(expect_equal(get(client, "/slow")$status %in% c(500, 504), TRUE))
  expect_match(said, "GET /slow (call): reached elapsed time limit", fixed = TRUE, all = FALSE)
  expect_equal(ends, 1)
  # The time limit ends with the request.
  expect_equal(get(client, "/ok")$status, 200)
  Sys.sleep(1.5)
  expect_equal(ends, 2)
})

# crates/cli and test-serve-cli.R test the command line.
test_that("limits can be given in _server.yml", {
  skip_if_not_installed("yaml")
  dir <- local_app(
    "_server.yml" = c(
      "engine: rookery", "app: app.R", "options:", "  limits:", "    max_body_size: 10",
      "  error_detail: message"
    ),
    "app.R" = "function(req) if (req$PATH_INFO == '/no') stop('told') else list(status = 200L, headers = list(), body = '')"
  )
  read <- rookery:::settings_read(file.path(dir, "_server.yml"))
  expect_equal(read$settings, list(max_body_size = 10L, error_detail = "message"))
  writeLines(
    c("engine: rookery", "app: app.R", "options:", "  limits:", "    max_bodysize: 10"),
    file.path(dir, "wrong.yml")
  )
  expect_error(
    rookery:::settings_read(file.path(dir, "wrong.yml")),
    "is not a setting under `limits:`. Did you mean `max_body_size:`"
  )
})

test_that("a folder in a _server.yml is relative to the file", {
  skip_if_not_installed("yaml")
  dir <- local_app(
    "_server.yml" = c(
      "engine: rookery", "app: app.R", "options:", "  spool_dir: large", "  ws_compression:",
      "    level: 3", "  ws_origins: [a.org]"
    ),
    "app.R" = "function(req) list(status = 200L, headers = list(), body = rookery:::spool_dir())"
  )
  file <- file.path(dir, "_server.yml")
  expect_equal(rookery:::settings_read(file)$settings, list(
    spool_dir = file.path(dir, "large"),
    ws_compression = list(level = 3, threshold = 512, takeover = FALSE), ws_origins = "a.org"
  ))
  expect_error(
    launch_server(file, port = 0),
    "`spool_dir:` of the _server.yml names `.*large`, which is not a folder"
  )
})

test_that("another R process gets the options of this session, and whether it is interactive", {
  withr::local_options(
    rookery.error_detail = NULL, rookery.max_body_size = "1 MB",
    rookery.ws_compression = list(level = 3), rookery.ws_origins = "a.org",
    rookery.proxy_protocol = TRUE, rookery.trusted_proxies = "192.0.2.1", rookery.spool_dir = NULL
  )
  expect_equal(rookery:::session_options(FALSE), list(
    rookery.trusted_proxies = "192.0.2.1", rookery.proxy_protocol = TRUE,
    rookery.ws_origins = "a.org",
    rookery.ws_compression = list(level = 3), rookery.max_body_size = "1 MB"
  ))
  expect_equal(rookery:::session_options(TRUE)$rookery.error_detail, "message")
  # The other process reads the environment itself.
  withr::local_envvar(ROOKERY_ERROR_DETAIL = "none")
  expect_null(rookery:::session_options(TRUE)$rookery.error_detail)
  dir <- normalizePath(withr::local_tempdir())
  withr::local_dir(dirname(dir))
  withr::local_envvar(ROOKERY_SPOOL_DIR = basename(dir))
  expect_equal(rookery:::session_options(FALSE)$rookery.spool_dir, dir)
})

test_that("the R process that serves a path has the given limits, settings and options", {
  skip_on_cran()
  dir <- local_app("app.R" = c(
    "function(req) {",
    "  if (req$PATH_INFO == '/no') stop('told to nobody')",
    "  all <- rookery::rookery_options()",
    "  wanted <- c('max_body_size', 'header_timeout', 'idle_timeout')",
    "  list(status = 200L, headers = list(), body = paste(all$value[match(wanted, all$name)], all$origin[match(wanted, all$name)], collapse = ';'))",
    "}"
  ))
  it <- local_cli(
    "serve", dir, "--port", "0", "--log=none", "--max-body-size", "10",
    environment = c(ROOKERY_HEADER_TIMEOUT = "20 s")
  )
  url <- expect_serving(it)
  expect_equal(fetch(url)$text, "10 command line;20 s environment;2 min default")
  expect_equal(fetch(url, post = TRUE, postfields = "12345678901")$status_code, 413)
  failed <- fetch(paste0(url, "/no"))
  expect_equal(failed$status_code, 500)
  expect_no_match(failed$text, "told to nobody")
  id <- sub("^.*Request ([0-9a-f]+)\n.*$", "\\1", failed$text)
  expect_match(rawToChar(failed$headers), id, fixed = TRUE)
  expect_match(it$tell(), paste0("GET /no (call): told to nobody [", id, "]"), fixed = TRUE)
})

test_that("a response with too many headers is replaced by status 500, and the server goes on", {
  server <- local_server(function(req) {
    n <- if (req$PATH_INFO == "/many") 40000 else 1
    list(status = 200L, headers = rep(list(a = "b"), n), body = "x")
  })
  client <- local_client(server)
  said <- stderr_of({
    send(client, request("/many"))
    many <- reply(client)
    send(client, request())
    one <- reply(client)
  })
  expect_equal(c(many$status, one$status), c(500L, 200L))
  expect_match(said, "must not have more than 10,000 elements", all = FALSE)
})
