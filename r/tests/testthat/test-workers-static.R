# Static paths of an app with several workers: the supervisor sends the files.

skip_if_not_installed("processx")
skip_if_not_installed("curl")
skip_on_os(c("mac", "solaris"))

# An app in a folder with files, whose static paths are given by an expression.
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
    "    '/label' = { server()$setStaticPathOption(headers = c('X-Label' = sub('?', '', req$QUERY_STRING, fixed = TRUE))); text('') },",
    "    '/unlabel' = { server()$setStaticPathOption(headers = list()); text('') },",
    "    text(paste('R has no', req$PATH_INFO), 404L)",
    "  )",
    ")"
  )
  writeLines(lines, file.path(dir, "app.R"))
  it <- local_cli("serve", dir, "--port", "0", "--log=none", ..., env = env)
  expect_serving(it)
  it$url <- sub(" .*", "", sub(".*Serving on ", "", it$tell()))
  it$get <- function(path, ...) {
    handle <- curl::new_handle(timeout = 60)
    curl::handle_setheaders(handle, ...)
    answer <- curl::curl_fetch_memory(paste0(it$url, path), handle)
    answer$text <- trimws(rawToChar(answer$content))
    answer
  }
  # Makes `count` or both workers busy until `it$free()` is called.
  pool <- curl::new_pool()
  it$busy <- function(count = 2) {
    file.create(hold)
    for (at in seq_len(count)) curl::curl_fetch_multi(paste0(it$url, "/hold"), pool = pool)
    curl::multi_run(timeout = 0.5, pool = pool)
  }
  it$free <- function() {
    unlink(hold)
    curl::multi_run(pool = pool)
  }
  # Requests a path until both workers have responded.
  it$by_both <- function(path) {
    pids <- character()
    expect_true(wait_until(function() {
      Sys.sleep(0.002)
      pids <<- unique(c(pids, it$get(path)$text))
      length(pids) == 2
    }))
    invisible(pids)
  }
  it
}

test_that("static files are served while every R process is busy, with the app's options", {
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

test_that("static paths that are set and removed later take effect", {
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

test_that("a folder that differs between R processes is served to the clients of each", {
  it <- local_static_workers(
    "{ dir <- tempfile(); dir.create(dir); writeLines(as.character(Sys.getpid()), file.path(dir, 'pid.txt')); list('/own' = dir, '/www' = 'www') }",
    "--workers", "2", "--sticky", "cookie"
  )
  pids <- it$by_both("/pid")
  it$busy()
  expect_equal(it$get("/www/a.txt")$text, "www")
  expect_true(it$get("/own/pid.txt")$text %in% pids)
  it$free()
  handle <- curl::new_handle(cookiefile = "")
  get <- function(path) {
    trimws(rawToChar(curl::curl_fetch_memory(paste0(it$url, path), handle)$content))
  }
  pid <- get("/pid")
  expect_equal(get("/own/pid.txt"), pid)
})

test_that("a change of static paths is in force when R continues", {
  it <- local_static_workers("list('/www' = 'www')", "--workers", "2")
  it$by_both("/set")
  # All further requests are handled by the other worker or by the supervisor.
  it$busy(1)
  label <- function() curl::parse_headers_list(it$get("/late/a.txt")$headers)[["x-label"]]
  stale <- c(removed = 0, added = 0, labelled = 0, unlabelled = 0)
  for (at in 1:300) {
    it$get("/remove")
    stale[["removed"]] <- stale[["removed"]] +
      !identical(it$get("/late/a.txt")$text, "R has no /late/a.txt")
    it$get("/set")
    stale[["added"]] <- stale[["added"]] + !identical(it$get("/late/a.txt")$text, "other")
    it$get(paste0("/label?", at))
    stale[["labelled"]] <- stale[["labelled"]] + !identical(label(), as.character(at))
    it$get("/unlabel")
    stale[["unlabelled"]] <- stale[["unlabelled"]] + !is.null(label())
  }
  it$free()
  expect_equal(stale, c(removed = 0, added = 0, labelled = 0, unlabelled = 0))
  expect_no_match(it$tell(), "has not confirmed")
})

test_that("R warns if the supervisor does not confirm, and ends if the supervisor has died", {
  folder <- withr::local_tempdir()
  go <- file.path(folder, "go")
  took <- file.path(folder, "took")
  # Changes that both workers make without a request, because the stopped supervisor forwards none.
  paths <- sprintf(
    "{
      is_done <- FALSE
      change <- function() {
        if (file.exists(%1$s) && !is_done) {
          began <- proc.time()[[3]]
          for (at in 1:20) server()$setStaticPath('/late' = c('other', 'www')[[at %%%% 2 + 1]])
          server()$removeStaticPath('/www')
          cat(proc.time()[[3]] - began, '\n', file = %2$s, append = TRUE)
        }
        is_done <<- file.exists(%1$s)
        later::later(change, 0.05)
      }
      later::later(change)
      list('/www' = 'www')
    }", deparse(go), deparse(took)
  )
  it <- local_static_workers(paths, "--workers", "2")
  pids <- as.integer(it$by_both("/pid"))
  expect_equal(it$get("/www/a.txt")$text, "www")
  changes <- function() if (file.exists(took)) scan(took, quiet = TRUE) else numeric()
  it$signal(tools::SIGSTOP)
  file.create(go)
  expect_true(wait_until(function() length(changes()) == 2))
  # The first change takes two seconds, and the others do not wait.
  expect_lt(max(changes()), 20)
  it$signal(tools::SIGCONT)
  count <- function() sum(gregexpr("has not confirmed", it$tell())[[1]] > 0)
  expect_true(wait_until(function() count() == 2))
  expect_true(wait_until(function() identical(it$get("/www/a.txt")$text, "R has no /www/a.txt")))

  # While the supervisor runs, every change is confirmed. If it is killed, its workers end.
  it$by_both("/set")
  expect_equal(count(), 2)
  unlink(go)
  Sys.sleep(0.2)
  it$signal(tools::SIGSTOP)
  file.create(go)
  Sys.sleep(0.2)
  it$signal(tools::SIGKILL)
  expect_true(wait_until(function() !any(tools::pskill(pids, 0))))
})
