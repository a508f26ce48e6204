# The expected values are those of httpuv 1.6.9, unless a test names a difference.

new_req <- function(...) {
  list2env(list(REQUEST_METHOD = "GET", ...), parent = emptyenv())
}

failure <- function(text) {
  list(
    status = 500L, headers = list("Content-Type" = "text/plain; charset=UTF-8"),
    body = charToRaw(text)
  )
}

test_that("the request is completed", {
  req <- new_req(HTTP_CONTENT_TYPE = "text/plain", HTTP_CONTENT_LENGTH = "5")
  rookCall(function(req) NULL, req)
  expect_identical(req$CONTENT_TYPE, "text/plain")
  expect_identical(req$CONTENT_LENGTH, "5")
  expect_identical(req$rook.input, nullInputStream)
  expect_identical(req$rook.errors, stdErrStream)
  expect_s3_class(req$httpuv.version, "package_version")
  bare <- new_req()
  rookCall(function(req) NULL, bare)
  expect_setequal(
    ls(bare, all.names = TRUE), c("REQUEST_METHOD", "rook.input", "rook.errors", "httpuv.version")
  )
})

test_that("the body is read from a connection", {
  data <- file(withr::local_tempfile(), "w+b")
  withr::defer(close(data))
  writeBin(charToRaw("hello"), data)
  read <- function(req) list(status = 200L, body = req$rook.input$read())
  expect_identical(rookCall(read, new_req(), data, seek(data))$body, charToRaw("hello"))
})

test_that("headers become strings, and a body that is a file is returned as its path", {
  headers <- list(a = 1, b = 1e5, c = TRUE)
  response <- rookCall(function(req) list(status = 200L, headers = headers, body = "x"), new_req())
  expect_identical(
    response, list(status = 200L, headers = list(a = "1", b = "1e+05", c = "TRUE"), body = "x")
  )
  empty <- structure(list(), names = character(0))
  expect_mapequal(
    rookCall(function(req) list(status = 200L), new_req()), list(status = 200L, headers = empty)
  )
  for (body in list(c(file = "/a"), list(file = "/a", owned = FALSE))) {
    response <- rookCall(function(req) list(status = 200L, body = body), new_req())
    expect_mapequal(
      response, list(status = 200L, headers = empty, bodyFile = "/a", bodyFileOwned = FALSE)
    )
  }
  expect_true(
    rookCall(function(req) list(body = list(file = "/a", owned = TRUE)), new_req())$bodyFileOwned
  )
})

test_that("an empty result is NULL, and an error is a response", {
  expect_null(rookCall(function(req) NULL, new_req()))
  expect_null(rookCall(function(req) list(), new_req()))
  expect_identical(rookCall(function(req) stop("bo"), new_req()), failure("ERROR: bo"))
})

test_that("an error's text is UTF-8", {
  # R itself converts the text of an error to the locale's encoding.
  skip_if_not(l10n_info()[["UTF-8"]])
  expect_identical(
    rookCall(function(req) stop("b\u00f6"), new_req())$body, charToRaw(enc2utf8("ERROR: b\u00f6"))
  )
})

test_that("a value that is not a list is reported (httpuv: by the error of `$`)", {
  expect_identical(
    rookCall(function(req) "abc", new_req()),
    failure("ERROR: A response must be a list, not character.")
  )
})

test_that("a promise results in a response, also if it is rejected", {
  settle <- function(promise) {
    value <- NULL
    promises::then(promise, function(response) value <<- response)
    while (!later::loop_empty()) later::run_now()
    value
  }
  kept <- rookCall(
    function(req) promises::promise_resolve(list(status = 200L, headers = c(a = "b"))), new_req()
  )
  expect_s3_class(kept, "promise")
  expect_identical(settle(kept), list(status = 200L, headers = list(a = "b")))
  broken <- rookCall(function(req) promises::promise_reject("nope"), new_req())
  expect_identical(settle(broken), failure("ERROR: nope"))
})
