# A worker under a supervisor for tests: listeners, messages, and the end of the worker.

# This worker ignores SIGTERM, so its end takes a while. The last test waits for its end, and the
# other tests run meanwhile.
stubborn <- local_supervisor(
  c("sh", "-c", paste0(
    "trap '' TERM; exec ", file.path(R.home("bin"), "Rscript"),
    " -e 'library(rookery); runServer(\"127.0.0.1\", 80, identity)'"
  )),
  env = testthat::teardown_env()
)
stubborn$expect_ready()
stubborn$ask("close")

hello <- 'app <- function(req) list(status = 200L, headers = list("Content-Type" = "text/plain"), body = "hello")'

test_that("a server gets the worker's requests whatever port it asks for", {
  # A port in use.
  holder <- startServer("127.0.0.1", 0, list())
  withr::defer(holder$stop())
  port <- holder$getPort()
  worker <- local_worker(c(
    "app <- function(req) {",
    "  told <- c(req$REMOTE_ADDR, req$REMOTE_PORT, req$SERVER_NAME, req$SERVER_PORT, req$rook.url_scheme, req$REQUEST_ID)",
    "  client <- c(req$TLS_CLIENT_SUBJECT, req$TLS_CLIENT_FINGERPRINT)",
    "  hidden <- is.null(req$HTTP_ROOKERY_CALL) && !'rookery-call' %in% names(req$HEADERS)",
    "  said <- paste(c(told, client, hidden, format(server), server$getHost(), server$getPort()), collapse = '|')",
    "  list(status = 200L, headers = list(), body = said)",
    "}",
    sprintf("server <- startServer('127.0.0.1', %d, app)", port),
    "service(0)"
  ))
  worker$expect_ready()
  print <- paste0(
    "<WebServer http://127.0.0.1:", port, ": running as worker 1, 1 connection>|127.0.0.1|", port
  )
  fingerprint <- strrep("ab", 32)
  call <- call_of(
    1, 0, paste("https 192.0.2.1:4000 198.51.100.7:443 abc.1", fingerprint, "CN=Ada%20L")
  )
  answer <- worker$get(
    "/", call, c(Host = "example.org", "X-Request-Id" = "theirs", "X-Forwarded-Proto" = "http")
  )
  expect_identical(
    answer$text,
    paste0("192.0.2.1|4000|198.51.100.7|443|https|abc.1|CN=Ada L|", fingerprint, "|TRUE|", print)
  )
  # Without a header of the client that sets the id.
  expect_match(
    worker$get("/", call_of(2, 0, "http - - id-2 - -"))$text, "|http|id-2|TRUE|", fixed = TRUE
  )
  # For a client about which nothing is known.
  answer <- worker$get("/", call_of(3, 0))
  expect_match(answer$text, "^\\|0\\|[^|]*\\|[^|]*\\|http\\|[0-9a-f]{32}\\|TRUE\\|<WebServer")
})

test_that("a further server, and one without an app, listen on their own address", {
  worker <- local_worker(c(
    hello,
    # Shiny searches for a free port in this way.
    "probe <- startServer('127.0.0.1', 0, list())",
    "port <- probe$getPort()",
    "stopServer(probe)",
    "first <- startServer('127.0.0.1', 80, app)",
    "second <- startServer('127.0.0.1', port, function(req) list(status = 200L, headers = list(), body = 'second'))",
    "cat('port', port, '\\n')",
    "cat(format(second), '\\n')",
    "taken <- tryCatch(startServer('127.0.0.1', port, app), error = conditionMessage)",
    "cat('taken:', taken, '\\n')",
    "service(0)"
  ))
  worker$expect_ready()
  expect_identical(worker$get()$text, "hello")
  port <- sub(".*port ([0-9]+).*", "\\1", worker$tell())
  expect_identical(fetch(paste0("http://127.0.0.1:", port))$text, "second")
  expect_match(
    worker$tell(), paste0("<WebServer http://127.0.0.1:", port, ": running, 0 connections>"),
    fixed = TRUE
  )
  expect_match(worker$tell(), "taken: Failed to create server")
  # The supervisor is notified once.
  expect_identical(worker$ask("receive 0.2"), "nothing")
})

test_that("the rings outlive a server, and the supervisor is notified when no server listens", {
  worker <- local_worker(c(
    hello,
    "first <- startServer('127.0.0.1', 80, app)",
    "service(NA)",
    "stopServer(first)",
    # With other limits, so that the server is replaced and reads from its supervisor again.
    "second <- startPipeServer('/nowhere/at/all', NULL, app, limits = server_limits(max_body_size = 1e6))",
    "cat(format(second), '\\n')",
    "service(0)"
  ))
  worker$expect_ready()
  expect_identical(worker$ask("receive"), "L 0")
  worker$expect_ready()
  expect_identical(worker$get()$text, "hello")
  expect_match(
    worker$tell(), "<PipeServer unix:/nowhere/at/all: running as worker 1, 0 connections>",
    fixed = TRUE
  )
  worker$ask("send p 7")
  expect_identical(worker$ask("receive"), "P 7")
})

test_that("a process that cannot be a worker says why, and does not serve", {
  worker <- local_r(
    c(
      "library(rookery)", "cat(Sys.getenv('ROOKERY_INTERNAL_CONTROL_FD'), '\\n')",
      "tryCatch(startServer('127.0.0.1', 0, identity), error = print)"
    ),
    environment = c(ROOKERY_INTERNAL_CONTROL_FD = "0")
  )
  expect_identical(exit_of(worker), 0L)
  expect_match(worker$tell(), "ROOKERY_INTERNAL_CONTROL_FD is \"0\", which is not a descriptor above 2: only `rookery serve --workers` may set this variable")
})

test_that("plumber's run() gets the worker's clients whatever its port", {
  skip_if_not_installed("plumber")
  dir <- local_app(
    plumber.R = c("#* @get /echo", "#* @serializer text", "function(x) paste('echo', x)")
  )
  worker <- local_worker(
    c("use_compat(quiet = TRUE)", "plumber::pr_run(plumber::plumb('plumber.R'), port = 8000)"), dir
  )
  # plumber uses onHeaders.
  worker$expect_ready(1)
  expect_identical(worker$get("/echo?x=1")$text, "echo 1")
  expect_identical(worker$ask("kill 15"), "sent")
  expect_identical(worker$ask("wait"), "-15")
})

test_that("a Shiny app gets the worker's clients, and the supervisor learns that it has sessions", {
  skip_if_not_installed("shiny")
  dir <- local_app(
    app.R = c("library(shiny)", "shinyApp(fluidPage('the page'), function(input, output) NULL)")
  )
  worker <- local_serving_worker(dir)
  # Shiny uses onHeaders (1) and keeps sessions (2).
  worker$expect_ready(3)
  expect_match(worker$get("/", call_of(1, 0))$text, "the page")
  expect_match(worker$tell(), "Serving as worker 1")
  # Shiny waits in package later, whose waits are recorded as well.
  expect_true(wait_until(function() worker$board()$r == "idle"))
  since <- worker$board()$since
  expect_true(wait_until(function() worker$board()$r == "idle" && worker$board()$since > since))
  # The exit status of SIGTERM.
  worker$ask("send d")
  expect_identical(worker$ask("receive"), "L 0")
  expect_identical(worker$ask("wait"), "0")
  expect_identical(worker$ask("receive"), "end")
})

test_that("R Markdown documents, and engines with their own port, get the worker's clients", {
  skip_if_not_installed("rmarkdown")
  skip_if_not(rmarkdown::pandoc_available())
  dir <- local_app(
    doc.Rmd = c(
      "---", "title: The document", "runtime: shiny", "output: html_document", "---", "",
      "Its text."
    )
  )
  worker <- local_serving_worker(file.path(dir, "doc.Rmd"))
  worker$expect_ready(3)
  expect_match(worker$get("/", call_of(1, 0))$text, "shiny", fixed = TRUE)

  skip_if_not_installed("yaml")
  local_package("itsownport", c(
    "launch_server <- function(settings, host = NULL, port = NULL, ...) {",
    "  httpuv::runServer('0.0.0.0', 80, list(call = function(req) list(status = 200L, headers = list(), body = 'engine')))",
    "}"
  ), "launch_server")
  worker <- local_serving_worker(local_app("_server.yml" = "engine: itsownport"))
  worker$expect_ready()
  expect_identical(worker$get()$text, "engine")
  worker$ask("send s")
  expect_identical(worker$ask("receive"), "L 0")
  expect_identical(worker$ask("wait"), "0")
})

test_that("a worker that was told to stop finishes its requests, however often it is told", {
  dir <- local_app(app.R = c(
    "function(req) {",
    "  file.create('begun')",
    "  Sys.sleep(2)",
    "  list(status = 200L, headers = list(), body = 'finished')",
    "}"
  ))
  # By its supervisor twice, which then ends; and by a signal to its process group, before and after
  # the supervisor's request.
  for (asked in list(
    c("send d", "send d", "close"), c("kill 15", "send d", "close"),
    c("send d", "kill 15", "kill 15", "close")
  )) {
    worker <- local_serving_worker(dir)
    worker$expect_ready()
    asking <- local_requests("http://worker/", 1, worker$path)
    expect_true(wait_until(function() file.exists(file.path(dir, "begun"))))
    for (command in asked) {
      worker$ask(command)
      # The signal arrives before the next message.
      Sys.sleep(0.3)
    }
    expect_identical(worker$ask("wait"), "0")
    asking$wait(60000)
    expect_identical(asking$get_result(), 200L)
    unlink(file.path(dir, "begun"))
  }
})

test_that("the end of the supervisor ends a worker that serves, and one that is loading", {
  worker <- local_worker(c(hello, "runServer('127.0.0.1', 80, app)"))
  worker$expect_ready()
  worker$ask("close")
  expect_identical(worker$ask("wait"), "-15")
  worker <- local_worker(c("cat('loads\\n')", "Sys.sleep(300)"))
  expect_true(wait_until(function() grepl("loads", worker$tell())))
  worker$ask("close")
  expect_identical(worker$ask("wait"), "-15")
})

test_that("after R was killed, the scoreboard shows which requests it had begun", {
  dir <- withr::local_tempdir()
  worker <- local_worker(c(
    "app <- function(req) {",
    "  cat(req$PATH_INFO, '\\n', file = 'done', append = TRUE)",
    "  if (req$PATH_INFO == '/slow') Sys.sleep(300)",
    "  list(status = 200L, headers = list(), body = 'hello')",
    "}",
    "startServer('127.0.0.1', 80, app)",
    "service(0)"
  ), dir)
  expect_identical(worker$board()$r, "starting")
  worker$expect_ready()
  expect_identical(worker$get("/first", call_of(1, 0))$text, "hello")
  expect_true(wait_until(function() worker$board()$r == "idle"))
  board <- worker$board()
  expect_identical(
    board[c("taken", "done", "handed", "stopping")],
    list(taken = 1, done = 1, handed = 1, stopping = 0)
  )
  # Idle is recorded repeatedly.
  expect_true(wait_until(function() {
    now <- worker$board()
    now$r == "idle" && now$since > board$since
  }))
  ask <- function(path, call) {
    process <- callr::r_bg(function(socket, path, call) {
      handle <- curl::new_handle(unix_socket_path = socket, timeout = 60)
      curl::handle_setheaders(handle, "rookery-call" = call)
      try(curl::curl_fetch_memory(paste0("http://worker", path), handle), silent = TRUE)
    }, list(worker$path, path, call))
    withr::defer(process$kill(), envir = parent.frame(2))
    process
  }
  slow <- ask("/slow", call_of(2, 1))
  expect_true(wait_until(function() worker$ask("begun 2 1") == "1"))
  waiting <- ask("/waiting", call_of(3, 0))
  expect_true(wait_until(function() worker$board()$handed == 3))
  board <- worker$board()
  expect_identical(board[c("r", "taken", "done")], list(r = "busy", taken = 2, done = 1))
  # R is busy, and the supervisor's request is handled without R.
  worker$ask("send p 41")
  expect_identical(worker$ask("receive"), "P 41")
  worker$ask("kill 9")
  expect_identical(worker$ask("wait"), "-9")
  expect_identical(
    c(worker$ask("begun 1 0"), worker$ask("begun 2 1"), worker$ask("begun 3 0")), c("1", "1", "0")
  )
  expect_identical(trimws(readLines(file.path(dir, "done"))), c("/first", "/slow"))
  expect_identical(
    worker$board()[c("r", "taken", "done", "handed")],
    list(r = "busy", taken = 2, done = 1, handed = 3)
  )
})

test_that("R counts a request that it skips because a later one in its place was withdrawn", {
  worker <- local_worker(c(hello, "startServer('127.0.0.1', 80, app)", "service(0)"))
  worker$expect_ready()
  worker$ask("withdraw 3 0")
  # R skips this request, so nobody responds.
  expect_error(worker$get("/", call_of(2, 0), timeout_ms = 500), "timed out")
  expect_identical(worker$get("/", call_of(4, 0))$text, "hello")
  expect_identical(worker$board()[c("taken", "handed")], list(taken = 2, handed = 2))
})

test_that("the scoreboard sums the time that R was busy, and the time for requests", {
  worker <- local_worker(c(
    "app <- list(",
    "  call = function(req) {",
    "    if (req$PATH_INFO == '/sleep') Sys.sleep(0.4)",
    "    if (req$PATH_INFO == '/spin') { until <- proc.time()[[3]] + 0.4; while (proc.time()[[3]] < until) NULL }",
    "    list(status = 200L, headers = list(), body = 'hello')",
    "  },",
    "  onWSOpen = function(ws) ws$onMessage(function(binary, message) { Sys.sleep(0.4); ws$send('slept') })",
    ")",
    "startServer('127.0.0.1', 80, app)",
    "port <- randomPort()",
    "startServer('127.0.0.1', port, app)",
    "cat('port', port, '\\n')",
    "service(0)"
  ))
  worker$expect_ready()
  before <- worker$board()
  grown <- function(name) (worker$board()[[name]] - before[[name]]) / 1e9
  # The time is recorded when the response arrives.
  for (count in 1:2) {
    expect_identical(worker$get(c("/sleep", "/spin")[[count]])$text, "hello")
    expect_gte(grown("answering_ns"), 0.39 * count)
  }
  port <- sub(".*port ([0-9]+).*", "\\1", worker$tell())
  messages <- character()
  client <- WebSocketClient$new(paste0("ws://127.0.0.1:", port, "/"))
  client$onOpen(function(event) client$send("now"))
  client$onMessage(function(event) messages <<- c(messages, event$data))
  withr::defer(client$close())
  serve_until(function() length(messages) == 1)
  # The end of the request is recorded when R does something else.
  expect_true(wait_until(function() worker$board()$r == "idle"))
  board <- worker$board()
  expect_gte(board$busy_ns - board$answering_ns, 0.39 * 1e9)
})

test_that("child processes of a worker inherit none of its descriptors", {
  worker <- local_worker(c(
    "links <- function() Sys.readlink(list.files('/proc/self/fd', full.names = TRUE))",
    "app <- function(req) {",
    "  of_child <- system('readlink /proc/self/fd/*', intern = TRUE)",
    "  variables <- Sys.getenv(c('ROOKERY_INTERNAL_RINGS_FDS', 'ROOKERY_INTERNAL_CONTROL_FD', 'ROOKERY_INTERNAL_SCOREBOARD_FD', 'ROOKERY_WORKER', 'ROOKERY_WORKER_COUNT'))",
    "  job <- parallel::mcparallel(Sys.sleep(300))",
    "  list(status = 200L, headers = list(), body = paste(c(of_child, variables, job$pid), collapse = '\\n'))",
    "}",
    # When the package was loaded and no server listens: the control channel and that of the
    # rings. The descriptors of the shared memory are closed.
    "cat(paste('has', grep('^socket|memfd', links(), value = TRUE), collapse = '\\n'), '\\n')",
    "startServer('127.0.0.1', 80, app)",
    "service(0)"
  ))
  worker$expect_ready()
  has <- grep("^has", strsplit(worker$tell(), "\n")[[1]], value = TRUE)
  expect_length(has, 2)
  expect_true(all(grepl("^has socket", has)))
  lines <- strsplit(worker$get()$text, "\n")[[1]]
  expect_false(any(grepl("^socket|memfd|anon_inode", utils::head(lines, -6))))
  expect_identical(utils::tail(lines, 6)[1:5], c("", "", "", "1", "4"))
  # A forked process has closed them, so the supervisor notices the end of the worker at once.
  forked <- as.integer(utils::tail(lines, 1))
  withr::defer(tools::pskill(forked, 9))
  worker$ask("kill 9")
  expect_identical(worker$ask("receive"), "end")
  expect_true(is_alive(forked))
})

test_that("only the handler is interrupted", {
  dir <- withr::local_tempdir()
  worker <- local_worker(c(
    "app <- function(req) {",
    "  if (req$PATH_INFO == '/slow') { file.create('begun'); Sys.sleep(300) }",
    "  if (req$PATH_INFO == '/loop') { file.create('begun'); while (TRUE) 1 }",
    "  list(status = 200L, headers = list(), body = 'hello')",
    "}",
    "runServer('127.0.0.1', 80, app)"
  ), dir)
  worker$expect_ready()
  # While R waits.
  worker$ask("send i")
  expect_identical(worker$get()$text, "hello")
  for (path in c("slow", "loop")) {
    asking <- local_requests(paste0("http://worker/", path), 1, worker$path)
    expect_true(wait_until(function() file.exists(file.path(dir, "begun"))))
    worker$ask("send i")
    asking$wait(60000)
    expect_identical(asking$get_result(), 500L)
    unlink(file.path(dir, "begun"))
    expect_identical(worker$get()$text, "hello")
  }
  expect_match(worker$tell(), "interrupted")
})

test_that("a worker that does not end in time is killed", {
  expect_identical(stubborn$ask("wait"), "1")
  expect_match(stubborn$tell(), "the worker exits now")
})
