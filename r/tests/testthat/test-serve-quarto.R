# Quarto documents with `server: shiny`. Debian does not have Quarto, so a script renders the page
# with rmarkdown.

document <- c(
  "---", "title: The document", "format: html", "server: shiny", "---", "", "Its text.", "",
  "```{r}", "textInput('a', 'b')", "```", "",
  "```{r}", "#| context: server", "output$x <- renderText(input$a)", "```"
)

local_document <- function(env = parent.frame()) {
  dir <- withr::local_tempdir(.local_envir = env)
  writeLines(document, file.path(dir, "doc.qmd"))
  file.path(normalizePath(dir), "doc.qmd")
}

# Creates a `quarto` that records its arguments in a file beside itself.
local_quarto <- function(lines = character(), env = parent.frame()) {
  dir <- withr::local_tempdir(.local_envir = env)
  program <- file.path(normalizePath(dir), "quarto")
  writeLines(c("#!/bin/sh", paste0("echo \"$@\" >> '", dir, "/calls'"), lines), program)
  Sys.chmod(program, "755")
  withr::local_envvar(QUARTO_PATH = program, .local_envir = env)
  list(calls = function() readLines(file.path(dir, "calls")), program = program)
}

test_that("a Quarto document with `server: shiny` is detected, and others are not", {
  file <- local_document()
  expect_equal(detect_target(file)$kind, "quarto")
  expect_equal(detect_target(dirname(file))$path, file)
  writeLines(c("---", "title: x", "---"), file)
  expect_error(detect_target(file), "no `server: shiny`", class = "rookery_bad_target")
})

test_that("without Quarto, the error says how to install it", {
  file <- local_document()
  withr::local_envvar(QUARTO_PATH = "", PATH = withr::local_tempdir())
  said <- "doc.qmd` is a Quarto document with `server: shiny`.*`quarto` is not on PATH: install Quarto .https://quarto.org"
  expect_error(check_quarto(file), said, class = "rookery_no_quarto")
  expect_error(quarto_render(file), said, class = "rookery_no_quarto")
  withr::local_envvar(QUARTO_PATH = "/none/quarto")
  expect_error(
    check_quarto(file), "QUARTO_PATH names `/none/quarto`, which cannot be run",
    class = "rookery_no_quarto"
  )
})

test_that("the command reports missing Quarto as well", {
  skip_if_not_installed("processx")
  skip_if(nzchar(Sys.which("quarto")), "quarto is here")
  withr::local_envvar(QUARTO_PATH = "")
  it <- local_cli("serve", local_document(), "--port", "0")
  expect_equal(exit_of(it), 3)
  expect_match(it$tell(), "install Quarto (https://quarto.org/docs/get-started/)", fixed = TRUE)
})

test_that("the page is rendered once, and again after a change", {
  file <- local_document()
  quarto <- local_quarto(c("sleep 0.2", "echo page > \"${2%.qmd}.html\""))
  quarto_render(file)
  quarto_render(file)
  expect_equal(quarto$calls(), paste("render", file))
  Sys.setFileTime(file, Sys.time() + 60)
  quarto_render(file)
  expect_length(quarto$calls(), 2)
  # The page is older than the document, whose time is in the future.
  expect_false(is_rendered(file))
  expect_false(dir.exists(file.path(dirname(file), ".doc.qmd.rendering")))
})

test_that("a stale lock does not block rendering for ever", {
  file <- local_document()
  quarto <- local_quarto("echo page > \"${2%.qmd}.html\"")
  lock <- file.path(dirname(file), ".doc.qmd.rendering")
  dir.create(lock)
  Sys.setFileTime(lock, Sys.time() - 3600)
  quarto_render(file)
  expect_length(quarto$calls(), 1)
})

test_that("a document that Quarto cannot render is not served", {
  file <- local_document()
  local_quarto("exit 3")
  expect_error(quarto_render(file), "Quarto ended with status 3", class = "rookery_no_quarto")
  local_quarto("exit 0")
  expect_error(quarto_render(file), "has not created `doc.html`", class = "rookery_no_quarto")
})

test_that("`quarto` is found on PATH, and one R process serves the page", {
  skip_if_not_installed("rmarkdown")
  skip_if_not_installed("processx")
  skip_if_not_installed("curl")
  skip_if_not(rmarkdown::pandoc_available(), "pandoc is not installed")
  file <- local_document()
  quarto <- local_quarto(
    "exec Rscript -e 'rmarkdown::render(commandArgs(TRUE), quiet = TRUE)' \"$2\""
  )
  path <- paste(
    c(dirname(quarto$program), R.home("bin"), Sys.getenv("PATH")), collapse = .Platform$path.sep
  )
  # A folder with the document works like the document.
  it <- local_cli(
    "serve", dirname(file), "--port", "0", "--log=none",
    environment = c(PATH = path, QUARTO_PATH = "")
  )
  url <- expect_serving(it)
  expect_equal(quarto$calls(), paste("render", file))
  page <- fetch(sub(" .*", "", url))
  expect_equal(page$status_code, 200L)
  expect_match(page$text, "Its text.", fixed = TRUE)
  expect_match(page$text, "rookery-shiny.js\" data-reconnect=\"app\"")
  it$signal(tools::SIGTERM)
  expect_equal(exit_of(it), 0)
})

test_that("workers serve a Quarto document, and one of them renders it", {
  skip_if_not_installed("rmarkdown")
  skip_if_not_installed("processx")
  skip_if_not_installed("curl")
  skip_if_not(rmarkdown::pandoc_available(), "pandoc is not installed")
  file <- local_document()
  quarto <- local_quarto(
    "exec Rscript -e 'rmarkdown::render(commandArgs(TRUE), quiet = TRUE)' \"$2\""
  )
  it <- local_cli("serve", file, "--port", "0", "--log=none", "--workers", "2")
  expect_serving(it)
  expect_true(wait_until(
    function() lengths(regmatches(it$tell(), gregexpr("Serving as worker", it$tell()))) == 2
  ))
  expect_match(it$tell(), "Quarto document with Shiny (doc.qmd)", fixed = TRUE)
  expect_length(quarto$calls(), 1)
  page <- curl::curl_fetch_memory(sub(" .*", "", sub(".*Serving on ", "", it$tell())))
  expect_equal(page$status_code, 200)
  expect_match(rawToChar(page$content), "Its text.", fixed = TRUE)
  expect_match(
    rawToChar(page$content),
    "rookery-shiny.js\" data-reconnect=\"app\" data-worker=\"[0-9a-f]{32}\""
  )
})
