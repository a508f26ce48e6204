test_that("the destination of the log is checked when serving starts", {
  expect_equal(log_target(TRUE)$to, "stdout")
  expect_equal(log_target(FALSE)$to, "nothing")
  expect_equal(log_target(print)$to, "call")
  dir <- normalizePath(withr::local_tempdir())
  withr::local_dir(dir)
  expect_equal(
    log_target("access.log", "json"),
    list(to = "file", path = file.path(dir, "access.log"), call = NULL, format = "json")
  )
  expect_false(file.exists("access.log"))
  expect_error(log_target("no/such/folder/log"), "does not exist", class = "rookery_bad_log")
  expect_error(log_target(dir), "cannot be written", class = "rookery_bad_log")
  expect_error(log_target(NA), "`log` must be TRUE", class = "rookery_bad_log")
  expect_error(log_target(1), "`log` must be TRUE", class = "rookery_bad_log")
  expect_error(log_target(TRUE, "xml"), "json or terminal", class = "rookery_bad_log")
})

test_that("each request has a line in a file, static files included", {
  dir <- local_app("x.txt" = "static")
  path <- withr::local_tempfile()
  end <- log_open(log_target(path))
  withr::defer(end())
  server <- local_server(list(call = function(req) ok("hello"), staticPaths = list("/s" = dir)))
  client <- local_client(server)
  get(client, "/a%20b?q=\\")
  get(client, "/s/x.txt")
  get(client, "/s/none")
  disconnect(client)
  end()
  lines <- readLines(path)
  expect_length(lines, 3)
  form <- "^127\\.0\\.0\\.1 - - \\[\\d\\d/\\w{3}/\\d{4}:\\d\\d:\\d\\d:\\d\\d \\+0000\\] \"%s\" %s %s \\d+\\.\\d{6}$"
  expect_match(lines[[1]], sprintf(form, "GET /a%20b\\?q=\\\\\\\\ HTTP/1\\.1", 200, 5), perl = TRUE)
  expect_match(lines[[2]], sprintf(form, "GET /s/x\\.txt HTTP/1\\.1", 200, 7), perl = TRUE)
  expect_match(lines[[3]], sprintf(form, "GET /s/none HTTP/1\\.1", 404, 14), perl = TRUE)
})

test_that("JSON lines are JSON", {
  skip_if_not_installed("jsonlite")
  path <- withr::local_tempfile()
  end <- log_open(log_target(path, "json"))
  withr::defer(end())
  server <- local_server(function(req) ok("\u00e9"))
  client <- local_client(server)
  post(client, "/\\x\u00e9?a=1&b=", "body")
  end()
  line <- jsonlite::fromJSON(readLines(path, encoding = "UTF-8"))
  expect_equal(line$method, "POST")
  expect_equal(line$path, "/\\x\u00e9")
  expect_equal(line$query, "?a=1&b=")
  expect_equal(line$status, 200)
  expect_equal(line$bytes, 2)
  expect_gt(line$seconds, 0)
  expect_lt(
    abs(as.numeric(as.POSIXct(line$time, "UTC", "%Y-%m-%dT%H:%M:%OSZ")) - as.numeric(Sys.time())),
    60
  )
})

test_that("a combined line has the client, the times and the route", {
  path <- withr::local_tempfile()
  end <- log_open(log_target(path, "combined"))
  withr::defer(end())
  server <- local_server(function(req) {
    req$ROUTE <- "/users/<id>"
    ok("Ada")
  })
  client <- local_client(server)
  get(client, "/users/7?access_token=secret")
  disconnect(client)
  end()
  form <- paste0(
    "\"GET /users/7\\?access_token=<\\.\\.\\.> HTTP/1\\.1\" 200 3 ",
    "\"-\" \"[^\"]*\" \\d+\\.\\d{6} \\d+\\.\\d{6} \\d+\\.\\d{6} \"/users/<id>\"$"
  )
  expect_match(readLines(path), form, perl = TRUE)
})

test_that("lines at a terminal are aligned, and in a file they have no colour", {
  path <- withr::local_tempfile()
  end <- log_open(log_target(path, "terminal"))
  withr::defer(end())
  server <- local_server(function(req) ok("hello"))
  client <- local_client(server)
  get(client, "/a")
  disconnect(client)
  end()
  form <- "^\\d\\d:\\d\\d:\\d\\dZ GET     200 +\\d+\\.\\d ms  queue +\\d+\\.\\d ms  R +\\d+\\.\\d ms +5 B  /a$"
  expect_match(readLines(path), form, perl = TRUE)
})

test_that("a log function gets the route and the times", {
  seen <- NULL
  end <- log_open(log_target(function(line) seen <<- line))
  withr::defer(end())
  server <- local_server(function(req) {
    Sys.sleep(0.02)
    ok("hello")
  })
  client <- local_client(server)
  get(client, "/users/7")
  disconnect(client)
  expect_true(wait_until(function() {
    service(20)
    !is.null(seen)
  }))
  expect_equal(seen$route, "/users")
  expect_gte(seen$r_seconds, 0.02)
  expect_gte(seen$queue_seconds, 0)
})

test_that("a log function is called with the fields, and its errors are harmless", {
  seen <- list()
  end <- log_open(log_target(function(line) {
    seen[[length(seen) + 1]] <<- line
    stop("my log is broken")
  }))
  withr::defer(end())
  server <- local_server(function(req) list(status = 201L, headers = list(), body = "abc"))
  client <- local_client(server)
  said <- stderr_of({
    get(client, "/one?x")
    get(client, "/two")
    serve_until(function() length(seen) == 2)
  })
  expect_equal(seen[[1]][c("remote", "method", "path", "query", "status", "bytes")], list(
    remote = "127.0.0.1", method = "GET", path = "/one", query = "?x", status = 201L, bytes = 3
  ))
  expect_s3_class(seen[[1]]$time, "POSIXct")
  expect_lt(abs(as.numeric(seen[[1]]$time) - as.numeric(Sys.time())), 60)
  expect_equal(seen[[2]]$path, "/two")
  expect_length(grep("access log: my log is broken", said), 2)
})

test_that("a log function may call service() without being called within itself", {
  depth <- 0
  deepest <- 0
  seen <- 0
  end <- log_open(log_target(function(line) {
    depth <<- depth + 1
    deepest <<- max(deepest, depth)
    service(NA)
    depth <<- depth - 1
    seen <<- seen + 1
  }))
  withr::defer(end())
  server <- local_server(function(req) ok())
  client <- local_client(server)
  for (i in 1:3) send(client, request())
  for (i in 1:3) reply(client)
  serve_until(function() seen == 3)
  expect_equal(deepest, 1)
})

test_that("with a JSON log, all that R prints while it serves is JSON", {
  skip_on_os("windows")
  skip_if_not_installed("jsonlite")
  dir <- local_app("app.R" = c(
    "cat('to stdout\\n')",
    "message('to \\033[31m stderr')",
    "list(call = function(req) {",
    "  system('echo of a child')",
    "  if (req$PATH_INFO == '/fail') stop('no database\\nat all')",
    "  cat('no end')",
    "  list(status = 200L, headers = list(), body = 'ok')",
    "})"
  ))
  it <- local_r(sprintf("rookery::serve('%s/app.R', port = 0, log_format = 'json')\ncat('after')", dir))
  url <- expect_serving(it)
  fetch(paste0(url, "/fail"))
  fetch(url)
  it$signal(2)
  exit_of(it)
  text <- strsplit(it$tell(), "\n")[[1]]
  is_later <- text == "after"
  lines <- lapply(text[!is_later & nzchar(text)], jsonlite::fromJSON)
  messages <- vapply(lines, function(line) line$message %||% "", "")
  expect_true(all(c("to stdout", "to \033[31m stderr", "of a child", "no end") %in% messages))
  for (part in c(": no database$", "^  at all \\[", "base::stop")) {
    error <- lines[[grep(part, messages)[[1]]]]
    expect_equal(error[c("level", "stream")], list(level = "error", stream = "stderr"), info = part)
  }
  expect_true("/fail" %in% vapply(lines, function(line) line$path %||% "", ""))
})
