# Static paths of an app that several R processes serve: the program in front of them sends the files.

skip_if_not_installed("processx")
skip_if_not_installed("curl")
skip_on_os(c("mac", "solaris"))

# An app in a folder with files, whose static paths are those of an expression.
local_static_workers <- function(paths, ..., env = parent.frame()) {
  dir <- withr::local_tempdir(.local_envir = env)
  for (name in c("www", "other")) {
    dir.create(file.path(dir, name))
    writeLines(name, file.path(dir, name, "a.txt"))
  }
  hold <- file.path(dir, "hold")
  lines <- c(
    paste0("hold <- ", deparse(hold)),
    "server <- function() rookery::listServers()[[1]]",
    "text <- function(text, status = 200L) list(status = status, headers = list('Content-Type' = 'text/plain'), body = text)",
    "list(",
    paste0("  staticPaths = ", paths, ","),
    "  call = function(req) switch(req$PATH_INFO,",
    "    '/hold' = { while (file.exists(hold)) Sys.sleep(0.02); text('held') },",
    "    '/pid' = text(as.character(Sys.getpid())),",
    "    '/set' = { server()$setStaticPath('/late' = 'other'); text(as.character(Sys.getpid())) },",
    "    '/remove' = { server()$removeStaticPath('/late'); text(as.character(Sys.getpid())) },",
    "    text(paste('R has no', req$PATH_INFO), 404L)",
    "  )",
    ")"
  )
  writeLines(lines, file.path(dir, "app.R"))
  it <- local_cli("serve", dir, "--port", "0", "--no-log", ..., env = env)
  expect_serving(it)
  it$url <- sub(" .*", "", sub(".*Serving on ", "", it$tell()))
  it$get <- function(path, ...) {
    handle <- curl::new_handle(timeout = 60)
    curl::handle_setheaders(handle, ...)
    answer <- curl::curl_fetch_memory(paste0(it$url, path), handle)
    answer$text <- trimws(rawToChar(answer$content))
    answer
  }
  # Both R processes are given something to do until this is called again.
  pool <- curl::new_pool()
  it$busy <- function() {
    file.create(hold)
    for (at in 1:2) curl::curl_fetch_multi(paste0(it$url, "/hold"), pool = pool)
    curl::multi_run(timeout = 0.5, pool = pool)
  }
  it$free <- function() {
    unlink(hold)
    curl::multi_run(pool = pool)
  }
  # Asks for a path until both R processes have answered it.
  it$by_both <- function(path) {
    pids <- character()
    expect_true(wait_until(function() {
      Sys.sleep(0.002)
      pids <<- unique(c(pids, it$get(path)$text))
      length(pids) == 2
    }))
  }
  it
}

test_that("static files are served while every R process is busy, and by the app's rules", {
  it <- local_static_workers(
    "list('/www' = 'www', '/secret' = rookery::staticPath('www', validation = '\"X-Key\" == \"abc\"'),
          '/open' = rookery::staticPath('www', headers = list('X-Own' = '1'), fallthrough = TRUE),
          '/www/app' = rookery::excludeStaticPath())",
    "--workers", "2"
  )
  it$by_both("/pid")
  it$busy()
  expect_equal(it$get("/www/a.txt")$text, "www")
  expect_equal(it$get("/www/none")$status_code, 404)
  expect_equal(it$get("/secret/a.txt")$status_code, 403)
  expect_equal(it$get("/secret/a.txt", "X-Key" = "abc")$text, "www")
  expect_equal(curl::parse_headers_list(it$get("/open/a.txt")$headers)[["x-own"]], "1")
  it$free()
  expect_equal(it$get("/www/app/a.txt")$text, "R has no /www/app/a.txt")
  expect_equal(it$get("/open/none")$text, "R has no /open/none")
})

test_that("paths that are set and removed later are those that are served", {
  it <- local_static_workers("list('/www' = 'www')", "--workers", "2")
  expect_equal(it$get("/late/a.txt")$text, "R has no /late/a.txt")
  it$by_both("/set")
  it$busy()
  expect_true(wait_until(function() identical(it$get("/late/a.txt", "X" = "1")$text, "other")))
  it$free()
  it$by_both("/remove")
  expect_true(wait_until(function() identical(it$get("/late/a.txt")$text, "R has no /late/a.txt")))
  expect_equal(it$get("/www/a.txt")$text, "www")
})

test_that("what is another folder for each R process is sent by it", {
  it <- local_static_workers(
    "{ dir <- tempfile(); dir.create(dir); writeLines(as.character(Sys.getpid()), file.path(dir, 'pid.txt')); list('/own' = dir, '/www' = 'www') }",
    "--workers", "2"
  )
  it$by_both("/own/pid.txt")
  it$busy()
  expect_equal(it$get("/www/a.txt")$text, "www")
  it$free()
})
