# plumber, unmodified, served by rookery: what its documentation promises.

skip_if_not_installed("plumber")
skip_if_not_installed("processx")
skip_if_not_installed("curl")
skip_if_not_installed("jsonlite")

api <- c(
  "#* @filter who",
  "function(req, res) {",
  "  req$user <- if (is.null(req$HTTP_AUTHORIZATION)) 'nobody' else 'somebody'",
  "  res$setHeader('X-Filter', 'ran')",
  "  plumber::forward()",
  "}",
  "#* @filter gate",
  "function(req, res) {",
  "  if (req$PATH_INFO == '/secret' && req$user == 'nobody') {",
  "    res$status <- 401",
  "    return(list(error = 'who are you?'))",
  "  }",
  "  plumber::forward()",
  "}",
  "#* @get /secret",
  "function(req) req$user",
  "#* @get /json",
  "#* @serializer unboxedJSON",
  "function(a = 1) list(a = as.numeric(a), text = '\\u00e9')",
  "#* @get /html",
  "#* @serializer html",
  "function() '<h1>x</h1>'",
  "#* @get /text",
  "#* @serializer text",
  "function() 'plain'",
  "#* @get /bytes",
  "#* @serializer octet",
  "function() as.raw(c(0, 1, 255, 0))",
  "#* @get /plot",
  "#* @serializer pdf list(width = 5, height = 5)",
  "function() graphics::plot(1)",
  "#* @get /both",
  "#* @head /both",
  "#* @serializer text",
  "function() 'both'",
  "#* @get /nothing",
  "function(res) { res$status <- 204; NULL }",
  "#* @get /fail",
  "function() stop('broken on purpose')",
  "#* @get /path/<id:int>/<name>",
  "function(id, name) list(id = id, name = name, type = typeof(id))",
  "#* @post /echo",
  "function(req) req$body",
  "#* @post /upload",
  "#* @parser multi",
  "#* @parser octet",
  "#* @serializer unboxedJSON",
  "function(req) lapply(req$body, function(part) list(n = length(part$value), sum = sum(as.integer(part$value))))",
  "#* @get /async",
  "function() promises::promise(function(resolve, reject) later::later(function() resolve('later'), 0.3))",
  "#* @get /async-fail",
  "function() promises::promise(function(resolve, reject) later::later(function() reject('no'), 0.05))",
  "#* @get /count",
  "#* @serializer unboxedJSON",
  "function(req, res) {",
  "  n <- as.integer(if (is.null(req$cookies$n)) 0 else req$cookies$n) + 1L",
  "  res$setCookie('n', n, path = '/')",
  "  res$setCookie('other', 'x y', http = TRUE)",
  "  n",
  "}",
  "#* @get /hooks",
  "#* @serializer unboxedJSON",
  "function() as.list(hooked)",
  "#* @assets ./www /files",
  "list()",
  "#* @plumber",
  "function(pr) {",
  "  hooked <<- c(preroute = 0L, postroute = 0L, preserialize = 0L, postserialize = 0L)",
  "  count <- function(name) force(name)",
  "  for (name in names(hooked)) local({",
  "    name <- name",
  "    pr$registerHook(name, switch(name,",
  "      preroute = function(req) hooked[name] <<- hooked[name] + 1L,",
  "      postroute = function(value) { hooked[name] <<- hooked[name] + 1L; value },",
  "      preserialize = function(value) { hooked[name] <<- hooked[name] + 1L; value },",
  "      postserialize = function(value) { hooked[name] <<- hooked[name] + 1L; value }",
  "    ))",
  "  })",
  "  pr$registerHook('exit', function() cat('exit hook ran\\n'))",
  "  pr$set404Handler(function(req, res) { res$status <- 404; list(missing = req$PATH_INFO) })",
  "  pr",
  "}"
)

app <- local_app(
  "plumber.R" = api, "www/style.css" = "body {}", "www/sub/index.html" = "<p>sub</p>",
  env = teardown_env()
)
it <- local_cli("serve", app, "--port", "0", env = teardown_env())
url <- expect_serving(it)
at <- function(path, ...) fetch(paste0(url, path), ...)
header <- function(answer, name) {
  found <- curl::parse_headers_list(answer$headers)
  unlist(found[tolower(names(found)) == tolower(name)], use.names = FALSE)
}
json <- function(answer) jsonlite::fromJSON(answer$text)

test_that("rookery serves the API", {
  expect_match(it$tell(), "plumber API (plumber.R, docs at /__docs__/)", fixed = TRUE)
  expect_null(header(at("/text"), "Server"))
})

test_that("filters run in order and may respond", {
  answer <- at("/secret")
  expect_equal(answer$status_code, 401)
  expect_equal(json(answer)$error, "who are you?")
  expect_equal(header(answer, "X-Filter"), "ran")
  let_in <- at("/secret", httpheader = "Authorization: x")
  expect_equal(let_in$status_code, 200)
  expect_equal(json(let_in), "somebody")
})

test_that("serializers", {
  answer <- at("/json?a=2.5")
  expect_equal(header(answer, "Content-Type"), "application/json")
  expect_equal(json(answer), list(a = 2.5, text = "\u00e9"))
  expect_match(header(at("/html"), "Content-Type"), "^text/html")
  expect_equal(at("/html")$text, "<h1>x</h1>")
  expect_equal(at("/text")$text, "plain")
  expect_equal(at("/bytes")$content, as.raw(c(0, 1, 255, 0)))
  plot <- at("/plot")
  expect_equal(header(plot, "Content-Type"), "application/pdf")
  expect_equal(plot$content[1:5], charToRaw("%PDF-"))
})

test_that("paths with parameters, and a custom 404 handler", {
  expect_equal(json(at("/path/7/x")), list(id = 7L, name = "x", type = "integer"))
  answer <- at("/no/such/route?x")
  expect_equal(answer$status_code, 404)
  expect_equal(json(answer)$missing, "/no/such/route")
})

test_that("errors are 500 and do not end the server", {
  answer <- at("/fail")
  expect_equal(answer$status_code, 500)
  expect_match(answer$text, "500 - Internal server error")
  expect_match(it$tell(), "broken on purpose")
  expect_equal(at("/async-fail")$status_code, 500)
  expect_equal(at("/text")$status_code, 200)
})

test_that("HEAD and 204 have no body", {
  head <- at("/both", nobody = TRUE)
  expect_equal(head$status_code, 200)
  expect_length(head$content, 0)
  expect_equal(at("/text", nobody = TRUE)$status_code, 405)
  head <- at("/files/style.css", nobody = TRUE)
  expect_equal(
    header(head, "Content-Length"), as.character(file.size(file.path(app, "www/style.css")))
  )
  nothing <- at("/nothing")
  expect_equal(nothing$status_code, 204)
  expect_length(nothing$content, 0)
  expect_null(header(nothing, "Content-Length"))
})

test_that("bodies arrive as JSON, as forms, and as large multipart forms", {
  post <- function(path, body, type) {
    at(
      path, post = TRUE, postfields = body, postfieldsize = length(body),
      httpheader = paste("Content-Type:", type)
    )
  }
  expect_equal(json(post("/echo", charToRaw("{\"a\": [1, 2]}"), "application/json")), list(a = 1:2))
  form <- json(post("/echo", charToRaw("x=1&y=a+b%26"), "application/x-www-form-urlencoded"))
  expect_equal(form, list(x = "1", y = "a b&"))
})

test_that("a multipart upload of 30 MB arrives complete", {
  path <- withr::local_tempfile()
  bytes <- as.raw(rep_len(0:250, 30e6))
  writeBin(bytes, path)
  handle <- curl::new_handle(timeout = 120)
  curl::handle_setform(handle, big = curl::form_file(path, "application/octet-stream"), small = curl::form_data(
    as.raw(1:3), "application/octet-stream"
  ))
  answer <- curl::curl_fetch_memory(paste0(url, "/upload"), handle)
  expect_equal(answer$status_code, 200)
  parts <- jsonlite::fromJSON(rawToChar(answer$content))
  expect_equal(parts$big, list(n = 30000000L, sum = sum(as.integer(bytes))))
  expect_equal(parts$small, list(n = 3L, sum = 6L))
})

test_that("an async route does not block other routes", {
  slow <- local_requests(paste0(url, "/async"), 20)
  slow$wait(60000)
  expect_equal(slow$get_result(), rep(200L, 20))
  answer <- at("/async")
  expect_equal(json(answer), "later")
})

test_that("cookies are sent and received", {
  handle <- curl::new_handle(cookiefile = "", accept_encoding = "identity")
  counts <- vapply(1:3, function(i) {
    jsonlite::fromJSON(rawToChar(curl::curl_fetch_memory(paste0(url, "/count"), handle)$content))
  }, 1L)
  expect_equal(counts, 1:3)
  cookies <- header(at("/count"), "Set-Cookie")
  expect_length(cookies, 2)
  expect_match(cookies[[1]], "^n=1; Path=/")
  expect_match(cookies[[2]], "^other=x%20y; HttpOnly")
})

test_that("static mounts", {
  answer <- at("/files/style.css")
  expect_equal(answer$text, "body {}\n")
  expect_match(header(answer, "Content-Type"), "^text/css")
  expect_equal(at("/files/sub/index.html")$text, "<p>sub</p>\n")
  expect_equal(at("/files/none.css")$status_code, 404)
  expect_gte(at("/files/%2e%2e/plumber.R")$status_code, 400)
})

test_that("responses equal those of httpuv", {
  libraries <- setdiff(.libPaths(), compat_library())
  stock <- withr::with_libpaths(libraries, find.package("httpuv", quiet = TRUE))
  skip_if(length(stock) == 0, "httpuv itself is not installed")
  port <- free_port()
  theirs <- local_process(
    c("-e", sprintf("plumber::plumb('plumber.R')$run(port = %d, docs = FALSE)", port)),
    dir = app,
    environment = c(R_LIBS = paste(libraries, collapse = .Platform$path.sep))
  )
  other <- sprintf("http://127.0.0.1:%d", port)
  expect_true(wait_until(function() !inherits(try(fetch(other), silent = TRUE), "try-error")))
  # Headers in order, without those that depend on the time or on the server.
  shape <- function(answer) {
    headers <- curl::parse_headers(answer$headers)
    left <- grep(
      "^(date|connection|transfer-encoding|last-modified|x-request-id):", headers,
      ignore.case = TRUE, value = TRUE, invert = TRUE
    )
    list(status = answer$status_code, headers = sort(tolower(left[-1])), body = answer$content)
  }
  requests <- list(
    list("/text"), list("/json?a=%31&b"), list("/html"), list("/bytes"), list("/nothing"),
    list("/fail"),
    list("/async"), list("/async-fail"), list("/none"), list("/secret"), list("/path/7/x%20y"),
    list("/path/x/y"),
    # Without HEAD of "/text", for which httpuv sends plumber's 405 with a body, which is invalid
    # HTTP.
    list("/both", nobody = TRUE), list("/count", httpheader = "Cookie: n=41; a=b"),
    list("/files/style.css"), list("/files/none"), list("/files/%2e%2e/plumber.R"), list("//text"),
    list(
      "/echo", post = TRUE, postfields = charToRaw("{\"a\":1}"),
      httpheader = "Content-Type: application/json"
    ),
    list("/echo", post = TRUE, postfields = raw(0), httpheader = "Content-Type: application/json"),
    list("/text", customrequest = "DELETE")
  )
  for (asked in requests) {
    ours <- do.call(fetch, c(list(paste0(url, asked[[1]])), asked[-1]))
    # Each request has a connection of its own, because a body after a response to HEAD would be
    # taken for the next response.
    same <- do.call(
      fetch,
      c(list(paste0(other, asked[[1]]), fresh_connect = TRUE, forbid_reuse = TRUE), asked[-1])
    )
    expect_equal(shape(ours), shape(same), info = asked[[1]])
  }
})

test_that("hooks run, and the exit hook runs after a signal", {
  counts <- unlist(json(at("/hooks")))
  expect_gte(min(counts[c("postroute", "preserialize", "postserialize")]), 20)
  expect_gte(counts[["preroute"]], 20)
  it$signal(15)
  expect_equal(exit_of(it), 0)
  expect_match(it$tell(), "exit hook ran")
})

test_that("each form of an API in plumber's documentation is served by plumber's own rule", {
  routes <- c("#* @serializer text", "#* @get /said", "function() paste(greeting, getwd())")
  api <- c("greeting <- 'annotated'", routes)
  hook <- "pr$registerHook('preroute', function(req) req$HTTP_X <- 'x')"
  forms <- list(
    # An entrypoint.R returns a router, in the working directory of the folder.
    list(said = "annotated", files = list(
      entrypoint.R = c("library(plumber)", "pr <- plumb('api.R')", hook, "pr"), api.R = api
    )),
    list(said = "programmatic", files = list(
      Entrypoint.r = c(
        "greeting <- 'programmatic'",
        "router <- plumber::pr()",
        "plumber::pr_get(router, '/said', function() paste(greeting, getwd()), serializer = plumber::serializer_text())"
      ),
      # An entrypoint.R takes precedence.
      plumber.R = c("greeting <- 'other'", routes)
    )),
    list(said = "annotated", path = "entrypoint.R", files = list(
      entrypoint.R = "plumber::plumb('api.R')", api.R = api
    )),
    list(said = "annotated mounted", files = list(
      plumber.R = c("#* @plumber", "function(pr) plumber::pr_mount(pr, '/', plumber::plumb('users.R'))"),
      users.R = c("greeting <- 'annotated mounted'", routes)
    ))
  )
  test <- environment()
  started <- lapply(forms, function(form) {
    dir <- do.call(local_app, c(form$files, env = test))
    it <- local_cli(
      "serve", file.path(dir, form$path %||% ""), "--port", "0", "--log", "none", env = test
    )
    list(it = it, said = paste(form$said, dir))
  })
  for (one in started) {
    answer <- fetch(paste0(expect_serving(one$it), "/said"))
    expect_equal(answer$text, one$said, info = one$it$tell())
  }
  dir <- local_app(entrypoint.R = "1", plumber.R = api)
  it <- local_cli("serve", dir, "--port", "0", "--log", "none", "--restart", "never")
  expect_gt(exit_of(it), 0)
  expect_match(it$tell(), "'entrypoint.R' must return a runnable Plumber router", fixed = TRUE)
})
