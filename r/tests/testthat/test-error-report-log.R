# The log lines of errors: each error is reported once, never within garbage collection, with the
# request id that the client got, and with the failing line.

test_that("the loop reports a collected stream, and not the finalizer", {
  withr::local_options(rookery.error_detail = "none")
  told <- list()
  is_working <- FALSE
  server <- local_server(list(
    call = function(req) {
      stream <- stream_response()
      stream$write("a")
      stream
    },
    onError = function(cond, req, info) {
      told[[length(told) + 1]] <<- list(
        is_working = is_working, message = conditionMessage(cond), stage = info$stage,
        id = info$request_id
      )
    }
  ))
  client <- local_client(server)
  send(client, request("/lost"))
  serve_until(function() {
    fill(client)
    length(client$read) > 0
  })
  said <- stderr_of({
    is_working <- TRUE
    for (i in 1:3) gc()
    is_working <- FALSE
    expect_length(told, 0)
    serve_until(function() length(told) == 1)
  })
  expect_false(told[[1]]$is_working)
  expect_equal(told[[1]]$stage, "stream")
  expect_match(
    told[[1]]$message, "R has collected the stream's object before `$close()`", fixed = TRUE
  )
  expect_length(grep("R has collected", said, fixed = TRUE), 1)
  expect_match(said, paste0("GET /lost (the stream): R has collected"), fixed = TRUE, all = FALSE)
  expect_match(said, told[[1]]$id, fixed = TRUE, all = FALSE)
})

test_that("a stream that is collected before it was sent results in status 500 with the id", {
  withr::local_options(rookery.error_detail = "none")
  id <- NULL
  server <- local_server(list(
    call = function(req) stream_response(),
    onError = function(cond, req, info) id <<- info$request_id
  ))
  client <- local_client(server)
  stderr_of({
    send(client, request())
    for (i in 1:3) service(5)
    gc()
    answer <- reply(client)
    serve_until(function() !is.null(id))
  })
  expect_equal(answer$status, 500L)
  expect_equal(answer$text, paste0("500 Internal Server Error\nRequest ", id, "\n"))
})

# Sends a request with a body; returns the response, the calls of onError, and the output.
receive <- function(...) {
  it <- new.env()
  it$told <- it$reasons <- character()
  app <- list(
    onHeaders = function(req) receive_body(...),
    onError = function(cond, req, info) {
      it$told <- c(it$told, paste(info$stage, req$PATH_INFO, conditionMessage(cond)))
      it$ids <- c(it$ids, info$request_id)
      NULL
    }
  )
  server <- local_server(app)
  client <- local_client(server)
  it$said <- stderr_of({
    it$answer <- post(client, "/up", "abc")
    for (i in 1:5) service(5)
  })
  it
}

test_that("errors in receive_body() have route, stage and id, and are reported once", {
  withr::local_options(rookery.error_detail = "none")
  answer <- function() ok("whole")
  first_lines <- function(it) grep("^rookery: ", it$said, value = TRUE)

  it <- receive(
    function(bytes) stop("in data"), answer, on_close = function(reason) stop("in close")
  )
  expect_equal(it$answer$status, 500L)
  expect_equal(it$told, c("receive /up in data", "receive /up in close"))
  expect_length(unique(it$ids), 1)
  expect_match(first_lines(it)[[1]], "POST /up (receive_body: on_data): in data", fixed = TRUE)
  expect_match(first_lines(it)[[2]], "POST /up (receive_body: on_close): in close", fixed = TRUE)
  expect_length(grep(it$ids[[1]], first_lines(it), fixed = TRUE), 2)

  it <- receive(function(bytes) NULL, answer, on_close = function(reason) {
    stop("in close of a whole body")
  })
  expect_equal(it$answer$text, "whole")
  expect_equal(it$told, "receive /up in close of a whole body")

  reason <- NULL
  it <- receive(
    function(bytes) NULL, function() stop("in end"), on_close = function(why) reason <<- why
  )
  expect_equal(it$told, "receive /up in end")
  expect_match(first_lines(it), "POST /up (receive_body: on_end): in end", fixed = TRUE)
  expect_match(it$said, "stop(\"in end\")", fixed = TRUE, all = FALSE)
  expect_equal(reason, "error")

  # An invalid response is reported as such, and not as an error of a promise.
  for (bad in list(function() NULL, function() "no", function() list(status = "x"))) {
    it <- receive(function(bytes) NULL, bad, on_close = function(why) reason <<- why)
    expect_equal(it$answer$status, 500L)
    expect_match(it$told, "^response /up ")
    expect_match(first_lines(it), "POST /up (the response): ", fixed = TRUE)
    expect_equal(reason, "error")
  }

  it <- receive(function(bytes) NULL, function() invokeRestart("abort"), on_close = function(why) {
    stop("in close of a jump")
  })
  expect_equal(it$answer$status, 500L)
  expect_setequal(
    it$told, c("receive /up in close of a jump", "receive /up interrupted, or ended by a restart")
  )
})

test_that("a jump out of onError does not affect the report, its id and the response", {
  withr::local_options(rookery.error_detail = "message")
  id <- NULL
  server <- local_server(list(
    call = function(req) stop("the first"),
    onError = function(cond, req, info) {
      id <<- info$request_id
      if (req$PATH_INFO == "/restart") invokeRestart("abort")
      list(status = "bad")
    }
  ))
  for (path in c("/restart", "/bad")) {
    client <- local_client(server)
    said <- stderr_of(answer <- get(client, path))
    expect_equal(answer$status, 500L)
    expect_equal(answer$text, paste0("500 Internal Server Error\nRequest ", id, "\nthe first\n"))
    expect_match(
      said, paste0("GET ", path, " (call): the first [", id, "]"), fixed = TRUE, all = FALSE
    )
    expect_length(grep("onError: ", said, fixed = TRUE), 1)
  }
})

test_that("an interrupt of onError reaches the loop after the report and the response", {
  skip_if_not_installed("rlang")
  withr::local_options(rookery.error_detail = "none")
  server <- local_server(list(
    call = function(req) stop("the first"), onError = function(cond, req, info) rlang::interrupt()
  ))
  client <- local_client(server)
  said <- stderr_of({
    outcome <- tryCatch(get(client, "/interrupted"), interrupt = function(condition) "interrupted")
    answer <- if (identical(outcome, "interrupted")) reply(client) else outcome
  })
  expect_identical(outcome, "interrupted")
  expect_equal(answer$status, 500L)
  expect_match(answer$text, "Request [0-9a-f]{32}")
  expect_match(said, "GET /interrupted (call): the first [", fixed = TRUE, all = FALSE)
})

test_that("ids of repeated errors are logged in lines of limited length", {
  withr::local_options(rookery.error_detail = "none")
  server <- local_server(list(call = function(req) stop("over and over")))
  client <- local_client(server)
  ids <- character()
  said <- stderr_of({
    for (i in 1:120) {
      ids <- c(ids, sub(".*Request ([0-9a-f]+)\n.*", "\\1", get(client, "/repeated")$text))
    }
    rookery:::flush_all_error_reports()
  })
  expect_length(unique(ids), 120)
  lines <- grep("^rookery: .*over and over", said, value = TRUE)
  # One line for the first, and one for each of three counts, unless a count has ended earlier.
  expect_gte(length(lines), 4)
  expect_lt(length(lines), 20)
  expect_match(lines, "^rookery: GET /repeated \\(call\\): over and over ")
  written <- unlist(regmatches(lines, gregexpr("[0-9a-f]{32}", lines)))
  expect_identical(written, ids)
  # A line is also written when its time has come, so only the sum of the counts is fixed.
  more <- sub(".*\\(([0-9]+) more in [0-9]+ s\\).*", "\\1", lines[-1])
  expect_equal(sum(as.integer(more)), 119)
})

test_that("ids of repeated errors are logged when R ends in any way", {
  skip_if_not_installed("processx")
  skip_if_not_installed("curl")
  serve <- local_cli(
    "serve",
    local_app(app.R = "function(req) if (req$PATH_INFO == '/quit') quit('no') else stop('again')"),
    "--port", "0", "--log=none"
  )
  quits <- local_cli(
    "serve",
    local_app(app.R = "function(req) if (req$PATH_INFO == '/quit') quit('no') else stop('again')"),
    "--port", "0", "--log=none"
  )
  for (it in list(serve, quits)) {
    url <- expect_serving(it)
    ids <- vapply(1:3, function(i) sub(".*Request ([0-9a-f]+)\n.*", "\\1", fetch(url)$text), "")
    if (identical(it, serve)) {
      it$signal(tools::SIGTERM)
    } else {
      try(fetch(paste0(url, "/quit")), silent = TRUE)
    }
    exit_of(it)
    for (id in ids) expect_match(it$tell(), id, fixed = TRUE)
  }
})

test_that("the line of the error is logged, without options, and marked on the page", {
  skip_if_not_installed("processx")
  skip_if_not_installed("curl")
  dir <- local_app(
    "app.R" = c(
      "source('helper.R', local = TRUE)", "function(req) {", "  x <- 1",
      "  if (req$PATH_INFO == '/sum') x <- x + 'a'",
      "  switch(req$PATH_INFO,", "    '/log' = helper(x),", "    '/of_many' = {",
      "    }, '/product' =", "      x * 'b')", "  stop('at last')", "}"
    ),
    "helper.R" = c("helper <- function(x) {", "  x <- 2", "  log(-1, 'b')", "}")
  )
  it <- local_cli("serve", dir, "--port", "0", "--log=none")
  url <- expect_serving(it)
  for (path in c("/sum", "/log", "/product", "/stop")) fetch(paste0(url, path))
  expect_true(wait_until(function() grepl("/stop", it$tell())))
  told <- it$tell()
  expect_match(told, "GET /sum \\(call\\): non-numeric argument to binary operator [^\n]*\n    \\(function \\(req\\)[^\n]*\n    at app.R:4\n")
  expect_match(told, "helper\\(x\\) at app.R:6\n    at helper.R:3\n")
  expect_match(
    told, "GET /product \\(call\\)[^\n]*\n    \\(function \\(req\\)[^\n]*\n    at app.R:9\n"
  )
  expect_match(told, "stop\\(\"at last\"\\) at app.R:10(\n|$)")
  expect_no_match(told, "at app.R:10\n    at ")

  full <- local_cli("serve", dir, "--port", "0", "--log=none", "--error-detail", "full")
  url <- expect_serving(full)
  page <- function(path) fetch(paste0(url, path), httpheader = "Accept: text/html")$text
  marked <- function(html) unlist(regmatches(html, gregexpr("<b>[^<]*</b>", html)))
  expect_identical(
    marked(page("/sum")), "<b>4   if (req$PATH_INFO == &#39;/sum&#39;) x &lt;- x + &#39;a&#39;</b>"
  )
  expect_identical(
    marked(page("/log")),
    c("<b>3   log(-1, &#39;b&#39;)</b>", "<b>6     &#39;/log&#39; = helper(x),</b>")
  )
  expect_true("<b>10   stop(&#39;at last&#39;)</b>" %in% marked(page("/stop")))
  # The open frame is the newest one of the app.
  expect_match(page("/stop"), "<details open><summary>[^\n]*app.R:10")
})
