# The folder in which large bodies are stored.

large <- strrep("x", 3 * 2^20)

size_app <- function(req) ok(as.character(length(req$rook.input$read())))

# Returns the files in a folder that this process has open. Those of large bodies have no name.
open_in <- function(dir) {
  links <- suppressWarnings(Sys.readlink(list.files("/proc/self/fd", full.names = TRUE)))
  sum(startsWith(links, paste0(normalizePath(dir), "/")), na.rm = TRUE)
}

test_that("a large body is stored in the folder of the option or in R's, whatever TMPDIR is", {
  skip_on_os(c("mac", "windows", "solaris"))
  chosen <- withr::local_tempdir()
  where <- NULL
  app <- function(req) {
    where <<- c(open_in(chosen), open_in(tempdir()) - open_in(chosen))
    size_app(req)
  }
  by_default <- local_server(app)
  withr::local_options(rookery.spool_dir = chosen)
  server <- local_server(app)
  # Neither affects running servers.
  withr::local_options(rookery.spool_dir = "/nowhere")
  withr::local_envvar(TMPDIR = "/nowhere")
  expect_identical(post(local_client(server), body = large)$text, as.character(nchar(large)))
  expect_identical(where, c(1L, 0L))
  expect_identical(post(local_client(by_default), body = large)$text, as.character(nchar(large)))
  expect_identical(where, c(0L, 1L))
  expect_identical(list.files(chosen), character())
})

test_that("a folder that is not writable is an error when the server is started", {
  for (dir in list("/no/such/folder", 42, NA_character_, "")) {
    withr::local_options(rookery.spool_dir = dir)
    expect_error(startServer("127.0.0.1", 0, size_app), "The option `rookery.spool_dir`")
  }
  skip_if(identical(Sys.info()[["effective_user"]], "root"), "root may write everywhere")
  withr::local_options(rookery.spool_dir = "/")
  expect_error(startServer("127.0.0.1", 0, size_app), "not a folder that this user can write to")
})

test_that("a removed folder results in status 507, and a new server creates the folder again", {
  skip_if_not_installed("processx")
  skip_if_not_installed("curl")
  dir <- normalizePath(withr::local_tempdir())
  it <- local_r(c(
    "library(rookery)",
    sprintf("options(rookery.spool_dir = '%s')", file.path(dir, "spool")),
    "dir.create(getOption('rookery.spool_dir'))",
    "serve(function(req) list(status = 200L, headers = list(), body = as.character(length(req$rook.input$read()))), port = 0, log = FALSE)"
  ))
  url <- expect_serving(it)
  upload <- function() fetch(url, post = TRUE, postfieldsize = nchar(large), postfields = large)
  expect_equal(upload()$text, as.character(nchar(large)))
  unlink(file.path(dir, "spool"), recursive = TRUE)
  expect_equal(upload()$status_code, 507)
  expect_equal(upload()$status_code, 507)
  expect_equal(fetch(url)$status_code, 200)
  it$signal(15)
  expect_equal(exit_of(it), 0)
  told <- grep("507", strsplit(it$tell(), "\n")[[1]], value = TRUE)
  expect_length(told, 1)
  expect_match(
    told,
    paste0(
      "^rookery: an upload was rejected with status 507 .*", file.path(dir, "spool"),
      ".*No such file"
    )
  )
})

test_that("the option of the session applies to a path as well", {
  skip_if_not_installed("processx")
  skip_if_not_installed("curl")
  dir <- normalizePath(withr::local_tempdir())
  app <- local_app("app.R" = "function(req) list(status = 200L, headers = list(), body = rookery::rookery_options()['spool_dir']$value)")
  it <- local_r(c(
    sprintf("setwd('%s'); options(rookery.spool_dir = '%s')", dirname(dir), basename(dir)),
    sprintf("rookery::serve('%s', port = 0, log = FALSE)", app)
  ))
  expect_equal(fetch(expect_serving(it))$text, dir)
  it$signal(15)
  expect_equal(exit_of(it), 0)
})
