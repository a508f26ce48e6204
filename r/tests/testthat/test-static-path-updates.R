# Static paths of a running server, and their changes. The expected values are those of httpuv
# 1.6.9.

new_site <- function(..., options = staticPathOptions()) {
  site_new(normalizeStaticPaths(list(...)), options)
}

test_that("paths are in the order of their keys' bytes", {
  dir <- tempdir()
  site <- new_site("/z" = dir, a = dir, "B/" = dir, e = excludeStaticPath())
  expect_identical(names(site_paths(site)), c("/B", "/a", "/e", "/z"))
  expect_identical(site_paths(site)[["/a"]], staticPath(dir))
  expect_identical(site_paths(new_site()), list())
  site_remove_paths(site, names(site_paths(site)))
  expect_identical(site_paths(site), list())
})

test_that("paths are added and replaced", {
  dirs <- normalizePath(c(withr::local_tempdir(), withr::local_tempdir()))
  site <- new_site(a = dirs[[1]])
  site_set_paths(
    site, normalizeStaticPaths(list(b = dirs[[1]], a = staticPath(dirs[[2]], indexhtml = FALSE)))
  )
  expect_identical(names(site_paths(site)), c("/a", "/b"))
  expect_identical(site_paths(site)[["/a"]]$path, dirs[[2]])
  expect_false(site_paths(site)[["/a"]]$options$indexhtml)
  site_set_paths(site, list())
  expect_identical(names(site_paths(site)), c("/a", "/b"))
})

test_that("paths are removed by their exact keys", {
  dir <- tempdir()
  site <- new_site(a = dir, b = dir, c = dir)
  for (keys in list("a", "/a/", character(0), NA_character_, "/unknown")) {
    site_remove_paths(site, keys)
    expect_identical(names(site_paths(site)), c("/a", "/b", "/c"))
  }
  site_remove_paths(site, c("/a", "/c"))
  expect_identical(names(site_paths(site)), "/b")
})

test_that("options are set separately, NULL keeps them, and of duplicates the first counts", {
  site <- new_site(options = staticPathOptions(headers = list(a = "b")))
  expect_null(attr(site_options(site), "normalized"))
  expect_s3_class(site_options(site), "staticPathOptions", exact = TRUE)
  site_set_options(site, list(indexhtml = FALSE))
  site_set_options(site, list(indexhtml = NULL))
  site_set_options(site, list())
  expect_false(site_options(site)$indexhtml)
  site_set_options(site, list(indexhtml = TRUE, indexhtml = FALSE))
  expect_true(site_options(site)$indexhtml)
  expect_identical(site_options(site)$headers, c(a = "b"))
  site_set_options(
    site, list(headers = list(), validation = "\"a\" == \"b\"", html_charset = character(0))
  )
  expect_identical(site_options(site)$headers, structure(character(0), names = character(0)))
  expect_identical(site_options(site)$validation, c("==", "a", "b"))
  expect_identical(site_options(site)$html_charset, "")
  site_set_options(site, c(list(), staticPathOptions()))
  expect_identical(site_options(site)$html_charset, "utf-8")
  expect_identical(site_options(site)$validation, character(0))
  expect_setequal(names(site_options(site)), names(staticPathOptions()))
})

test_that("unknown options are refused, and nothing changes", {
  site <- new_site()
  before <- site_options(site)
  expect_error(site_set_options(site, list(FALSE)), "All items must be named.", fixed = TRUE)
  expect_error(
    site_set_options(site, list(indexhtml = FALSE, 1)), "All items must be named.", fixed = TRUE
  )
  expect_error(site_set_options(site, list(foo = 1)), "Unknown options: foo , ", fixed = TRUE)
  expect_error(
    site_set_options(site, list(foo = 1, bar = 2)), "Unknown options: foo , bar , ", fixed = TRUE
  )
  expect_error(
    site_set_options(site, list(exclude = 5)), "`exclude` option must be TRUE or FALSE.",
    fixed = TRUE
  )
  expect_identical(site_options(site), before)
})

test_that("missing options are taken from the server, and never from another path", {
  dir <- normalizePath(tempdir())
  options <- staticPathOptions(
    fallthrough = TRUE, headers = list(a = "b"), validation = "\"x\" == \"y\""
  )
  path <- staticPath(dir, indexhtml = FALSE, headers = list())
  expect_identical(
    resolve_path(path, options),
    list(
      path = dir, site = FALSE, exclude = FALSE, indexhtml = FALSE, fallthrough = TRUE,
      html_charset = "utf-8", headers = structure(character(0), names = character(0)),
      validation = c("==", "x", "y")
    )
  )
  resolved <- resolve_path(excludeStaticPath(), staticPathOptions(NULL, NULL, NULL, NULL, NULL))
  expect_identical(resolved$exclude, TRUE)
  expect_identical(resolved$indexhtml, TRUE)
  expect_identical(resolved$fallthrough, FALSE)
  expect_identical(resolved$validation, character(0))
})

test_that("a server returns and changes its static paths", {
  dir <- normalizePath(tempdir())
  server <- startServer("127.0.0.1", 0, list(
    staticPaths = list("b/" = dir, a = staticPath(dir, headers = list())),
    staticPathOptions = staticPathOptions(headers = list(x = "y"))
  ))
  withr::defer(server$stop())
  expect_identical(names(server$getStaticPaths()), c("/a", "/b"))
  expect_null(server$getStaticPaths()[["/b"]]$options$headers)
  expect_identical(names(expect_invisible(server$setStaticPath(c = dir))), c("/a", "/b", "/c"))
  # Shiny calls the method with `.list`.
  expect_identical(names(server$setStaticPath(.list = c(d = dir))), c("/a", "/b", "/c", "/d"))
  expect_identical(
    names(server$setStaticPath(e = dir, .list = list(f = dir))), paste0("/", letters[1:6])
  )
  expect_identical(names(expect_invisible(server$removeStaticPath("a"))), paste0("/", letters[1:6]))
  expect_identical(names(server$removeStaticPath(c("/a", "/f"))), paste0("/", letters[2:5]))
  expect_identical(expect_invisible(server$setStaticPathOption(indexhtml = FALSE))$indexhtml, FALSE)
  expect_identical(server$getStaticPathOptions()$headers, c(x = "y"))
  expect_identical(server$setStaticPathOption(.list = list(html_charset = "q"))$html_charset, "q")
})

test_that("a stopped server has no static paths and accepts none", {
  server <- startServer("127.0.0.1", 0, list(staticPaths = c(a = tempdir())))
  server$stop()
  expect_null(server$getStaticPaths())
  expect_null(server$getStaticPathOptions())
  expect_null(expect_invisible(server$setStaticPath(a = tempdir())))
  expect_null(expect_invisible(server$removeStaticPath("/a")))
  expect_null(expect_invisible(server$setStaticPathOption(unknown = 1)))
})

test_that("invalid static paths and options prevent a server from starting", {
  expect_error(
    startServer("127.0.0.1", 0, list(staticPaths = list(tempdir()))), "paths must be a named"
  )
  expect_error(
    startServer("127.0.0.1", 0, list(staticPathOptions = list(indexhtml = TRUE))),
    "staticPathOptions must be an object of class staticPathOptions.",
    fixed = TRUE
  )
})

test_that("refused paths change nothing", {
  dir <- normalizePath(tempdir())
  server <- startServer("127.0.0.1", 0, list(staticPaths = c(a = dir)))
  withr::defer(server$stop())
  expect_error(server$setStaticPath(b = dir, "c//d" = dir), "static path")
  expect_error(server$setStaticPath(b = dir, c = 1), "Cannot convert object of class numeric")
  expect_identical(names(server$getStaticPaths()), "/a")
  expect_error(server$setStaticPathOption(indexhtml = FALSE, unknown = 1), "Unknown options")
  expect_true(server$getStaticPathOptions()$indexhtml)
})
