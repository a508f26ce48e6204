# serve() as users run it: in processes of its own, with signals.

skip_if_not_installed("processx")
skip_if_not_installed("curl")

hello <- "function(req) list(status = 200L, headers = list('Content-Type' = 'text/plain'), body = 'hello')"

test_that("an object is served by this R process until SIGTERM, and the script continues", {
  it <- local_r(c(
    paste0("rookery::serve(", hello, ", port = 0)"),
    "cat('after serving\\n')"
  ))
  url <- expect_serving(it)
  expect_equal(fetch(url)$text, "hello")
  it$signal(15)
  expect_equal(exit_of(it), 0)
  expect_match(it$tell(), "rookery [0-9.]+: a function of the request")
  expect_match(it$tell(), "\"GET / HTTP/1.1\" 200 5 ", fixed = TRUE)
  expect_match(it$tell(), "after serving")
})

test_that("a session can serve repeatedly", {
  it <- local_r(c(
    "for (i in 1:3) {",
    "  later::later(rookery::interrupt, 0.2)",
    paste0("  stopifnot(is.null(rookery::serve(", hello, ", port = 0, log = FALSE)))"),
    "}",
    "stopifnot(length(rookery::listServers()) == 0)",
    paste0("rookery::serve(", hello, ", port = 0)")
  ))
  expect_true(wait_until(
    function() lengths(regmatches(it$tell(), gregexpr("Serving on", it$tell()))) == 4
  ))
  url <- sub("^.*Serving on ([^ ]+) .*$", "\\1", it$tell())
  expect_equal(fetch(url)$text, "hello")
  it$signal(15)
  expect_equal(exit_of(it), 0)
})

test_that("a log function of a path is called in the session, and its errors are harmless", {
  dir <- local_app("app.R" = c(
    "list(call = function(req) {",
    "  req$ROUTE <- '/<page>'",
    "  Sys.sleep(0.02)",
    "  list(status = 201L, headers = list(), body = 'abc')",
    "})"
  ))
  seen <- withr::local_tempfile()
  it <- local_r(c(
    "count <- 0",
    "log <- function(line) {",
    "  count <<- count + 1",
    sprintf("  saveRDS(line, '%s')", seen),
    "  cat(paste('seen', count, line$path, line$status, Sys.getpid(), '\\n'))",
    "  stop('my log is broken')",
    "}",
    sprintf("rookery::serve('%s', port = 0, log = log)", dir),
    "cat('total', count)"
  ))
  url <- expect_serving(it)
  fetch(paste0(url, "/50%25"))
  fetch(paste0(url, "/%C3%A9?x=%00"))
  line <- paste("seen 2 /%C3%A9 201", it$process$get_pid())
  expect_true(wait_until(function() grepl(line, it$tell(), fixed = TRUE)))
  expect_match(it$tell(), "seen 1 /50%25 201", fixed = TRUE)
  expect_length(gregexpr("access log: my log is broken", it$tell())[[1]], 2)
  it$signal(15)
  expect_equal(exit_of(it), 0)
  expect_match(it$tell(), "total 2")
  line <- readRDS(seen)
  expect_equal(
    line[c("remote", "method", "path", "query", "status", "bytes", "aborted", "route")],
    list(
      remote = "127.0.0.1", method = "GET", path = "/%C3%A9", query = "?x=%00", status = 201L,
      bytes = 3, aborted = NA_character_, route = "/<page>"
    )
  )
  expect_s3_class(line$time, "POSIXct")
  expect_lt(abs(as.numeric(line$time) - as.numeric(Sys.time())), 60)
  expect_gte(line$r_seconds, 0.02)
  expect_gte(line$queue_seconds, 0)
  expect_gt(line$seconds, line$r_seconds)
  expect_gt(nchar(line$request_id), 0)
})

test_that("arguments for the app reach each start of its R process, and leave no file", {
  skip_if_not_installed("shiny")
  dir <- local_app("app.R" = c(
    "shiny::shinyApp(shiny::fluidPage('hello'), function(input, output) NULL)"
  ))
  tmp <- withr::local_tempdir()
  it <- local_r(
    sprintf(
      "rookery::serve('%s', port = 0, log = FALSE, workers = 2, display.mode = 'showcase')", dir
    ),
    environment = c(TMPDIR = tmp)
  )
  url <- expect_serving(it)
  expect_true(wait_until(
    function() lengths(regmatches(it$tell(), gregexpr("is ready", it$tell()))) >= 2
  ))
  expect_match(fetch(url)$text, "showcase")
  it$signal(tools::SIGUSR2)
  files <- list.files(tmp, "^rookery-[0-9a-f]{16}$", recursive = TRUE)
  expect_length(files, 0)
  it$signal(15)
  expect_equal(exit_of(it), 0)
  it <- local_r(sprintf(
    "rookery::serve('%s', port = 0, log = FALSE, nonsense = 1)", local_app("app.R" = hello)
  ))
  expect_equal(exit_of(it), 1)
  expect_match(it$tell(), "serve\\(\\) passes no further arguments to this app: `nonsense`")
})

test_that("Ctrl-C ends serve() as well", {
  it <- local_r(paste0("rookery::serve(", hello, ", port = 0, log = FALSE)"))
  url <- expect_serving(it)
  expect_equal(fetch(url)$status_code, 200)
  it$signal(2)
  expect_equal(exit_of(it), 0)
  expect_no_match(it$tell(), "GET /")
})

test_that("a path is served by a separate R process, and signals reach it", {
  dir <- local_app(
    "app.R" = c(
      "message('in ', basename(getwd()), ' as ', Sys.getpid(), ', parent ', Sys.getenv('PARENT'))",
      "internal <- grep('_(PARENT_PID|SETTINGS)$', names(Sys.getenv()), value = TRUE)",
      "message('internal: <', internal, '>')",
      "list(call = function(req) list(status = 200L, headers = list(), body = as.character(Sys.getpid())))"
    )
  )
  it <- local_r(c(
    "Sys.setenv(PARENT = Sys.getpid())",
    sprintf("value <- withVisible(rookery::serve('%s', port = 0))", dir),
    "stopifnot(is.null(value$value), !value$visible)",
    "stopifnot(!any(grepl('^ROOKERY_INTERNAL', names(Sys.getenv()))))",
    "cat('parent is done\\n')"
  ))
  url <- expect_serving(it)
  child <- fetch(url)$text
  expect_false(child == as.character(it$process$get_pid()))
  expect_match(
    it$tell(), sprintf("in %s as %s, parent %s", basename(dir), child, it$process$get_pid()),
    fixed = TRUE
  )
  expect_match(it$tell(), "internal: <>", fixed = TRUE)
  it$signal(15)
  expect_equal(exit_of(it), 0)
  expect_match(it$tell(), "parent is done")
  expect_false(is_alive(child))
})

test_that("the child ends when its parent is killed", {
  skip_on_os(c("mac", "windows", "solaris"))
  dir <- local_app("app.R" = "function(req) list(status = 200L, headers = list(), body = as.character(Sys.getpid()))")
  it <- local_r(sprintf("rookery::serve('%s', port = 0)", dir))
  child <- fetch(expect_serving(it))$text
  expect_true(is_alive(child))
  it$process$kill()
  expect_true(wait_until(function() !is_alive(child)))
})

test_that("a warning about an option is shown while a path is served, and not only at the end", {
  skip_on_os("windows")
  dir <- local_app("index.html" = "hello")
  it <- local_r(c(
    "options(rookery.prot = 1)",
    sprintf("rookery::serve('%s', port = 0)", dir)
  ))
  expect_serving(it)
  expect_match(it$tell(), "the option rookery.prot does not belong to a setting")
})

test_that("the command passes on the app's output and exit status, without restarts", {
  dir <- local_app("app.R" = c(
    "cat('to stdout\\n')",
    "function(req) {",
    "  if (req$PATH_INFO == '/quit') quit(save = 'no', status = 7)",
    "  list(status = 200L, headers = list(), body = as.character(Sys.getpid()))",
    "}"
  ))
  it <- local_cli("serve", dir, "--port", "0", "--log-format", "json")
  url <- expect_serving(it)
  expect_false(fetch(url)$text == as.character(it$process$get_pid()))
  it$signal(15)
  expect_equal(exit_of(it), 0)
  expect_match(it$tell(), "\"stream\":\"stdout\",\"message\":\"to stdout\"", fixed = TRUE)
  expect_match(
    it$tell(), "\"method\":\"GET\",\"path\":\"/\",\"query\":\"\",\"status\":200,", fixed = TRUE
  )

  it <- local_cli("serve", dir, "--port", "0", "--log=none", "--restart", "never")
  url <- expect_serving(it)
  try(fetch(paste0(url, "/quit")), silent = TRUE)
  expect_equal(exit_of(it), 7)
  it <- local_cli("serve", dir, "--port", "0", "--log=none")
  url <- expect_serving(it)
  pid <- fetch(url)$text
  try(fetch(paste0(url, "/quit")), silent = TRUE)
  expect_false(fetch(url)$text == pid)
})

test_that("a script that calls runServer() gets the port, and shuts down like others", {
  dir <- local_app("mine.R" = c(
    "library(rookery)",
    "runServer('127.0.0.1', as.integer(Sys.getenv('PORT')), function(req) {",
    "  if (req$PATH_INFO == '/end') interrupt()",
    "  list(status = 200L, headers = list(), body = 'mine')",
    "})"
  ))
  port <- free_port()
  it <- local_cli("serve", file.path(dir, "mine.R"), "--port", port)
  expect_equal(expect_serving(it), paste0("http://127.0.0.1:", port))
  expect_equal(fetch(paste0("http://127.0.0.1:", port))$text, "mine")
  it$signal(15)
  expect_equal(exit_of(it), 0)
  it <- local_cli("serve", file.path(dir, "mine.R"), "--port", "0")
  expect_equal(fetch(paste0(expect_serving(it), "/end"))$text, "mine")
  expect_equal(exit_of(it), 0)
})

test_that("the exit status of an R process that is not restarted is in the error", {
  dir <- local_app("app.R" = c("function(req) quit(save = 'no', status = 7)"))
  it <- local_r(c(
    "workers <- rookery::workers_config(1, restart = 'never')",
    sprintf("call <- quote(rookery::serve('%s', port = 0, workers = workers))", dir),
    "error <- tryCatch(eval(call), rookery_exit = identity)",
    "cat('status', error$status, '\\n')"
  ))
  try(fetch(expect_serving(it)), silent = TRUE)
  expect_equal(exit_of(it), 0)
  expect_match(it$tell(), "status 7")
})

test_that("the child has the libraries of the session before .Rprofile is read", {
  extra <- normalizePath(withr::local_tempdir())
  # R CMD check makes its R processes ignore profiles.
  withr::local_envvar(R_PROFILE_USER = NA)
  dir <- local_app(
    ".Rprofile" = c("message('profile of the app')", "options(from_profile = 42)"),
    "app.R" = c(
      sprintf("stopifnot('%s' %%in%% .libPaths())", extra),
      "stopifnot(rookery::which_httpuv()$kind == 'rookery', getOption('from_profile') == 42)",
      hello
    )
  )
  it <- local_r(c(
    sprintf(".libPaths(c('%s', .libPaths()))", extra),
    sprintf("rookery::serve('%s', port = 0)", dir)
  ))
  expect_equal(fetch(expect_serving(it))$text, "hello")
  expect_match(it$tell(), "profile of the app")
})

test_that("an app that fails to start reports its error and a non-zero status", {
  shiny <- local_app(
    "app.R" = c("library(shiny)", "stop('the database is away')", "shinyApp(1, 2)")
  )
  skip_if_not_installed("shiny")
  it <- local_cli("serve", shiny, "--port", "0", "--start-retries", "1")
  expect_equal(exit_of(it), 3)
  expect_match(it$tell(), "rookery: The app did not start: Error.*: the database is away")
  # In the first start, also in the call and in its source line; and at the end, after the retries.
  expect_equal(
    lengths(regmatches(it$tell(), gregexpr("the database is away", it$tell()))), 4, info = it$tell()
  )
  expect_no_match(it$tell(), "Serving on")

  it <- local_r(sprintf("rookery::serve('%s', port = 0)", shiny))
  expect_equal(exit_of(it), 1)
  expect_match(it$tell(), "the database is away")
  expect_match(it$tell(), "The app did not start: Error.*: the database is away")
})

test_that("serve() of a path raises the conditions of serve() of an object", {
  # The program would get the value that other tests set.
  withr::local_options(rookery.error_detail = NULL)
  dir <- local_app("app.R" = hello)
  busy <- startServer("127.0.0.1", 0, list())
  withr::defer(busy$stop())
  error_of <- function(..., host = "127.0.0.1", port = 0L) {
    tryCatch(
      capture.output(serve(..., host = host, port = port, log = FALSE), type = "message"),
      rookery_error = identity
    )
  }
  app <- function(req) list(status = 200L)
  cases <- list(
    rookery_port_in_use = list(port = as.integer(busy$getPort())),
    # RFC 5737 reserves this address (TEST-NET-1) for documentation.
    rookery_no_address = list(host = "192.0.2.1"),
    rookery_no_address = list(admin = paste0("127.0.0.1:", busy$getPort()))
  )
  for (at in seq_along(cases)) {
    object <- do.call(error_of, c(list(app), cases[[at]]))
    path <- do.call(error_of, c(list(dir), cases[[at]]))
    expect_s3_class(object, names(cases)[[at]])
    expect_s3_class(path, names(cases)[[at]])
    expect_s3_class(path, "rookery_exit")
    expect_equal(path$status, 4)
    expect_equal(conditionMessage(path), conditionMessage(object))
    expect_no_match(conditionMessage(path), "`--")
  }
  expect_match(
    conditionMessage(do.call(error_of, c(list(dir), cases[[1]]))), "`port = [0-9]+`.*`port = 0`"
  )
})

test_that("messages about serve() of a path name arguments and no options", {
  withr::local_options(rookery.error_detail = NULL)
  error <- expect_error(
    serve(local_app("index.html" = "home"), port = 0, workers = 2, log = FALSE),
    "`workers` concerns the R processes of an app, and a static site has none",
    class = "rookery_exit"
  )
  expect_no_match(conditionMessage(error), "`--")
})

test_that("an argument that the framework does not know ends the program at the first start", {
  skip_if_not_installed("shiny")
  dir <- local_app("app.R" = "shiny::shinyApp(shiny::fluidPage(), function(input, output) NULL)")
  it <- local_r(sprintf("rookery::serve('%s', port = 0, launch.brwser = TRUE)", dir))
  expect_equal(exit_of(it), 1)
  expect_match(
    it$tell(),
    "`launch.brwser` is not an argument of shiny::runApp\\(\\). Did you mean `launch.browser`"
  )
  expect_match(it$tell(), "no worker became ready after 1 start: .* status 78")
})

test_that("serve() and runServer() return when the app has stopped all servers", {
  for (call in c("serve(app, port = 0)", "runServer('127.0.0.1', 0, app)")) {
    it <- local_r(c(
      "later::later(rookery::stopAllServers, 1)",
      "app <- function(req) list(status = 200L)",
      paste0("rookery::", call), "cat('after it\\n')"
    ))
    expect_equal(exit_of(it), 0)
    expect_match(it$tell(), "after it")
  }
  skip_if_not_installed("shiny")
  it <- local_r(c(
    "start <- function() later::later(rookery::stopAllServers, 1)",
    "server <- function(input, output) NULL",
    "rookery::serve(shiny::shinyApp(shiny::fluidPage(), server, onStart = start), port = 0)",
    "cat('after it\\n')"
  ))
  expect_equal(exit_of(it), 0)
  expect_match(it$tell(), "Stopping: the app has stopped all servers.*after it")
})

test_that("mistakes are reported on the command line without a traceback", {
  busy <- startServer("127.0.0.1", 0, list())
  withr::defer(busy$stop())
  port <- as.integer(busy$getPort())
  dir <- local_app("app.R" = hello, "other.txt" = "x")
  expect_says <- function(..., says, status = 1) {
    it <- local_cli("serve", ...)
    expect_equal(exit_of(it), status)
    expect_match(it$tell(), says)
    expect_no_match(it$tell(), "Execution halted|Calls:")
  }
  expect_says(
    dir, "--port", port,
    says = sprintf("^rookery: Port %d of 127.0.0.1 is in use, by .*`--port %d`", port, port + 1),
    status = 4
  )
  expect_says(file.path(dir, "app.r2"), says = "does not exist.*Did you mean")
  expect_says(file.path(dir, "other.txt"), says = "cannot be served.*Looked for:", status = 3)
  expect_says(
    dir, "--host", "example.org",
    says = "must be `localhost` or an IP address of this machine, not \"example.org\""
  )
  expect_says(
    local_app("app.R" = "42"), "--port", "0", says = "its last value is an object of class numeric",
    status = 3
  )
  expect_says(
    local_app("_server.yml" = "engine: no.such.engine"), "--port", "0",
    says = "install.packages\\(\"no.such.engine\"\\)", status = 3
  )
})

test_that("a Unix socket is served, and removed afterwards", {
  dir <- withr::local_tempdir()
  socket <- file.path(dir, "app.sock")
  it <- local_cli("serve", local_app("app.R" = hello), "--host", paste0("unix:", socket))
  expect_match(expect_serving(it), "app.sock$")
  expect_equal(fetch("http://localhost/x", path = socket)$text, "hello")
  it$signal(15)
  expect_equal(exit_of(it), 0)
  expect_false(file.exists(socket))
  # A client of a Unix socket has no address.
  expect_match(it$tell(), "\n- - - [", fixed = TRUE)
})

test_that("a Shiny app is served on a Unix socket: its page and its WebSocket", {
  skip_if_not_installed("shiny")
  dir <- withr::local_tempdir()
  socket <- file.path(dir, "shiny.sock")
  app <- local_app("app.R" = c(
    "library(shiny)",
    "shinyApp(fluidPage(h1('on a socket'), textOutput('out')), function(input, output) {",
    "  output$out <- renderText('said by the server')",
    "})"
  ))
  # The permissions of the socket follow the umask.
  before <- Sys.umask("027")
  withr::defer(Sys.umask(before))
  it <- local_cli("serve", app, "--host", paste0("unix:", socket))
  expect_match(expect_serving(it), "shiny.sock$")
  expect_match(fetch("http://localhost/", path = socket)$text, "on a socket")
  expect_equal(format(file.mode(socket)), "750")
  skip_if(!nzchar(Sys.which("perl")), "no perl, and R has no connection to a Unix socket")
  asked <- withr::local_tempfile()
  init <- '{"method":"init","data":{".clientdata_output_out_hidden":false}}'
  handshake <- request("/websocket/", headers = c(
    "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
  ))
  writeBin(c(charToRaw(handshake), frame(init)), asked)
  client <- withr::local_tempfile(lines = c(
    "use IO::Socket::UNIX;",
    "my ($path, $asked, $awaited) = @ARGV;",
    "my $socket = IO::Socket::UNIX->new(Peer => $path) or die \"no connection: $!\";",
    "open(my $file, '<:raw', $asked); local $/; print {$socket} scalar(<$file>); $socket->flush;",
    "alarm 60;",
    "my $read = '';",
    "while (index($read, $awaited) < 0 && sysread($socket, my $bytes, 65536)) { $read .= $bytes }",
    "print index($read, $awaited) < 0 ? \"closed\" : \"found\";"
  ))
  found <- processx::run(
    "perl", c(client, socket, asked, "said by the server"), error_on_status = FALSE
  )
  expect_equal(found$stdout, "found", info = paste(found$stderr, it$tell()))
  it$signal(15)
  expect_equal(exit_of(it), 0)
  expect_false(file.exists(socket))
})

# ---- shutdown: R's serve() in one process ------------------------------------

# For the first handler: waits until the server has as many connections as the test opens, and
# reports it.
gather <- c(
  "gather <- function(count) {",
  "  gather <<- function(count) NULL",
  "  server <- rookery::listServers()[[1]]",
  "  while (rookery:::connections_of(server) < count) Sys.sleep(0.02)",
  "  cat('all are here\\n')",
  "}"
)

# Waits for that, and until all clients have sent their requests, and a moment longer for the server
# to read them. `sent` are files of local_requests().
expect_gathered <- function(it, count, sent) {
  expect_true(wait_until(
    function() grepl("all are here", it$tell()) && sum(file.size(sent), na.rm = TRUE) == count
  ))
  Sys.sleep(0.5)
}

# The app prints one string, because cat() writes several strings separately, and a line of the
# access log could come between them.
#
# Like `docker stop`, which kills after 10 s. The exit status shows whether the limit was kept:
# after 10 s, the alarm of serve() would end the process with another status.
test_that("after SIGTERM with 50 requests of 2 s, those begun finish and the rest get 503", {
  dir <- withr::local_tempdir()
  socket <- file.path(dir, "app.sock")
  app <- local_app("app.R" = c(
    gather,
    "function(req) {",
    "  cat(paste0('begun ', req$PATH_INFO, '\\n'))",
    "  gather(50)",
    "  Sys.sleep(2)",
    "  list(status = 200L, headers = list(), body = 'done')",
    "}"
  ))
  it <- local_served(app, sprintf("host = 'unix:%s'", socket))
  expect_serving(it)
  sent <- withr::local_tempfile()
  clients <- local_requests("http://localhost/slow", 50, socket, sent = sent)
  expect_gathered(it, 50, sent)
  it$signal(15)
  expect_equal(exit_of(it), 0)
  clients$wait(60000)
  statuses <- clients$get_result()
  begun <- lengths(regmatches(it$tell(), gregexpr("begun /slow", it$tell())))
  expect_length(statuses, 50)
  expect_equal(sum(statuses == 200), begun)
  expect_equal(sum(statuses == 503), 50 - begun)
  expect_gte(begun, 2)
  expect_false(file.exists(socket))
  expect_match(it$tell(), "Stopping: [0-9]+ connections are being finished")
  # The log has all of these requests as well.
  expect_equal(lengths(regmatches(it$tell(), gregexpr("\" 503 ", it$tell()))), 50 - begun)
})

test_that("connections after the signal are not accepted", {
  port <- free_port()
  app <- local_app("app.R" = c(
    gather,
    "function(req) {",
    "  gather(2)",
    "  Sys.sleep(2)",
    "  list(status = 200L, headers = list(), body = 'done')",
    "}"
  ))
  it <- local_served(app, sprintf("port = %d", port))
  url <- expect_serving(it)
  sent <- c(withr::local_tempfile(), withr::local_tempfile())
  one <- local_requests(url, 1, sent = sent[[1]])
  two <- local_requests(url, 1, sent = sent[[2]])
  expect_gathered(it, 2, sent)
  it$signal(15)
  # The current handler ends, then R handles the signal, and the second request is finished.
  expect_true(wait_until(function() grepl("Stopping", it$tell())))
  expect_error(fetch(url), "connect")
  expect_equal(exit_of(it), 0)
  one$wait(60000)
  two$wait(60000)
  expect_equal(c(one$get_result(), two$get_result()), c(200L, 200L))
})

test_that("a second signal ends at once", {
  app <- local_app("app.R" = c(
    "function(req) { cat('begun\\n'); Sys.sleep(120); list(status = 200L, headers = list(), body = 'done') }"
  ))
  it <- local_served(app)
  client <- local_requests(expect_serving(it), 1)
  expect_true(wait_until(function() grepl("begun", it$tell())))
  it$signal(15)
  expect_heard(it)
  expect_true(it$process$is_alive())
  it$signal(15)
  # The exit status of the signal (143 in a shell, -15 in processx) and not of the alarm; NA if
  # other child processes of R interfered.
  expect_true(exit_of(it) %in% c(-15, NA))
})

test_that("a handler that does not return is interrupted in time", {
  app <- local_app("app.R" = c(
    gather,
    "function(req) { gather(2); Sys.sleep(120); list(status = 200L, headers = list(), body = 'done') }"
  ))
  # After the interrupt, R has a second to leave the handler and to respond, which may be too short
  # on a busy machine.
  for (attempt in 1:3) {
    it <- local_served(app)
    sent <- withr::local_tempfile()
    client <- local_requests(expect_serving(it), 2, sent = sent)
    expect_gathered(it, 2, sent)
    it$signal(15)
    ended <- exit_of(it)
    client$wait(60000)
    if (ended == 0) break
  }
  expect_equal(ended, 0)
  expect_setequal(client$get_result(), c(500L, 503L))
})

test_that("requests that wait for a promise finish, or get 503 when the time is up", {
  app <- local_app("app.R" = c(
    "function(req) {",
    "  cat(paste0('begun ', req$PATH_INFO, '\\n'))",
    "  promises::promise(function(resolve, reject) {",
    "    seconds <- if (req$PATH_INFO == '/soon') 2 else 60",
    "    later::later(function() resolve(list(status = 200L, headers = list(), body = 'done')), seconds)",
    "  })",
    "}"
  ))
  it <- local_served(app)
  url <- expect_serving(it)
  late <- local_requests(paste0(url, "/late"), 2)
  begun <- function(count) lengths(regmatches(it$tell(), gregexpr("begun", it$tell()))) == count
  expect_true(wait_until(function() begun(2)))
  soon <- local_requests(paste0(url, "/soon"), 3)
  expect_true(wait_until(function() begun(5)))
  it$signal(15)
  expect_equal(exit_of(it), 0)
  soon$wait(60000)
  late$wait(60000)
  expect_equal(soon$get_result(), rep(200L, 3))
  expect_equal(late$get_result(), rep(503L, 2))
})

test_that("WebSockets are closed with 1001, and their callbacks run", {
  app <- local_app("app.R" = c(
    "list(",
    "  call = function(req) list(status = 404L, headers = list(), body = ''),",
    "  onWSOpen = function(ws) {",
    "    ws$onClose(function() cat('closed in R\\n'))",
    "    ws$send('welcome')",
    "  }",
    ")"
  ))
  it <- local_served(app)
  url <- expect_serving(it)
  socket <- socketConnection(
    "127.0.0.1", as.integer(sub("^.*:", "", url)), open = "r+b", blocking = TRUE, timeout = 60
  )
  withr::defer(close(socket))
  writeBin(charToRaw(request("/ws", headers = c(
    "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
  ))), socket)
  read <- raw(0)
  while (find_raw(read, "welcome") == 0) {
    byte <- readBin(socket, "raw", 1)
    if (length(byte) == 0) stop("no greeting")
    read <- c(read, byte)
  }
  it$signal(15)
  close_frame <- readBin(socket, "raw", 4)
  expect_equal(close_frame, as.raw(c(0x88, 0x02, 0x03, 0xE9)))
  writeBin(as.raw(c(0x88, 0x82, 0, 0, 0, 0, 0x03, 0xE9)), socket)
  expect_equal(exit_of(it), 0)
  expect_match(it$tell(), "closed in R")
})
