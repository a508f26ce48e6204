# The error page for a developer's own browser, with `rookery.error_detail` = "full".

page_app <- function() {
  # Evaluates code from a file, as an app's code is.
  file <- withr::local_tempfile(
    lines = c(
      "inner <- function(what) {", "  text <- '<script>alert(0)</script>'",
      "  if (is.null(what)) stop('nothing there')",
      "  stop(what)", "}", "call <- function(req) inner(next_error())"
    ),
    fileext = ".R"
  )
  env <- new.env(parent = globalenv())
  source(file, local = env, keep.source = TRUE)
  env
}

# An app whose code is in a file, and which fails with `condition(req)`.
local_page_server <- function(condition, ..., env = parent.frame()) {
  app <- page_app()
  local_server(list(call = function(req) {
    app$next_error <- function() condition(req)
    app$call(req)
  }, ...), env)
}

browser_of <- function(server, ...) {
  c(
    "Accept: text/html,application/xhtml+xml,*/*;q=0.8",
    paste0("Host: localhost:", server$getPort()), ...
  )
}

# get() with headers that may replace Host.
page_of <- function(server, path = "/", headers = browser_of(server), method = "GET") {
  client <- local_client(server)
  stderr_of({
    send(
      client,
      paste0(method, " ", path, " HTTP/1.1\r\n", paste0(headers, "\r\n", collapse = ""), "\r\n")
    )
    answer <- reply(client, method)
  })
  answer$text <- enc2utf8(`Encoding<-`(answer$text, "UTF-8"))
  answer
}

test_that("a browser on this machine gets a page with the error, its calls and the request", {
  withr::local_options(rookery.error_detail = "full")
  server <- local_page_server(function(req) "no such column")
  answer <- page_of(server, "/table?rows=5", browser_of(server, "X-Plain: seen"))
  expect_equal(answer$status, 500)
  expect_equal(answer$headers[["content-type"]], "text/html; charset=utf-8")
  expect_equal(answer$headers[["cache-control"]], "no-store")
  expect_match(answer$text, "<h1>no such column</h1>", fixed = TRUE)
  expect_match(answer$text, "simpleError, error", fixed = TRUE)
  expect_match(answer$text, "Request <code>[0-9a-f]{32}</code>")
  # The line, and up to three lines before and after it.
  expect_match(answer$text, "<b>4   stop(what)</b>", fixed = TRUE)
  for (line in c(
    "1 inner &lt;- function(what) {", "6 call &lt;- function(req) inner(next_error())"
  )) {
    expect_match(answer$text, line, fixed = TRUE)
  }
  expect_match(answer$text, "<code>base::stop(what)</code>|<code>stop\\(what\\)</code>")
  expect_match(answer$text, "1 call inside base", fixed = TRUE)
  expect_match(answer$text, "GET /table", fixed = TRUE)
  expect_match(answer$text, "<th>rows</th><td>5</td>", fixed = TRUE)
  expect_match(answer$text, "<th>x-plain</th><td>seen</td>", fixed = TRUE)
  # A HEAD request gets the same headers.
  expect_equal(
    page_of(server, method = "HEAD")$headers[["content-type"]], "text/html; charset=utf-8"
  )
})

test_that("other clients get no page, and by default no client does", {
  told <- function(server, headers) page_of(server, "/", headers)$headers[["content-type"]]
  html <- "Accept: text/html"
  for (detail in c("none", "message", "httpuv")) {
    withr::local_options(rookery.error_detail = detail)
    server <- local_page_server(function(req) "no")
    expect_match(told(server, browser_of(server)), "^text/plain", info = detail)
  }
  withr::local_options(rookery.error_detail = "full")
  server <- local_page_server(function(req) "no")
  # A foreign host name that resolves to this machine, and a proxy on this machine.
  expect_match(told(server, c(html, "Host: rebound.example.org")), "^text/plain")
  expect_match(told(server, browser_of(server, "X-Forwarded-For: 192.0.2.1")), "^text/plain")
  expect_match(told(server, c("Accept: */*", "Host: localhost")), "^text/plain")
  expect_equal(
    told(server, c("Accept: application/json", "Host: localhost")), "application/problem+json"
  )
  expect_match(told(server, c("Accept: text/html", "Host: [::1]:80")), "^text/html")
  # A connection to a Unix socket comes from a proxy.
  skip_if_not_installed("curl")
  path <- withr::local_tempfile()
  pipe <- startPipeServer(path, NULL, function(req) stop("no"))
  withr::defer(pipe$stop())
  stderr_of(answer <- fetch_here("http://localhost/", httpheader = html, unix_socket_path = path))
  expect_equal(answer$status_code, 500)
  expect_match(answer$type, "^text/plain")
})

test_that("the default of an interactive session shows no page", {
  withr::local_options(rookery.error_detail = NULL)
  expect_false(setting_of("error_detail")$value == "full")
})

test_that("text of requests and errors is escaped on the page", {
  withr::local_options(rookery.error_detail = "full")
  hostile <- "<script>alert('x')</script><img src=x onerror=\"alert(1)\">&amp;"
  condition <- structure(
    class = c("<b>class</b>", "error", "condition"),
    list(
      message = hostile, call = str2lang("f(\"<i>call</i>\")"),
      parent = simpleError("<u>parent</u>")
    )
  )
  server <- local_page_server(function(req) condition)
  quoted <- utils::URLencode(hostile, reserved = TRUE)
  answer <- page_of(
    server, paste0("/%3Csvg%3E?", quoted, "=", quoted, "&%3Ch1%3E"),
    browser_of(
      server, paste("User-Agent:", hostile), "X-Quote: \"'`</td></table><style>*{}</style>",
      "X-Bytes: \xff\xfe<b>", "X-Turn: a\u202eb"
    )
  )
  expect_match(answer$headers[["content-type"]], "^text/html")
  body <- sub("^.*<body>", "", gsub("\n", " ", answer$text))
  # The body contains only tags and attributes that the page writes, and none from the error.
  tags <- unique(unlist(regmatches(body, gregexpr("<[^>]*>", body))))
  ours <- c(
    "<header>", "</header>", "<main>", "</main>", "<h1>", "</h1>", "<h2>", "</h2>", "<p>", "</p>",
    "<p class=quiet>", "<code>", "</code>", "<details>",
    "<details open>", "</details>", "<summary>", "<summary class=quiet>", "</summary>",
    "<span class=quiet>", "</span>", "<pre>", "</pre>", "<b>", "</b>", "<i>", "</i>",
    "<table>", "</table>", "<tr>", "</tr>", "<th>", "</th>", "<td>", "</td>", "</body>", "</html>"
  )
  expect_equal(setdiff(tags, ours), character())
  expect_no_match(sub("<style>.*</style>", "", answer$text), "\"|'")
  expect_match(answer$text, "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;", fixed = TRUE)
  expect_match(answer$text, "caused by &lt;u&gt;parent", fixed = TRUE)
  expect_match(answer$text, "&lt;b&gt;class", fixed = TRUE)
  expect_no_match(answer$text, "\u202e")
  # The title is checked as well.
  expect_match(answer$text, "<title>&lt;script&gt;", fixed = TRUE)
})

test_that("the page's policy allows no scripts and no loading, only its own style", {
  withr::local_options(rookery.error_detail = "full")
  server <- local_page_server(function(req) "no")
  answer <- page_of(server)
  policy <- strsplit(answer$headers[["content-security-policy"]], "; ")[[1]]
  expect_true(all(
    c(
      "default-src 'none'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
      "sandbox"
    ) %in%
      policy
  ))
  expect_no_match(policy, "unsafe|script-src|http|\\*")
  expect_equal(answer$headers[["x-content-type-options"]], "nosniff")
  skip_if_not_installed("openssl")
  style <- sub("^.*<style>(.*)</style>.*$", "\\1", gsub("\n", "", answer$text))
  hash <- openssl::base64_encode(openssl::sha256(charToRaw(style)))
  expect_true(paste0("style-src 'sha256-", hash, "'") %in% policy)
  expect_no_match(answer$text, "style=|\\bon[a-z]+=|src=|href=")
})

test_that("the page masks secrets in the request and in the error message", {
  withr::local_options(rookery.error_detail = "full", mine.secret = "an option's secret")
  withr::local_envvar(MINE_SECRET = "an environment's secret")
  server <- local_page_server(function(req) {
    local <- "a local's secret"
    paste("cannot use", req$HTTP_COOKIE, "nor", req$HTTP_AUTHORIZATION, "nor", req$QUERY_STRING)
  })
  answer <- page_of(server, "/?pass%77ord=hunter2&user=ann&api_key=k%65y-1234", browser_of(
    server, "Cookie: session=c00kie-value; theme=dark", "Authorization: Bearer bearer-value",
    "X-Api-Key: api-value", "Proxy-Authorization: proxy-value",
    "X-CSRF-Token: csrf-value", "Referer: http://localhost/?token=referer-value"
  ))
  expect_match(answer$text, "cannot use \\[masked\\]")
  for (secret in c(
    "c00kie-value", "bearer-value", "api-value", "proxy-value", "csrf-value", "hunter2", "key-1234",
    "referer-value", "option&#39;s secret",
    "environment&#39;s secret", "local&#39;s secret"
  )) {
    expect_no_match(answer$text, secret, fixed = TRUE)
  }
  expect_match(answer$text, "<th>user</th><td>ann</td>", fixed = TRUE)
  expect_match(answer$text, "<th>password</th><td>[masked]</td>", fixed = TRUE)
})

test_that("errors before the head result in a page, and later errors do not", {
  withr::local_options(rookery.error_detail = "full")
  server <- local_server(list(
    call = function(req) {
      switch(
        req$PATH_INFO,
        "/response" = list(status = "x"),
        "/promise" = promises::promise(function(resolve, reject) {
          later::later(function() reject("in a promise"), 0.01)
        }),
        "/late" = promises::promise(function(resolve, reject) {
          later::later(function() resolve(1), 0.01)
        }),
        "/deep" = (function(f) f(f))(function(f) f(f)),
        "/stream" = list(
          status = 200L, headers = list("Content-Type" = "text/plain"),
          body = function() stop("<b>in a stream")
        )
      )
    },
    onHeaders = function(req) if (req$PATH_INFO == "/early") stop("early")
  ))
  for (path in c("/early", "/response", "/promise", "/late", "/deep")) {
    answer <- page_of(server, path)
    expect_match(answer$headers[["content-type"]], "^text/html", info = path)
    expect_match(answer$text, paste0("GET ", path), fixed = TRUE)
  }
  # The head with its content type is already waiting.
  answer <- page_of(server, "/stream")
  expect_equal(answer$status, 500)
  expect_match(answer$headers[["content-type"]], "^text/plain")
  expect_match(answer$text, "^500 Internal Server Error\n")
})

test_that("unusual conditions, long texts and a changed source file result in a page as well", {
  withr::local_options(rookery.error_detail = "full")
  conditions <- list(
    structure(class = c("bare", "error", "condition"), list()),
    structure(class = c("odd", "error", "condition"), list(message = 1:3, call = NULL)),
    simpleError("\xff is no UTF-8"),
    simpleError(strrep("long <", 1e5)),
    structure(
      class = c("odd", "error", "condition"),
      list(
        message = "traced", call = 5,
        trace = structure(list(call = list(1, quote(f(x)))), class = "rlang_trace")
      )
    )
  )
  at <- 0
  server <- local_page_server(function(req) conditions[[at]])
  for (at in seq_along(conditions)) {
    answer <- page_of(server)
    expect_match(answer$headers[["content-type"]], "^text/html", info = at)
    expect_match(answer$text, "</html>\n$", info = at)
    expect_lt(nchar(answer$text), 2e5)
  }
  expect_length(source_lines(NULL, 1L), 0)
  gone <- srcfile(withr::local_tempfile(lines = "x"))
  unlink(gone$filename)
  expect_length(source_lines(gone, 1L), 0)
})

test_that("successful requests are the same with and without the page", {
  ok_app <- list(call = function(req) ok())
  counts <- vapply(c("none", "full"), function(detail) {
    withr::local_options(rookery.error_detail = detail)
    server <- local_server(ok_app)
    client <- local_client(server)
    for (i in 1:5) get(client, "/", "Accept: text/html")
    before <- cells()
    for (i in 1:300) get(client, "/", "Accept: text/html")
    cells() - before
  }, 0)
  # Requests that were kept until the response leave nothing; each would have a dozen cells.
  expect_lt(counts[["full"]] - counts[["none"]], 1500)
})
