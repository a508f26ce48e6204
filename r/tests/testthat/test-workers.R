# `rookery serve --workers`, with R processes. What needs none is tested in crates/supervisor and crates/cli.

skip_if_not_installed("processx")
skip_if_not_installed("curl")
skip_on_os(c("mac", "solaris"))

app_lines <- c(
  "list(call = function(req) {",
  "  if (req$PATH_INFO == '/sleep') Sys.sleep(0.5)",
  "  list(status = 200L, headers = list('Content-Type' = 'text/plain'), body = as.character(Sys.getpid()))",
  "})"
)

local_workers <- function(lines, ..., env = parent.frame()) {
  dir <- withr::local_tempdir(.local_envir = env)
  writeLines(lines, file.path(dir, "app.R"))
  it <- local_cli("serve", dir, "--port", "0", "--no-log", ..., env = env)
  expect_serving(it)
  it$url <- sub(" .*", "", sub(".*Serving on ", "", it$tell()))
  it$get <- function(path = "/", handle = curl::new_handle()) curl::curl_fetch_memory(paste0(it$url, path), handle)
  it$pid <- function(...) rawToChar(it$get(...)$content)
  it
}

pids_of <- function(it, n = 12) sort(unique(vapply(seq_len(n), function(at) it$pid(), "")))

test_that("several Rs answer, one that is killed is started again, and all end with the program", {
  it <- local_workers(app_lines, "--workers", "2")
  expect_true(wait_until(function() length(pids_of(it)) == 2))
  pids <- pids_of(it)
  tools::pskill(as.integer(pids[[1]]), tools::SIGKILL)
  expect_true(wait_until(function() length(setdiff(pids_of(it), pids)) == 1))
  expect_match(it$tell(), "was ended by SIGKILL, which nobody here has sent")
  last <- pids_of(it)
  it$signal(tools::SIGTERM)
  expect_equal(exit_of(it), 0)
  expect_true(wait_until(function() !any(file.exists(file.path("/proc", last)))))
})

test_that("a reload replaces all Rs and fails no request", {
  it <- local_workers(app_lines, "--workers", "2")
  expect_true(wait_until(function() length(pids_of(it)) == 2))
  before <- pids_of(it)
  it$signal(tools::SIGHUP)
  statuses <- integer()
  wait_until(function() {
    statuses <<- c(statuses, it$get()$status_code)
    grepl("reloaded: all workers are of generation 1", it$tell())
  })
  expect_true(all(statuses == 200))
  expect_length(intersect(pids_of(it), before), 0)
})

test_that("the supervisor that is killed leaves no R behind", {
  it <- local_workers(app_lines, "--workers", "2")
  expect_true(wait_until(function() length(pids_of(it)) == 2))
  pids <- pids_of(it)
  it$signal(tools::SIGKILL)
  expect_true(wait_until(function() !any(file.exists(file.path("/proc", pids)))))
})

test_that("a page of Shiny comes back to its R", {
  skip_if_not_installed("shiny")
  lines <- c(
    "library(shiny)",
    "shinyApp(function(req) tags$p(paste0('pid:', Sys.getpid(), ';')), function(input, output) {})"
  )
  it <- local_workers(lines, "--workers", "2")
  expect_true(wait_until(function() lengths(regmatches(it$tell(), gregexpr("Serving as worker", it$tell()))) == 2))
  pid_in <- function(page) sub(".*pid:([0-9]+);.*", "\\1", rawToChar(page$content))
  seen <- vapply(seq_len(6), function(at) {
    # A handle keeps its cookies.
    browser <- curl::new_handle(cookiefile = "")
    pages <- vapply(seq_len(4), function(at) pid_in(it$get(handle = browser)), "")
    expect_length(unique(pages), 1)
    pages[[1]]
  }, "")
  expect_equal(as.vector(table(seen)), c(3L, 3L))
  expect_equal(it$get("/session/0123456789abcdef0123456789abcdef/download/x")$status_code, 404)
  expect_match(rawToChar(it$get()$headers), "rookery=[A-Za-z0-9_-]{48}; Path=/; HttpOnly; SameSite=Lax")
  # Each page says which R has made it.
  expect_match(rawToChar(it$get()$content), "data-worker=\"[0-9a-f]{32}\"")
})

test_that("documents of R Markdown are served by workers, and their pages know whose they are", {
  skip_if_not_installed("rmarkdown")
  skip_if_not(rmarkdown::pandoc_available(), "pandoc is not installed")
  dir <- withr::local_tempdir()
  writeLines(
    c("---", "title: A document", "runtime: shiny", "output: html_document", "---", "", "```{r}", "textInput('a', 'b')", "```"),
    file.path(dir, "doc.Rmd")
  )
  it <- local_cli("serve", file.path(dir, "doc.Rmd"), "--port", "0", "--no-log", "--workers", "2")
  expect_serving(it)
  expect_true(wait_until(function() lengths(regmatches(it$tell(), gregexpr("Serving as worker", it$tell()))) == 2))
  url <- sub(" .*", "", sub(".*Serving on ", "", it$tell()))
  ids <- vapply(1:4, function(at) {
    page <- curl::curl_fetch_memory(url)
    expect_equal(page$status_code, 200)
    expect_match(rawToChar(page$headers), "rookery=[A-Za-z0-9_-]{48}; Path=/")
    sub(".*rookery-shiny.js\" data-reconnect=\"app\" data-worker=\"([0-9a-f]{32})\".*", "\\1", rawToChar(page$content))
  }, "")
  expect_equal(as.vector(table(ids)), c(2L, 2L))
  expect_true(all(nchar(ids) == 32))
})
