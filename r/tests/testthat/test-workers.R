# `rookery serve --workers` with R processes. crates/supervisor and crates/cli have the tests
# without R.

skip_if_not_installed("processx")
skip_if_not_installed("curl")
skip_on_os(c("mac", "solaris"))

app_lines <- c(
  "list(call = function(req) {",
  "  if (req$PATH_INFO == '/sleep') Sys.sleep(0.5)",
  "  list(status = 200L, headers = list('Content-Type' = 'text/plain'), body = as.character(Sys.getpid()))",
  "})"
)

local_workers <- function(lines, ..., env = parent.frame()) {
  dir <- withr::local_tempdir(.local_envir = env)
  writeLines(lines, file.path(dir, "app.R"))
  it <- local_cli("serve", dir, "--port", "0", "--log=none", ..., env = env)
  expect_serving(it)
  it$url <- sub(" .*", "", sub(".*Serving on ", "", it$tell()))
  it$get <- function(path = "/", handle = curl::new_handle()) {
    curl::curl_fetch_memory(paste0(it$url, path), handle)
  }
  it$pid <- function(...) rawToChar(it$get(...)$content)
  it
}

# With a pause, because a worker that is still awake after its last request gets the next one.
pids_of <- function(it, n = 12) {
  sort(unique(vapply(seq_len(n), function(at) {
    Sys.sleep(0.002)
    it$pid()
  }, "")))
}

test_that("several workers respond, a killed one is restarted, and all end with the program", {
  it <- local_workers(app_lines, "--workers", "2")
  expect_true(wait_until(function() length(pids_of(it)) == 2))
  pids <- pids_of(it)
  tools::pskill(as.integer(pids[[1]]), tools::SIGKILL)
  expect_true(wait_until(function() length(setdiff(pids_of(it), pids)) == 1))
  expect_match(it$tell(), "was ended by SIGKILL, which the supervisor did not send")
  last <- pids_of(it)
  it$signal(tools::SIGTERM)
  expect_equal(exit_of(it), 0)
  expect_true(wait_until(function() !any(file.exists(file.path("/proc", last)))))
})

test_that("when the drain is over, streams and requests are cut, and the program ends", {
  begun <- withr::local_tempfile()
  lines <- c(
    "list(call = function(req) {",
    sprintf("  begin <- function() file.create('%s')", begun),
    "  if (req$PATH_INFO == '/long') { begin(); Sys.sleep(60) }",
    "  if (req$PATH_INFO != '/endless') return(list(status = 200L, headers = list(), body = ''))",
    "  chunk <- function() { begin(); Sys.sleep(0.1); 'chunk' }",
    "  list(status = 200L, headers = list(), body = chunk)",
    "})"
  )
  for (workers in c("1", "2")) {
    # The client sees that the stream is not complete (-1).
    for (case in list(list("/endless", -1L), list("/long", 500L))) {
      unlink(begun)
      it <- local_workers(lines, "--workers", workers, "--drain", "1s")
      client <- local_requests(paste0(it$url, case[[1]]), 1)
      expect_true(wait_until(function() file.exists(begun)))
      start <- proc.time()[["elapsed"]]
      it$signal(tools::SIGTERM)
      expect_equal(exit_of(it), 0)
      seconds <- proc.time()[["elapsed"]] - start
      # Without workers, R's serve() waits 9 s for requests.
      expect_true(seconds > 0.9 && seconds < 8, label = paste(workers, case[[1]], seconds))
      client$wait(60000)
      expect_equal(client$get_result(), case[[2]])
    }
  }
})

test_that("R finishes what a WebSocket has begun, although the server closes it at once", {
  begun <- withr::local_tempfile()
  done <- withr::local_tempfile()
  it <- local_workers(c(
    "list(",
    "  call = function(req) list(status = 200L, headers = list(), body = ''),",
    "  onWSOpen = function(ws) ws$onMessage(function(binary, message) {",
    sprintf("    file.create('%s'); Sys.sleep(3); file.create('%s')", begun, done),
    "  })",
    ")"
  ), "--workers", "1")
  port <- as.integer(gsub(".*:|/", "", it$url))
  client <- local_client(list(getPort = function() port))
  expect_equal(upgrade(client)$status, 101)
  send(client, frame("go"))
  expect_true(wait_until(function() file.exists(begun)))
  it$signal(tools::SIGTERM)
  expect_equal(exit_of(it), 0)
  expect_true(file.exists(done))
})

test_that("a reload replaces all workers, and no request fails", {
  it <- local_workers(app_lines, "--workers", "2")
  expect_true(wait_until(function() length(pids_of(it)) == 2))
  before <- pids_of(it)
  it$signal(tools::SIGHUP)
  statuses <- integer()
  wait_until(function() {
    statuses <<- c(statuses, it$get()$status_code)
    grepl("reloaded: all workers are of generation 1", it$tell())
  })
  expect_true(all(statuses == 200))
  expect_length(intersect(pids_of(it), before), 0)
})

test_that("a worker that is busy for too long is killed, or interrupted first if configured", {
  lines <- c(
    "list(call = function(req) {",
    "  if (req$PATH_INFO == '/sleep') Sys.sleep(600)",
    "  if (req$PATH_INFO == '/deaf') repeat tryCatch(Sys.sleep(600), interrupt = function(interrupt) NULL)",
    "  list(status = 200L, headers = list('Content-Type' = 'text/plain'), body = as.character(Sys.getpid()))",
    "})"
  )
  it <- local_workers(lines, "--workers", "2", "--worker-timeout", "1s")
  expect_true(wait_until(function() length(pids_of(it)) == 2))
  pids <- pids_of(it)
  expect_equal(it$get("/sleep")$status_code, 504)
  expect_true(wait_until(
    function() grepl("has been busy with one task for [0-9]+ s: ending it", it$tell())
  ))
  expect_true(wait_until(
    function() length(intersect(pids_of(it), pids)) == 1 && length(pids_of(it)) == 2
  ))
  expect_no_match(it$tell(), "interrupted")
  it <- local_workers(lines, "--workers", "2", "--worker-timeout", "1s", "--interrupt-requests")
  expect_true(wait_until(function() length(pids_of(it)) == 2))
  pids <- pids_of(it)
  expect_equal(it$get("/sleep")$status_code, 504)
  expect_true(wait_until(function() grepl("has finished the task that took too long", it$tell())))
  expect_true(wait_until(function() identical(pids_of(it), pids)))
  expect_equal(it$get("/deaf")$status_code, 504)
  expect_true(wait_until(function() grepl("is still busy with the same task: ending it", it$tell())))
  expect_true(wait_until(
    function() length(intersect(pids_of(it), pids)) == 1 && length(pids_of(it)) == 2
  ))
})

test_that("a request that waits too long gets 503, and reload with surge = 0 replaces workers", {
  hold <- withr::local_tempfile()
  lines <- c(
    "list(call = function(req) {",
    paste0("  while (req$PATH_INFO == '/hold' && file.exists('", hold, "')) Sys.sleep(0.05)"),
    "  list(status = 200L, headers = list('Content-Type' = 'text/plain'), body = as.character(Sys.getpid()))",
    "})"
  )
  it <- local_workers(
    lines, "--workers", "2", "--queue-timeout", "100ms", "--max-in-flight", "1", "--surge", "0"
  )
  expect_true(wait_until(function() length(pids_of(it)) == 2))
  before <- pids_of(it)
  file.create(hold)
  held <- integer()
  pool <- parallel_pool()
  for (at in 1:2) {
    curl::curl_fetch_multi(
      paste0(it$url, "/hold"), function(reply) held <<- c(held, reply$status_code), pool = pool
    )
  }
  # A request that is next for a worker has left the queue. Requests in the queue get 503.
  status <- function() {
    tryCatch(it$get(handle = curl::new_handle(timeout = 1))$status_code, error = function(error) 0L)
  }
  expect_true(wait_until(function() {
    curl::multi_run(timeout = 0, poll = TRUE, pool = pool)
    status() == 503L
  }))
  unlink(hold)
  curl::multi_run(pool = pool)
  expect_equal(held, c(200L, 200L))
  it$signal(tools::SIGHUP)
  expect_true(wait_until(function() grepl("reloaded: all workers are of generation 1", it$tell())))
  expect_length(intersect(pids_of(it), before), 0)
})

test_that("a worker with much free memory returns it, and is not replaced", {
  skip_if_not(file.exists("/proc/self/status"))
  lines <- c(
    "list(call = function(req) {",
    # Garbage is not collected before R allocates again, and R has no reason to.
    "  if (req$PATH_INFO == '/leave') numeric(2e7)[[1]]",
    "  list(status = 200L, headers = list('Content-Type' = 'text/plain'), body = as.character(Sys.getpid()))",
    "})"
  )
  it <- local_workers(lines, "--workers", "2", "--sticky", "cookie", "--max-memory", "150MB")
  mine <- curl::new_handle()
  pid <- rawToChar(it$get("/leave", mine)$content)
  memory <- function() {
    line <- grep("^RssAnon:", readLines(file.path("/proc", pid, "status")), value = TRUE)
    as.numeric(gsub("[^0-9]", "", line)) * 1024
  }
  skip_if(memory() < 150e6, "R has collected it at once")
  expect_true(wait_until(function() memory() < 150e6))
  expect_no_match(it$tell(), "is replaced")
  expect_equal(rawToChar(it$get("/", mine)$content), pid)
})

test_that("a spare replaces a worker that ends, and was warmed up before", {
  lines <- c(
    "asked <- character()",
    "list(call = function(req) {",
    "  asked <<- c(asked, paste0(req$PATH_INFO, req$QUERY_STRING))",
    "  list(status = 200L, headers = list('Content-Type' = 'text/plain'), body = paste(c(Sys.getpid(), asked), collapse = ' '))",
    "})"
  )
  it <- local_workers(lines, "--workers", "2", "--spares", "1", "--warmup", "/warm?x=1,/again")
  expect_true(wait_until(
    function() lengths(regmatches(it$tell(), gregexpr("Serving as worker", it$tell()))) == 3
  ))
  seen <- strsplit(it$pid(), " ")[[1]]
  expect_equal(seen[-1], c("/warm?x=1", "/again", "/"))
  tools::pskill(as.integer(seen[[1]]), tools::SIGKILL)
  expect_true(wait_until(function() grepl("a spare, now serves requests", it$tell())))
  expect_equal(it$get()$status_code, 200)
})

test_that("a changed file of the app starts new workers, also with a single worker", {
  for (words in list(c("--workers", "2"), NULL)) {
    dir <- withr::local_tempdir()
    app <- function(text) {
      writeLines(
        sprintf("function(req) list(status = 200L, headers = list(), body = '%s')", text),
        file.path(dir, "app.R")
      )
    }
    app("before")
    it <- local_cli("serve", dir, "--port", "0", "--log=none", "--reload", words)
    expect_serving(it)
    url <- sub(" .*", "", sub(".*Serving on ", "", it$tell()))
    body <- function() rawToChar(curl::curl_fetch_memory(url)$content)
    expect_equal(body(), "before")
    writeLines("stop('not finished'", file.path(dir, "app.R"))
    expect_true(wait_until(function() grepl("the reload has failed", it$tell())))
    expect_equal(body(), "before")
    app("and after")
    expect_true(wait_until(
      function() grepl("reloaded: all workers are of generation 2", it$tell())
    ))
    # An open connection ends with the next response of the worker that accepted it.
    expect_true(wait_until(function() body() == "and after"))
    expect_match(it$tell(), "`app.R` has changed")
  }
})

test_that("no worker is left after the supervisor was killed", {
  it <- local_workers(app_lines, "--workers", "2")
  expect_true(wait_until(function() length(pids_of(it)) == 2))
  pids <- pids_of(it)
  it$signal(tools::SIGKILL)
  expect_true(wait_until(function() !any(file.exists(file.path("/proc", pids)))))
})

test_that("a page of Shiny reconnects to its worker", {
  skip_if_not_installed("shiny")
  lines <- c(
    "library(shiny)",
    "shinyApp(function(req) tags$p(paste0('pid:', Sys.getpid(), ';')), function(input, output) {})"
  )
  it <- local_workers(lines, "--workers", "2")
  expect_true(wait_until(
    function() lengths(regmatches(it$tell(), gregexpr("Serving as worker", it$tell()))) == 2
  ))
  pid_in <- function(page) sub(".*pid:([0-9]+);.*", "\\1", rawToChar(page$content))
  seen <- character()
  # A worker that responds late on a busy machine gets no new sessions for a while.
  expect_true(wait_until(function() {
    # A handle keeps its cookies.
    browser <- curl::new_handle(cookiefile = "")
    pages <- vapply(seq_len(4), function(at) pid_in(it$get(handle = browser)), "")
    expect_length(unique(pages), 1)
    seen <<- c(seen, pages[[1]])
    length(unique(seen)) == 2
  }))
  expect_equal(it$get("/session/0123456789abcdef0123456789abcdef/download/x")$status_code, 404)
  expect_match(
    rawToChar(it$get()$headers),
    "rookery-[0-9a-f]{8}=[A-Za-z0-9_-]{36}; Path=/; HttpOnly; SameSite=Lax"
  )
  # Each page has the id of its worker.
  expect_match(rawToChar(it$get()$content), "data-worker=\"[0-9a-f]{32}\"")
})

test_that("R Markdown documents are served by workers, and their pages have the worker id", {
  skip_if_not_installed("rmarkdown")
  skip_if_not(rmarkdown::pandoc_available(), "pandoc is not installed")
  dir <- withr::local_tempdir()
  writeLines(
    c(
      "---", "title: A document", "runtime: shiny", "output: html_document", "---", "", "```{r}",
      "textInput('a', 'b')", "```"
    ),
    file.path(dir, "doc.Rmd")
  )
  it <- local_cli("serve", file.path(dir, "doc.Rmd"), "--port", "0", "--log=none", "--workers", "2")
  expect_serving(it)
  expect_true(wait_until(
    function() lengths(regmatches(it$tell(), gregexpr(" is ready, ", it$tell()))) == 2
  ))
  url <- sub(" .*", "", sub(".*Serving on ", "", it$tell()))
  ids <- vapply(1:8, function(at) {
    page <- curl::curl_fetch_memory(url)
    expect_equal(page$status_code, 200)
    expect_match(rawToChar(page$headers), "rookery-[0-9a-f]{8}=[A-Za-z0-9_-]{36}; Path=/")
    sub(
      ".*rookery-shiny.js\" data-reconnect=\"app\" data-worker=\"([0-9a-f]{32})\".*", "\\1",
      rawToChar(page$content)
    )
  }, "")
  # The choice of a worker depends on its latency estimate.
  expect_length(unique(ids), 2)
  expect_true(all(nchar(ids) == 32))
})

test_that("the number of workers can be given in a _server.yml and in serve()", {
  skip_if_not_installed("yaml")
  dir <- withr::local_tempdir()
  writeLines(app_lines, file.path(dir, "app.R"))
  file <- file.path(dir, "_server.yml")
  settings <- function(...) {
    writeLines(c("engine: rookery", "app: app.R", "options:", paste0("  ", c(...))), file)
  }
  settings(
    "workers: 2", "max-age: 12h", "warmup: [/, /x]", "error_detail: full", "limits:",
    "  max_body_size: 10", "ws_compression:", "  level: 3"
  )
  it <- local_cli("serve", dir, "--port", "0", "--log=none")
  expect_serving(it)
  expect_match(it$tell(), "with 2 workers")
  url <- sub(" .*", "", sub(".*Serving on ", "", it$tell()))
  # The supervisor enforces the limit.
  handle <- curl::new_handle(postfields = strrep("x", 11))
  expect_equal(curl::curl_fetch_memory(url, handle)$status_code, 413)
  it$signal(tools::SIGTERM)
  expect_equal(exit_of(it), 0)
  settings("workers: 2")
  # Arguments take precedence.
  it <- local_cli("serve", dir, "--port", "0", "--log=none", "--workers", "1")
  expect_serving(it)
  expect_no_match(it$tell(), "workers|as worker")
  for (case in list(
    c("workers: 2", "drain: long", "line 5, column 10: `drain:` must be a time"),
    c(
      "workers: 2", "max_sessions: true",
      "`max_sessions:` must be a whole number, at least 1, or none, not `true`"
    ),
    c("workers: 2", "limits: 3", "`limits:` must have fields such as `max_body_size: 10MB`"),
    c("workers: none", "", "`workers:` must be auto, or a whole number from 1 to 1000, not `none`"),
    c("workers: 1", "restart: sometimes", "`restart:` must be always or never, not `sometimes`")
  )) {
    settings(case[1:2])
    it <- local_cli("serve", dir, "--port", "0", "--log=none")
    expect_equal(exit_of(it), 1)
    expect_match(it$tell(), case[[3]])
  }
})

test_that("serve() starts several workers, and stops them at its end", {
  dir <- withr::local_tempdir()
  writeLines(app_lines, file.path(dir, "app.R"))
  # The path is passed on with its symbolic links, which each reload of the program resolves again.
  link <- file.path(withr::local_tempdir(), "current")
  file.symlink(dir, link)
  serving <- function(text) {
    it <- local_r(text, env = parent.frame())
    expect_serving(it)
    url <- sub(" .*", "", sub(".*Serving on ", "", it$tell()))
    it$pids <- function() {
      sort(unique(vapply(1:12, function(at) rawToChar(curl::curl_fetch_memory(url)$content), "")))
    }
    expect_true(wait_until(function() length(it$pids()) == 2))
    it
  }
  call <- paste0("rookery::serve('", link, "', port = 0, log = FALSE, workers = rookery::workers_config(2, drain = '5s'))")
  for (signal in c(tools::SIGTERM, tools::SIGKILL)) {
    it <- serving(call)
    expect_match(it$tell(), paste0("(`", link, "`) with 2 workers"), fixed = TRUE)
    pids <- it$pids()
    it$signal(signal)
    expect_true(wait_until(function() !any(file.exists(file.path("/proc", pids)))))
  }
  it <- local_r(sub("'5s'", "'soon'", call))
  exit_of(it)
  expect_match(it$tell(), "workers_config\\(\\): `drain` must be a time .*, not \"soon\"")
})

test_that("arguments of serve() are passed to the program as lines", {
  lines <- function(...) rookery:::lines_of(list(...))
  expect_equal(lines(max_memory = 2e9, reload = FALSE), c("max_memory=2000000000", "reload=FALSE"))
  expect_equal(
    lines(max_memory = "300M", start_retries = 5, warmup = c("/", "/x")),
    c("max_memory=300M", "start_retries=5", "warmup=/", "warmup=/x")
  )
  dir <- dirname(pem <- local_pem())
  file.copy(pem, file.path(dir, c("c.pem", "k.pem")))
  tls <- tls_config(
    file.path(dir, "c.pem"), file.path(dir, "k.pem"),
    hsts = list(max_age = 31536000, include_subdomains = TRUE), min_version = "1.3", http2 = FALSE
  )
  expect_equal(
    sub("=/.*/", "=", rookery:::lines_of_tls(tls)),
    c(
      "tls_cert=c.pem", "tls_key=k.pem", "tls_min_version=1.3", "http2=FALSE",
      "hsts=max_age=31536000,include_subdomains=TRUE,preload=FALSE"
    )
  )
  expect_equal(rookery:::lines_of_tls("dev"), "tls=dev")
  expect_null(rookery:::lines_of_tls(NULL))
  text <- paste(readLines(pem), collapse = "\n")
  expect_equal(
    rookery:::lines_of_tls(tls_config(pem, text))[1:2], paste0(c("tls_cert=", "tls_key="), c(pem, text))
  )
  expect_equal(
    rookery:::lines_of(list(
      max_body_size = 1e9, idle_timeout = Inf, proxy_protocol = TRUE, interrupt_requests = FALSE,
      request_id_header = FALSE,
      trusted_proxies = c("::1", "unix"), ws_compression = TRUE
    )),
    c(
      "max_body_size=1000000000", "idle_timeout=Inf", "proxy_protocol=TRUE",
      "interrupt_requests=FALSE", "request_id_header=FALSE", "trusted_proxies=::1",
      "trusted_proxies=unix", "ws_compression=TRUE"
    )
  )
  expect_equal(
    rookery:::lines_of(list(ws_compression = list(level = 3, takeover = TRUE))),
    "ws_compression=level=3,takeover=TRUE"
  )
  expect_equal(rookery:::encode_lines("a=100%\nb"), "a=100%25%0Ab")
})

test_that("the program accepts each name that R has for a setting", {
  values <- list(
    workers = "2", warmup = "/", max_memory = "1GB", sticky = "none",
    admin = "127.0.0.1:1", surge = "0", restart = "never"
  )
  table <- rookery:::setting_table()
  flags <- table$name[table$kind == "flag"]
  value_of <- function(name) values[[name]] %||% if (name %in% flags) "on" else "1"
  names <- c(setdiff(names(formals(workers_config)), "..."), "admin")
  lines <- c(
    paste0(names, "=", vapply(names, value_of, "")),
    paste0(rookery:::limit_names(), "=8192000"),
    "option:error_detail=none", "option:ws_compression=off"
  )
  program <- system.file("exec", "rookery", package = "rookery")
  # The missing folder is the only problem that is reported.
  told <- function(lines) {
    processx::run(
      program, c("serve", "/no/such/app"), env = c("current", ROOKERY_INTERNAL_PARENT_PID = "1"),
      stdin = withr::local_tempfile(lines = lines), error_on_status = FALSE
    )$stderr
  }
  expect_match(told(lines), "`/no/such/app` does not exist")
  expect_match(told(c(lines, "nonsense=1")), "`nonsense` is not a setting")
})

# Sends the head of a request, by default of one that announces a body, and reads the status line.
announce <- function(it, path, lines, method = "POST") {
  port <- as.integer(sub(".*:([0-9]+).*", "\\1", it$url))
  socket <- socketConnection("127.0.0.1", port, blocking = TRUE, open = "r+b", timeout = 60)
  withr::defer(close(socket))
  head <- paste0(method, " ", path, " HTTP/1.1\r\nHost: a\r\n", lines, "\r\n\r\n")
  writeBin(charToRaw(head), socket)
  readLines(socket, 1)
}

test_that("an upload that Shiny refuses for its size is refused before it was sent", {
  skip_if_not_installed("shiny")
  it <- local_workers(c(
    "library(shiny)",
    "options(shiny.maxRequestSize = 3 * 1024^2)",
    "shinyApp(function(req) tags$p('page'), function(input, output) {})"
  ), "--workers", "2")
  # The bodies are never sent, so a response shows that the server does not wait for them.
  for (lines in c(
    "Content-Length: 5000000000", "Content-Length: 3145729\r\nExpect: 100-continue",
    "Transfer-Encoding: chunked"
  )) {
    expect_match(announce(it, "/", lines), "^HTTP/1.1 413 ", info = lines)
  }
  expect_match(
    announce(it, "/", "Content-Length: 3145728\r\nExpect: 100-continue"), "^HTTP/1.1 100 "
  )
  expect_match(announce(it, "/", "Content-Length: 5\r\nExpect: 100-continue"), "^HTTP/1.1 100 ")
})

test_that("an app sees each head once and receives complete bodies, and each request counts once", {
  skip_if_not_installed("jsonlite")
  it <- local_workers(c(
    "heads <- 0",
    "closed <- character()",
    "answer <- function(...) list(status = 200L, headers = list('Content-Type' = 'text/plain'), body = paste(...))",
    "list(",
    "  onHeaders = function(req) {",
    "    if (req$REQUEST_METHOD == 'POST') heads <<- heads + 1",
    "    if (req$PATH_INFO != '/receive') return(NULL)",
    "    n <- 0",
    "    rookery::receive_body(function(bytes) n <<- n + length(bytes), function() answer(format(n, scientific = FALSE)), on_close = function(reason) closed <<- c(closed, reason))",
    "  },",
    "  call = function(req) {",
    "    if (req$PATH_INFO == '/closed') return(answer(paste(closed, collapse = ' ')))",
    "    answer(heads, length(req$rook.input$read()), req$HTTP_X_MINE)",
    "  }",
    ")"
    # Makes the front end accept, because this test looks at what the worker gets.
  ), "--workers", "1", "--reload", "--max-in-flight", "64")
  post <- function(path, n) {
    handle <- curl::new_handle(post = TRUE, postfieldsize = n, postfields = raw(n))
    curl::handle_setheaders(handle, "X-Mine" = "yes", Expect = "")
    rawToChar(it$get(path, handle)$content)
  }
  expect_equal(post("/", 3e6), "1 3000000 yes")
  expect_equal(post("/", 10), "2 10 yes")
  expect_equal(post("/receive", 3e6), "3000000")
  expect_equal(it$pid("/closed"), "client done")
  program <- system.file("exec", "rookery", package = "rookery")
  status <- system2(program, c("status", it$process$get_pid(), "--json"), stdout = TRUE)
  expect_equal(jsonlite::fromJSON(status, simplifyVector = FALSE)$workers[[1]]$requests, 4)
})

test_that("pages of other origins cannot open a WebSocket behind workers", {
  it <- local_workers(c(
    "second <- NULL",
    "list(",
    "  wsOrigins = 'example.org',",
    "  call = function(req) {",
    # Started during a request, because requests go to the first server that a worker starts.
    "    if (is.null(second)) second <<- rookery::startServer('127.0.0.1', 0, list(",
    "      wsOrigins = 'example.net', onWSOpen = function(ws) NULL",
    "    ))",
    "    list(status = 200L, headers = list(), body = as.character(second$getPort()))",
    "  },",
    "  onWSOpen = function(ws) NULL",
    ")"
  ), "--workers", "2")
  # A further server of a worker has its own rule.
  second <- list(url = paste0("http://127.0.0.1:", it$pid()))
  for (case in list(
    list(it, "example.org", "101"), list(it, "example.net", "403"),
    list(second, "example.org", "403"), list(second, "example.net", "101")
  )) {
    lines <- paste0(
      "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: https://", case[[2]]
    )
    expect_match(announce(case[[1]], "/", lines, "GET"), paste0("^HTTP/1.1 ", case[[3]]))
  }
})

test_that("with --fail-fast the program exits with status 5 when all workers end repeatedly", {
  bad <- withr::local_tempfile()
  it <- local_workers(
    c(sprintf("if (file.exists('%s')) quit(status = 1)", bad), app_lines),
    "--workers", "2", "--fail-fast", "--max-memory",
    "0"
  )
  expect_true(wait_until(function() length(pids_of(it)) == 2))
  pids <- pids_of(it)
  file.create(bad)
  for (pid in pids) tools::pskill(as.integer(pid), tools::SIGKILL)
  expect_equal(exit_of(it), 5)
  expect_match(it$tell(), "All workers keep crashing before they respond to a request")
})

test_that("a worker that is removed while it loads the app does not say that the server stops", {
  slow <- "if (Sys.getenv('ROOKERY_WORKER') == '1') { cat('loading\\n', file = stderr()); for (i in 1:600) Sys.sleep(0.1) }"
  it <- local_workers(c(slow, app_lines), "--workers", "1")
  it$signal(21)
  expect_true(wait_until(function() grepl("loading", it$tell())))
  it$signal(22)
  expect_true(wait_until(function() grepl("as requested; it ran", it$tell())))
  expect_no_match(it$tell(), "nothing is being served")
})
