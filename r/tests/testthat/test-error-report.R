# Error reports: onError, tracebacks, request ids, and responses to clients.

failing_app <- function(on_error = NULL) {
  inner <- function(what) stop(what)
  list(
    call = function(req) {
      switch(
        req$PATH_INFO,
        "/ok" = ok(req$REQUEST_ID),
        "/response" = list(status = "x"),
        "/promise" = promises::promise(function(resolve, reject) {
          later::later(function() reject("in a promise"), 0.01)
        }),
        "/late" = promises::promise(function(resolve, reject) {
          later::later(function() resolve(1), 0.01)
        }),
        "/stream" = list(status = 200L, headers = list(), body = function() stop("in a stream")),
        inner("the secret inside")
      )
    },
    onHeaders = function(req) if (req$PATH_INFO == "/early") stop("early"),
    onError = on_error
  )
}

own_id <- "^[0-9a-f]{32}$"

test_that("clients get an id without details, and stderr gets all details", {
  # Forgets reported errors, because another test file may have reached the maximum number of kinds
  # within ten seconds.
  .globals$error_reports <- NULL
  withr::local_options(rookery.error_detail = "none")
  server <- local_server(failing_app())
  client <- local_client(server)
  said <- stderr_of(answer <- get(client, "/fails"))
  expect_equal(answer$status, 500)
  lines <- strsplit(answer$text, "\n")[[1]]
  expect_equal(lines[[1]], "500 Internal Server Error")
  id <- sub("^Request ", "", lines[[2]])
  expect_match(id, own_id)
  expect_length(lines, 2)
  expect_match(
    said, paste0("rookery: GET /fails (call): the secret inside [", id, "]"), fixed = TRUE,
    all = FALSE
  )
  expect_match(said, 'inner("the secret inside")', fixed = TRUE, all = FALSE)
  for (path in c("/early", "/response", "/promise", "/late", "/stream")) {
    said <- stderr_of(answer <- get(client, path))
    expect_equal(answer$status, 500)
    expect_match(answer$text, "^500 Internal Server Error\nRequest [0-9a-f]{32}\n$", info = path)
    expect_match(
      said, sub("^.*Request ([0-9a-f]*)\n$", "\\1", answer$text), fixed = TRUE, all = FALSE,
      info = path
    )
  }
  expect_match(get(client, "/ok")$text, own_id)
})

test_that("a client that accepts JSON gets a problem document", {
  withr::local_options(rookery.error_detail = "none")
  server <- local_server(failing_app())
  client <- local_client(server)
  stderr_of({
    json <- get(client, "/fails", headers = "Accept: application/json")
    page <- get(client, "/fails", headers = "Accept: text/html, application/json;q=0.5")
  })
  expect_equal(json$headers[["content-type"]], "application/problem+json")
  expect_match(
    json$text, '^\\{"title":"Internal Server Error","status":500,"instance":"[0-9a-f]{32}"\\}$'
  )
  expect_match(page$headers[["content-type"]], "^text/plain")
})

test_that("error_detail makes clients see the message, or all details", {
  for (detail in c("message", "full")) {
    withr::local_options(rookery.error_detail = detail)
    server <- local_server(failing_app())
    client <- local_client(server)
    stderr_of({
      text <- get(client, "/fails")$text
      json <- get(client, "/fails", headers = "Accept: application/problem+json")$text
    })
    expect_match(text, "\nthe secret inside\n", fixed = TRUE)
    expect_match(json, '"detail":"the secret inside"', fixed = TRUE)
    expect_equal(grepl("inner(", text, fixed = TRUE), detail == "full")
    expect_equal(grepl('"trace":[', json, fixed = TRUE), detail == "full")
  }
})

test_that("onError is called once for each error, and its value is the response", {
  withr::local_options(rookery.error_detail = "none")
  heard <- list()
  app <- failing_app(function(cond, req, info) {
    heard[[length(heard) + 1]] <<- list(conditionMessage(cond), req, info)
    list(status = 503L, headers = list("X-Seen" = info$stage), body = paste("see", info$request_id))
  })
  server <- local_server(app)
  client <- local_client(server)
  expected <- c(
    "/fails" = "call", "/early" = "onHeaders", "/response" = "response", "/promise" = "promise",
    "/late" = "response", "/stream" = "stream"
  )
  for (path in names(expected)) {
    heard <- list()
    stderr_of(answer <- get(client, path))
    expect_length(heard, 1)
    info <- heard[[1]][[3]]
    expect_equal(info$stage, expected[[path]], info = path)
    expect_match(info$request_id, own_id)
    expect_equal(answer$text, paste("see", info$request_id))
    expect_gte(info$seconds, 0)
    # For a stream, R no longer has the request, and the status is already set.
    expect_equal(is.environment(heard[[1]][[2]]), path != "/stream")
    expect_equal(answer$status, if (path == "/stream") 500 else 503)
    if (path != "/stream") {
      expect_equal(heard[[1]][[2]]$PATH_INFO, path)
      expect_equal(answer$headers[["x-seen"]], expected[[path]])
    }
  }
  expect_s3_class(info$frames, "data.frame")
})

test_that("onError is called for errors in WebSocket callbacks and in receive_body()", {
  withr::local_options(rookery.error_detail = "none")
  stages <- c()
  on_error <- function(cond, req, info) stages <<- c(stages, paste(info$stage, req$PATH_INFO))
  server <- local_server(list(
    call = function(req) ok(),
    onHeaders = function(req) {
      if (req$PATH_INFO == "/up") receive_body(function(bytes) stop("in data"), function() ok())
    },
    onWSOpen = function(ws) {
      if (ws$request$PATH_INFO == "/open") stop("at open")
      ws$onMessage(function(binary, message) stop("at message"))
      ws$onClose(function() stop("at close"))
    },
    onError = on_error
  ))
  stderr_of({
    client <- local_client(server)
    answer <- post(client, "/up", "abc")
    expect_equal(answer$status, 500)
    upgrade(local_client(server), "/open")
    serve_until(function() length(stages) == 2)
    client <- local_client(server)
    upgrade(client, "/ws")
    send(client, frame("x"))
    serve_until(function() length(stages) == 4)
  })
  expect_equal(stages, c("receive /up", "onWSOpen /open", "message /ws", "close /ws"))
})

test_that("onError may have fewer arguments, fail, or return an invalid response", {
  withr::local_options(rookery.error_detail = "none")
  heard <- 0
  path <- "/fails"
  for (on_error in list(
    function() heard <<- heard + 1, function(cond) stop("in onError"),
    function(...) list(status = "x")
  )) {
    server <- local_server(failing_app(on_error))
    client <- local_client(server)
    # A repetition within 10 s would be reported later.
    path <- paste0(path, "/again")
    said <- stderr_of(answer <- get(client, path))
    expect_equal(answer$status, 500)
    expect_match(answer$text, "^500 Internal Server Error\n")
    expect_match(said, "the secret inside", all = FALSE)
  }
  expect_equal(heard, 1)
  expect_match(said, "the response of onError: `status` must be", all = FALSE)
})

test_that("a response of onError with a missing file is replaced by the default response", {
  withr::local_options(rookery.error_detail = "none")
  bodies <- list(c(file = "/nonexistent/file"), list(file = "/nonexistent/file"))
  for (at in seq_along(bodies)) {
    server <- local_server(failing_app(function(cond) {
      list(
        status = 418L, headers = list("Content-Type" = "text/html", "X-Own" = "1"),
        body = bodies[[at]]
      )
    }))
    said <- stderr_of(answer <- get(local_client(server), paste0("/no-file", at)))
    expect_equal(answer$status, 500)
    expect_match(answer$text, "^500 Internal Server Error\nRequest [0-9a-f]+\n$")
    expect_match(answer$headers[["content-type"]], "^text/plain")
    expect_false("x-own" %in% names(answer$headers))
    expect_match(said, "/nonexistent/file", all = FALSE, fixed = TRUE)
  }
})

test_that("a traceback has at most 50 frames of 60 characters, and only for unhandled errors", {
  withr::local_options(rookery.error_detail = "none")
  deep <- function(n, data) if (n == 0) stop("deep") else deep(n - 1, data)
  traces <- list()
  server <- local_server(list(
    call = function(req) {
      if (req$PATH_INFO == "/handled") {
        return(ok(tryCatch(stop("x"), error = function(e) "handled")))
      }
      do.call(deep, list(200, mtcars))
    },
    onError = function(cond, req, info) traces[[length(traces) + 1]] <<- info
  ))
  client <- local_client(server)
  stderr_of({
    handled <- get(client, "/handled")
    get(client, "/fails")
  })
  expect_equal(handled$text, "handled")
  expect_length(traces, 1)
  expect_equal(nrow(traces[[1]]$frames), 50)
  expect_true(all(nchar(traces[[1]]$frames$call) <= 60))
  expect_match(traces[[1]]$trace, "^\\.\\.\\. [0-9]+ more$", all = FALSE)
  expect_match(tail(traces[[1]]$trace, 1), "stop\\(\"deep\"\\)")
})

test_that("traces and parent errors of rlang are reported", {
  withr::local_options(rookery.error_detail = "none")
  trace <- structure(
    data.frame(row.names = 1:2),
    class = c("rlang_trace", "data.frame"), call = NULL
  )
  trace$call <- list(quote(fit(x)), quote(check(y)))
  trace$namespace <- c("models", NA)
  root <- structure(
    class = c("no_file", "error", "condition"), list(message = "no such file", call = NULL)
  )
  condition <- structure(
    class = c("rlang_error", "error", "condition"),
    list(message = "cannot fit", call = NULL, trace = trace, parent = root)
  )
  lines <- NULL
  server <- local_server(list(
    call = function(req) stop(condition), onError = function(cond, req, info) lines <<- info$trace
  ))
  stderr_of(get(local_client(server), "/fails"))
  expect_equal(lines, c("models::fit(x)", "check(y)", "caused by <no_file> no such file"))
})

test_that("repeated errors are reported once with their number", {
  withr::local_options(rookery.error_detail = "none")
  server <- local_server(list(call = function(req) stop("again and again")))
  client <- local_client(server)
  said <- stderr_of(for (i in 1:5) get(client, "/often"))
  expect_length(grep("(call): again and again", said, fixed = TRUE), 1)
  said <- stderr_of({
    globals <- rookery:::.globals
    globals$error_reports <- rookery:::flush_error_reports(
      globals$error_reports, proc.time()[["elapsed"]] + 3
    )
  })
  expect_match(said, "GET /often \\(call\\): again and again \\(4 more in [0-9]+ s\\)", all = FALSE)
})

test_that("the number of remembered kinds of errors is limited, because clients choose paths", {
  globals <- rookery:::.globals
  before <- globals$error_reports
  withr::defer(globals$error_reports <- before)
  fault <- list(stage = "call", label = "call", request_id = "", condition = NULL, text = "no")
  stderr_of(for (i in 1:500) rookery:::log_error_report(c(fault, route = paste("GET", i))))
  expect_lte(length(globals$error_reports), 201)
})

test_that("secrets are masked in the headers that onError gets", {
  withr::local_options(rookery.error_detail = "none")
  headers <- NULL
  server <- local_server(list(
    call = function(req) stop("no"), onError = function(cond, req, info) headers <<- info$headers
  ))
  stderr_of(get(local_client(server), "/fails", headers = c(
    "Authorization: Bearer abc", "Cookie: id=1", "X-Api-Key: k", "X-Plain: yes",
    "Proxy-Authorization: p", "X-CSRF-Token: t"
  )))
  expect_equal(
    unname(headers[
      c("authorization", "cookie", "x-api-key", "proxy-authorization", "x-csrf-token")
    ]),
    rep("[masked]", 5)
  )
  expect_equal(headers[["x-plain"]], "yes")
})

test_that("the names of secrets are those of the access log", {
  names <- c("X-Api-Key", "password", "idToken", "accept", "author", "max_tokens")
  expect_equal(rookery:::is_secret_name(names), rep(c(TRUE, FALSE), each = 3))
  fields <- c("user[pass]", "user[token]", "s[auth]", "token[]", "token ", "Authentication")
  expect_equal(rookery:::is_secret_name(fields), rep(TRUE, 6))
  expect_equal(rookery:::is_secret_name(NULL), logical())
  expect_equal(rookery:::mask(c(Cookie = "a=b", Accept = "c")), c(Cookie = "[masked]", Accept = "c"))
})

test_that("request ids come from a trusted proxy, from a trace, or from the server", {
  withr::local_options(rookery.error_detail = "none", rookery.request_id_header = TRUE)
  asked <- function(server, headers = character()) {
    answer <- get(local_client(server), "/ok", headers)
    expect_equal(answer$headers[["x-request-id"]], answer$text)
    answer$text
  }
  trace <- "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
  server <- local_server(failing_app())
  ids <- replicate(3, asked(server))
  expect_match(ids, own_id)
  expect_length(unique(ids), 3)
  expect_match(asked(server, "X-Request-Id: mine"), own_id)
  expect_equal(asked(server, trace), "0af7651916cd43dd8448eb211c80319c")
  withr::local_options(rookery.trusted_proxies = "127.0.0.1")
  server <- local_server(failing_app())
  expect_equal(asked(server, c("X-Request-Id: mine", trace)), "mine")
  expect_match(asked(server, "X-Request-Id: not <fine>"), own_id)
})

test_that("a request id is an ordinary string", {
  withr::local_options(rookery.error_detail = "none")
  kept <- NULL
  server <- local_server(list(call = function(req) {
    kept <<- req$REQUEST_ID
    ok()
  }))
  get(local_client(server), "/")
  expect_true(is.character(kept) && length(kept) == 1)
  file <- withr::local_tempfile()
  saveRDS(kept, file)
  expect_identical(readRDS(file), paste0(kept))
  expect_identical(sort(c(kept, "a")), sort(c(paste0(kept), "a")))
  changed <- kept
  changed[[1]] <- "x"
  expect_match(kept, own_id)
  expect_identical(changed, "x")
})

test_that("a response with status 500 of the app itself is logged with its id", {
  withr::local_options(rookery.error_detail = "none", rookery.request_id_header = TRUE)
  own <- list(status = 500L, headers = list(), body = "mine")
  app <- function(req) {
    switch(
      req$PATH_INFO,
      "/later" = promises::promise(function(resolve, reject) {
        later::later(function() resolve(own), 0.01)
      }),
      "/other" = list(status = 503L, headers = list(), body = "mine"),
      own
    )
  }
  server <- local_server(app)
  for (path in c("/", "/later")) {
    said <- stderr_of(answer <- get(local_client(server), path))
    expect_equal(answer$text, "mine")
    line <- paste0(
      "rookery: GET ", path, " (the app's response): the app itself responded with status 500 [",
      answer$headers[["x-request-id"]], "]"
    )
    expect_equal(said, line)
  }
  expect_equal(stderr_of(get(local_client(server), "/other")), character())
  # httpuv prints nothing, and neither does its replacement.
  withr::local_options(rookery.error_detail = "httpuv")
  expect_equal(stderr_of(get(local_client(local_server(app)), "/")), character())
})

test_that("under httpuv, requests have no id and errors no traceback", {
  withr::local_options(rookery.error_detail = "httpuv")
  names <- NULL
  server <- local_server(list(call = function(req) {
    names <<- ls(req, all.names = TRUE)
    stop("told")
  }))
  said <- stderr_of(answer <- get(local_client(server), "/fails"))
  expect_false("REQUEST_ID" %in% names)
  expect_equal(answer$text, "ERROR: told")
  expect_equal(said, "rookery: GET /fails (call): told")
})

test_that("errors leave R intact under gctorture", {
  withr::local_options(rookery.error_detail = "none")
  count <- 0
  server <- local_server(failing_app(function(cond, req, info) {
    count <<- count + 1
    ok(info$trace[[1]])
  }))
  client <- local_client(server)
  # on.exit() would replace the handlers of withr.
  withr::defer(gctorture(FALSE))
  stderr_of({
    gctorture2(2000)
    for (path in c("/fails", "/early", "/response", "/promise", "/stream")) get(client, path)
    gctorture(FALSE)
  })
  expect_equal(count, 5)
})
