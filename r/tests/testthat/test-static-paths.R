# The expected values are those of httpuv 1.6.9, unless a test names a difference.

options_of <- function(...) {
  staticPath(tempdir(), ...)$options
}

inherited <- list(
  indexhtml = NULL, fallthrough = NULL, html_charset = NULL, headers = NULL, validation = NULL,
  exclude = FALSE
)

test_that("a static path has the real path, and all options inherited", {
  dir <- normalizePath(withr::local_tempdir())
  path <- staticPath(dir)
  expect_s3_class(path, "staticPath", exact = TRUE)
  expect_identical(path$path, dir)
  expect_s3_class(path$options, "staticPathOptions", exact = TRUE)
  expect_identical(unclass(path$options), structure(inherited, normalized = TRUE))
  expect_identical(staticPath(file.path(dir, "..", basename(dir), ""))$path, dir)
  withr::local_dir(dir)
  expect_identical(staticPath(".")$path, dir)
})

test_that("a static path can be a file, and must exist", {
  file <- withr::local_tempfile(lines = "text")
  expect_identical(staticPath(file)$path, normalizePath(file))
  expect_error(staticPath(file.path(tempdir(), "missing")), "No such file or directory")
})

test_that("a static path is one string", {
  for (path in list("", NULL, c("/", "/"), 1, NA, NA_character_, character(0))) {
    expect_error(staticPath(path), "`path` must be a non-empty string.", fixed = TRUE)
  }
})

test_that("an excluded path has no path", {
  path <- excludeStaticPath()
  expect_s3_class(path, "staticPath", exact = TRUE)
  expect_identical(path$path, "")
  expect_true(path$options$exclude)
  expect_null(path$options$indexhtml)
})

test_that("the server's options have defaults", {
  options <- staticPathOptions()
  expect_s3_class(options, "staticPathOptions", exact = TRUE)
  expect_setequal(names(options), names(inherited))
  expect_true(options$indexhtml)
  expect_false(options$fallthrough)
  expect_identical(options$html_charset, "utf-8")
  expect_identical(options$headers, structure(character(0), names = character(0)))
  expect_identical(options$validation, character(0))
  expect_false(options$exclude)
})

test_that("options are converted to one type", {
  options <- options_of(
    indexhtml = FALSE, fallthrough = TRUE, html_charset = "x", headers = list(a = "b", "c-d" = "e"),
    validation = "\"a\" == \"b\""
  )
  expect_false(options$indexhtml)
  expect_true(options$fallthrough)
  expect_identical(options$html_charset, "x")
  expect_identical(options$headers, c(a = "b", "c-d" = "e"))
  expect_identical(options$validation, c("==", "a", "b"))
})

test_that("no value is not the same as an inherited value", {
  expect_identical(options_of(html_charset = "")$html_charset, "")
  expect_identical(options_of(html_charset = character(0))$html_charset, "")
  expect_identical(
    options_of(headers = list())$headers, structure(character(0), names = character(0))
  )
  expect_identical(
    options_of(headers = list(a = NULL))$headers, structure(character(0), names = character(0))
  )
  expect_identical(options_of(validation = "")$validation, character(0))
  expect_identical(options_of(validation = character(0))$validation, character(0))
})

test_that("headers are a named list or vector of strings", {
  expect_identical(options_of(headers = c(a = "b"))$headers, c(a = "b"))
  expect_identical(options_of(headers = c(a = "\u00e9\tb"))$headers, c(a = "\u00e9\tb"))
  expect_identical(options_of(headers = list(a = "x", a = "y"))$headers, c(a = "x", a = "y"))
  message <- "`headers` option must be a named list or character vector."
  for (headers in list(list("b"), list(a = 1), list(a = "x", "y"), list(a = NA))) {
    expect_error(options_of(headers = headers), message, fixed = TRUE)
  }
})

test_that("headers that httpuv refuses when the server starts are refused at once", {
  message <- "`headers` option must be a named list or character vector."
  for (headers in list("x", 1, c(a = 1), setNames("x", NA))) {
    expect_error(options_of(headers = headers), message, fixed = TRUE)
  }
})

test_that("a header of two values is sent twice (httpuv: as two headers, `a1` and `a2`)", {
  expect_identical(
    options_of(headers = list(a = c("x", "y"), b = "z"))$headers, c(a = "x", a = "y", b = "z")
  )
})

test_that("a header cannot hold another (httpuv: it can)", {
  message <- "`headers` option has a name or a value that a header cannot have."
  bad <- list(
    list(a = "x\r\nb: c"), list(a = "x\n"), list(a = "\x01"), list("a b" = "x"), list("a:" = "x"),
    c(a = NA_character_)
  )
  for (headers in bad) {
    expect_error(options_of(headers = headers), message, fixed = TRUE)
  }
})

test_that("headers about the message length are refused (httpuv: sends them, even if wrong)", {
  for (header in c("Content-Length", "transfer-encoding", "Content-Range")) {
    expect_error(
      options_of(headers = setNames("5", header)),
      paste0("`headers` option cannot have ", header, ", which the server sets."),
      fixed = TRUE
    )
  }
})

test_that("a validation is a comparison of two strings", {
  parse_validation <- function(text) options_of(validation = text)$validation
  expect_identical(parse_validation("\"a\"==\"b\""), c("==", "a", "b"))
  expect_identical(parse_validation(" \"a\"  ==  \"b\" "), c("==", "a", "b"))
  expect_identical(parse_validation("\"a\"\t==\n\"b\""), c("==", "a", "b"))
  expect_identical(parse_validation("'a' == \"b\""), c("==", "a", "b"))
  expect_identical(parse_validation("\"a-b\" == \"c d\""), c("==", "a-b", "c d"))
  expect_identical(parse_validation("\"a\" == \"b\\\"c\""), c("==", "a", "b\"c"))
  expect_identical(parse_validation("\"a\" == \"\""), c("==", "a", ""))
  expect_identical(parse_validation("\"a\" == \"b\" # why"), c("==", "a", "b"))
  expect_identical(parse_validation("\"a\" == \"\u00fc\""), c("==", "a", "\u00fc"))
})

test_that("other values of `validation` are refused", {
  form <- "`validation` must be a string of the form: '\"xxx\" == \"yyy\"'"
  no_form <- c(
    "\"a\" == b", "a == b", "\"a\" != \"b\"", "\"a\" == \"b\" && \"c\" == \"d\"", "\"a\"", "x",
    "\"a\" == \"b\"c\"",
    "`a` == \"b\"", "(\"a\") == \"b\"", "\"a\"%in%\"b\"", "stop(1)"
  )
  for (text in no_form) {
    expect_error(options_of(validation = text), form, fixed = TRUE)
  }
  type <- "`validation` option must be a character vector with zero or one element."
  for (value in list(NA, 1, c("a", "b"), list(), FALSE, NA_character_)) {
    expect_error(options_of(validation = value), type, fixed = TRUE)
  }
})

test_that("a validation that no request can pass is an error (httpuv: status 403 for all)", {
  for (name in c("", "a b", "\u00e9", "a:")) {
    expect_error(
      options_of(validation = sprintf("\"%s\" == \"x\"", name)),
      "`validation` option must name a header",
      fixed = TRUE
    )
  }
})

test_that("a second expression is an error (httpuv: ignored)", {
  expect_error(
    options_of(validation = "\"a\" == \"b\" ; 1"), "must be a string of the form", fixed = TRUE
  )
})

test_that("flags must be TRUE or FALSE (httpuv refuses vectors later and takes NA as TRUE)", {
  expect_true(options_of(indexhtml = 1)$indexhtml)
  for (flag in list(NA, "x", logical(0), c(TRUE, FALSE))) {
    expect_error(
      options_of(indexhtml = flag), "`indexhtml` option must be TRUE or FALSE.", fixed = TRUE
    )
    expect_error(
      options_of(fallthrough = flag), "`fallthrough` option must be TRUE or FALSE.", fixed = TRUE
    )
  }
  for (flag in list(NA, "x", 1, c(TRUE, FALSE))) {
    expect_error(
      staticPathOptions(exclude = flag), "`exclude` option must be TRUE or FALSE.", fixed = TRUE
    )
  }
})

test_that("a charset is one string (httpuv: other values fail when the server starts)", {
  for (charset in list(1, NA, c("a", "b"), "utf-8\r\nX: y", "a b", "\u00e9")) {
    expect_error(options_of(html_charset = charset), "`html_charset` option must be", fixed = TRUE)
  }
})

test_that("values are converted to static paths", {
  dir <- normalizePath(tempdir())
  expect_identical(as.staticPath(dir), staticPath(dir))
  path <- staticPath(dir, indexhtml = FALSE)
  expect_identical(as.staticPath(path), path)
  expect_error(
    as.staticPath(1), "Cannot convert object of class numeric to a staticPath object.", fixed = TRUE
  )
  expect_error(
    as.staticPath(NULL), "Cannot convert object of class NULL to a staticPath object.", fixed = TRUE
  )
  expect_error(
    as.staticPath(list()), "Cannot convert object of class list to a staticPath object.",
    fixed = TRUE
  )
})

test_that("keys begin with a slash and do not end with one", {
  dir <- tempdir()
  keys <- c("/", "a//", "/b/c/", "\u00e9", "a/../b", "2", "//")
  expect_identical(
    names(normalizeStaticPaths(setNames(rep(list(dir), 7), keys))),
    c("/", "/a", "/b/c", "/\u00e9", "/a/../b", "/2")
  )
  latin1 <- "\xe9"
  Encoding(latin1) <- "latin1"
  expect_identical(names(normalizeStaticPaths(setNames(dir, latin1))), "/\u00e9")
})

test_that("of equal keys, the first counts", {
  dirs <- c(withr::local_tempdir(), withr::local_tempdir())
  paths <- normalizeStaticPaths(c(a = dirs[[1]], "/a/" = dirs[[2]]))
  expect_identical(paths, list("/a" = staticPath(dirs[[1]])))
})

test_that("static paths are a named list or character vector", {
  dir <- tempdir()
  expect_identical(normalizeStaticPaths(NULL), list())
  expect_identical(normalizeStaticPaths(list()), list())
  expect_identical(normalizeStaticPaths(character(0)), list())
  message <- "paths must be a named character vector, a named list containing strings and staticPath objects, or NULL."
  bad <- list(
    dir, list(dir), list(a = dir, dir), 1, c(a = 1), setNames(dir, ""), setNames(dir, NA),
    new.env(), "x"
  )
  for (paths in bad) {
    expect_error(normalizeStaticPaths(paths), message, fixed = TRUE)
  }
  expect_error(
    normalizeStaticPaths(list(a = 1)),
    "Cannot convert object of class numeric to a staticPath object."
  )
  expect_error(
    normalizeStaticPaths(list(a = NULL)),
    "Cannot convert object of class NULL to a staticPath object."
  )
})

test_that("a static path is printed with its options", {
  path <- excludeStaticPath()
  path$path <- "/srv/www"
  expect_identical(
    format(path),
    paste0(
      "<staticPath>\n  Local path:        /srv/www\n  Use index.html:    <inherit>\n  Fallthrough to R:  <inherit>\n",
      "  HTML charset:      <inherit>\n  Extra headers:     <inherit>\n  Validation params: <inherit>\n",
      "  Exclude path:      TRUE\n"
    )
  )
  printed <- capture.output(returned <- expect_invisible(print(path)))
  expect_identical(paste0(printed, "\n", collapse = ""), paste0(format(path), "\n"))
  expect_identical(returned, path)
})

test_that("options are printed", {
  expect_identical(
    format(staticPathOptions()),
    paste0(
      "<staticPathOptions>\n  Use index.html:    TRUE\n  Fallthrough to R:  FALSE\n  HTML charset:      utf-8\n",
      "  Extra headers:     <none>\n  Validation params: <none>\n  Exclude path:      FALSE\n"
    )
  )
  options <- staticPathOptions(
    headers = list(a = "b", "c-dddddd" = "e"), validation = "\"a\" == \"b\"", exclude = TRUE
  )
  expect_identical(
    format(options),
    paste0(
      "<staticPathOptions>\n  Use index.html:    TRUE\n  Fallthrough to R:  FALSE\n  HTML charset:      utf-8\n",
      "  Extra headers:     \n    \"a\" = \"b\"\n    \"c-dddddd\" = \"e\"\n  Validation params: == a b\n",
      "  Exclude path:      TRUE\n"
    )
  )
  printed <- capture.output(returned <- expect_invisible(print(options)))
  expect_identical(paste0(printed, "\n", collapse = ""), paste0(format(options), "\n"))
  expect_identical(returned, options)
})
