# HTTP/2: for R, everything is as over HTTP/1.1. Each test uses three transports and compares the
# results. crates/server/tests/it/transports tests what R has no part in, such as static files and
# streamed responses.

skip_if_not_installed("curl")

# The transports: arguments for the server and options for curl.
ways <- function(env = parent.frame()) {
  pair <- make_pair(withr::local_tempdir(.local_envir = env), "own")
  skip_if_not(isTRUE(curl::curl_version()$http2), "curl does not know HTTP/2")
  tls <- tls_config(pair$cert, pair$key)
  list(
    "http/1.1" = list(tls = NULL, scheme = "http", options = list(), version = "^HTTP/1.1 "),
    "https/1.1" = list(
      tls = tls, scheme = "https", options = list(cainfo = pair$cert, http_version = 2L),
      version = "^HTTP/1.1 "
    ),
    "h2" = list(
      tls = tls, scheme = "https", options = list(cainfo = pair$cert, http_version = 4L),
      version = "^HTTP/2 "
    )
  )
}

# Sends a request over one transport; `...` are options of curl.
ask <- function(way, server, path = "/", ...) {
  url <- paste0(way$scheme, "://localhost:", server$getPort(), path)
  answer <- do.call(fetch_here, c(list(url, ipresolve = 1L), way$options, list(...)))
  if (!is.list(answer)) stop(answer)
  stopifnot(grepl(way$version, rawToChar(answer$headers)))
  answer
}

# The parts of a response that are compared, without those about the connection.
seen <- function(answer) {
  headers <- curl::parse_headers_list(answer$headers)
  headers <- headers[
    !names(headers) %in% c("date", "connection", "transfer-encoding", "keep-alive")
  ]
  list(status = answer$status_code, headers = headers[order(names(headers))], body = answer$content)
}

# Sends requests over all transports, each to a server of its own, and returns the responses, which
# must be equal.
expect_same <- function(app, ..., what = seen, tls_only = FALSE) {
  answers <- lapply(ways(), function(way) {
    server <- startServer("127.0.0.1", 0, app, tls = way$tls)
    on.exit(server$stop())
    what(ask(way, server, ...))
  })
  expect_identical(answers[["h2"]], answers[["https/1.1"]])
  if (!tls_only) expect_identical(answers[["h2"]], answers[["http/1.1"]])
  answers[["h2"]]
}

test_that("a query reaches the app as it was sent", {
  app <- function(req) list(status = 200L, headers = list(), body = req$QUERY_STRING)
  for (query in c("?q=\"a\"<b>{c}|d", "?x=%22\"%zz<>^`\\'[]")) {
    answer <- expect_same(app, path = paste0("/", query))
    expect_identical(answer$status, 200L)
    expect_identical(rawToChar(answer$body), query)
  }
})

test_that("the request is the same", {
  shown <- NULL
  app <- function(req) {
    input <- req$rook.input$read()
    names <- setdiff(
      ls(req), c("rook.input", "rook.errors", "HEADERS", "REMOTE_PORT", "rook.url_scheme")
    )
    fields <- mget(names[!startsWith(names, ".")], envir = req)
    fields$HEADERS <- req$HEADERS[order(names(req$HEADERS))]
    fields$HEADERS[["host"]] <- fields$HTTP_HOST <- sub(":.*", "", fields$HTTP_HOST)
    fields$SERVER_PORT <- NULL
    shown <<- fields
    ok(paste(length(input), sum(as.integer(input))))
  }
  same <- function(...) {
    all <- lapply(ways(), function(way) {
      server <- startServer("127.0.0.1", 0, app, tls = way$tls)
      on.exit(server$stop())
      answer <- ask(way, server, ...)
      c(shown, text = answer$text)
    })
    expect_identical(all[["h2"]], all[["https/1.1"]])
    expect_identical(all[["h2"]], all[["http/1.1"]])
    all[["h2"]]
  }
  plain <- same("/a%20b/c?d=e&f", httpheader = c("X-One: 1", "X-Two: a", "X-Two: b", "Expect:"))
  expect_equal(plain[c("REQUEST_METHOD", "PATH_INFO", "QUERY_STRING")], list(
    REQUEST_METHOD = "GET", PATH_INFO = "/a%20b/c", QUERY_STRING = "?d=e&f"
  ), ignore_attr = TRUE)
  expect_equal(same(cookie = "a=1; b=2")$HTTP_COOKIE, "a=1; b=2")
  small <- same(copypostfields = "a=1&b=2", httpheader = "Expect:")
  expect_equal(small$text, paste(7, sum(utf8ToInt("a=1&b=2"))))
  expect_equal(same(customrequest = "DELETE")$REQUEST_METHOD, "DELETE")
  # Large enough to be spooled.
  bytes <- as.raw(rep(0:255, 12000))
  large <- same(
    post = TRUE, postfieldsize = length(bytes), postfields = bytes, httpheader = "Expect:"
  )
  expect_equal(large$text, paste(length(bytes), sum(as.integer(bytes))))
})

test_that("a header name with an underscore is only in HEADERS", {
  app <- function(req) {
    ok(paste(
      c(
        req$HTTP_X_FORWARDED_USER, req$HEADERS[c("x-forwarded-user", "x_forwarded_user")],
        req$HEADERS["x_one"], exists("HTTP_X_ONE", req), "HTTP_X_ONE" %in% ls(req, all.names = TRUE)
      ),
      collapse = " "
    ))
  }
  lines <- c(
    "X_Forwarded_User: eve", "X-Forwarded-User: ada", "X_Forwarded_User: mallory", "X_One: 1"
  )
  expect_equal(rawToChar(expect_same(app, httpheader = lines)$body), "ada ada eve,mallory 1 FALSE FALSE")
})

test_that("the scheme is https", {
  app <- function(req) ok(req$rook.url_scheme)
  answer <- expect_same(app, tls_only = TRUE)
  expect_equal(rawToChar(answer$body), "https")
})

test_that("responses of all kinds are the same", {
  lines <- withr::local_tempfile(lines = rep("a line of a file", 20000))
  app <- function(req) {
    switch(req$PATH_INFO,
      "/text" = list(
        status = 201L,
        headers = list("X-Own" = "yes", "Content-Type" = "text/plain", "Connection" = "close"),
        body = "text"
      ),
      "/raw" = list(status = 200L, headers = list(), body = as.raw(0:255)),
      "/file" = list(
        status = 200L, headers = list("Content-Type" = "text/plain"), body = c(file = lines)
      ),
      "/large" = ok(strrep("0123456789", 1e5)),
      "/none" = list(status = 204L, headers = list(), body = ""),
      "/cached" = list(status = 304L, headers = list(ETag = "\"a\""), body = NULL),
      "/two" = list(
        status = 200L, headers = list("Set-Cookie" = "a=1", "Set-Cookie" = "b=2"), body = ""
      ),
      "/error" = stop("on purpose"),
      "/promise" = promises::promise(function(resolve, reject) {
        later::later(function() resolve(ok("later")), 0.05)
      })
    )
  }
  for (path in c("/text", "/raw", "/file", "/large", "/none", "/cached", "/two", "/promise")) {
    answer <- expect_same(app, path)
    expect_lt(answer$status, 400)
  }
  expect_equal(suppressMessages(expect_same(app, "/error"))$status, 500L)
  for (path in c("/text", "/large", "/file")) {
    head <- expect_same(app, path, nobody = TRUE)
    expect_length(head$body, 0)
    packed <- expect_same(app, path, accept_encoding = "gzip")
    expect_equal(packed$headers[["content-encoding"]], "gzip")
  }
})

test_that("a body that arrives in chunks, and one that is refused, are the same", {
  app <- list(
    onHeaders = function(req) {
      if (req$PATH_INFO == "/no") return(list(status = 403L, headers = list(), body = "no"))
      if (req$PATH_INFO == "/chunks") {
        sum <- 0
        receive_body(
          on_data = function(bytes) sum <<- sum + length(bytes),
          on_end = function() ok(as.character(sum))
        )
      }
    },
    call = function(req) ok(as.character(length(req$rook.input$read())))
  )
  bytes <- as.raw(rep(1, 600001))
  post <- function(path) {
    expect_same(
      app, path, post = TRUE, postfieldsize = length(bytes), postfields = bytes,
      httpheader = "Expect:"
    )
  }
  expect_equal(rawToChar(post("/chunks")$body), "600001")
  expect_equal(rawToChar(post("/whole")$body), "600001")
  expect_equal(expect_same(app, "/no", copypostfields = "a", httpheader = "Expect:")$status, 403L)
})

test_that("HTTP/2 can be turned off", {
  pair <- make_pair(withr::local_tempdir(), "own")
  server <- startServer(
    "127.0.0.1", 0, function(req) ok("yes"), tls = tls_config(pair$cert, pair$key, http2 = FALSE)
  )
  on.exit(server$stop())
  answer <- fetch_here(secure_url(server), cainfo = pair$cert, http_version = 4L)
  expect_match(rawToChar(answer$headers), "^HTTP/1.1 200")
  expect_error(tls_config(pair$cert, pair$key, http2 = "maybe"), "must be TRUE or FALSE")
})
