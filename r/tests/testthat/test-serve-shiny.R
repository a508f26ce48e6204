# The script that is added to Shiny's pages; tests/browser tests the script itself.

page <- function(content, type = "text/html; charset=UTF-8", status = 200L) {
  structure(
    list(status = status, content_type = type, content = content, headers = list()),
    class = "httpResponse"
  )
}

head_with <- function(inside) paste0("<html><head>", inside, "</head><body>\u00e9</body></html>")
client <- "<script src=\"shiny-javascript-1.7.4/shiny.min.js\"></script>"

test_that("the script is added after Shiny's client in a page, as text and as bytes", {
  for (script in c(client, sub(".min", "", client, fixed = TRUE))) {
    text <- head_with(script)
    expect_identical(
      add_page_script(page(text), "<tag>")$content, head_with(paste0(script, "<tag>"))
    )
    bytes <- charToRaw(text)
    expect_identical(
      add_page_script(page(bytes), "<tag>")$content, charToRaw(head_with(paste0(script, "<tag>")))
    )
  }
  expect_equal(Encoding(add_page_script(page(head_with(client)), "<tag>")$content), "UTF-8")
})

test_that("other responses are not changed", {
  for (response in list(
    page(head_with("")), page(client), page(head_with(client), "text/plain"),
    page(head_with(client), status = 404L),
    page(list(file = "x")), page(character()), page(NA_character_), page(NULL),
    page(head_with(client), type = NULL),
    page("<head></head>shiny.js"), page("</head>/shiny.min.js"), page("")
  )) {
    expect_identical(add_page_script(response, "<tag>"), response)
  }
})

test_that("the tag has the value of `reconnect` and the worker", {
  expect_equal(
    page_script("p", "app", ""),
    "<script src=\"p/rookery-shiny.js\" data-reconnect=\"app\"></script>"
  )
  expect_match(
    page_script("p", "never", "00ff"), "data-reconnect=\"never\" data-worker=\"00ff\">",
    fixed = TRUE
  )
})

test_that("`reconnect` has one of three values", {
  withr::local_options(rookery.reconnect = NULL)
  expect_equal(setting_of("reconnect")$value, "app")
  for (value in c("app", "always", "never")) {
    expect_equal(setting_value(value, "reconnect", "x"), value)
  }
  for (wrong in list("yes", TRUE, c("app", "never"), NA_character_, character())) {
    expect_error(
      setting_value(wrong, "reconnect", "The x"), "The x must be app, always or never",
      class = "rookery_bad_setting"
    )
  }
})

test_that("a filter of the app is called first", {
  skip_if_not_installed("shiny")
  withr::local_options(shiny.http.response.filter = function(req, response) {
    response$content <- sub("x", "y", response$content)
    response
  })
  before <- getOption("shiny.http.response.filter")
  filtered <- with_page_script(
    getOption("shiny.http.response.filter")(NULL, page(head_with(paste0("x", client))))
  )
  expect_match(
    filtered$content, "<head>y<script.*/rookery-shiny.js\" data-reconnect=\"app\"></script></head>"
  )
  expect_identical(getOption("shiny.http.response.filter"), before)
})

test_that("one R process adds the script to its pages as well, and serves it", {
  skip_if_not_installed("shiny")
  skip_if_not_installed("processx")
  skip_if_not_installed("curl")
  dir <- withr::local_tempdir()
  writeLines(
    "shiny::shinyApp(shiny::fluidPage('text'), function(input, output) {})", file.path(dir, "app.R")
  )
  it <- local_cli("serve", dir, "--port", "0", "--log=none", "--reconnect", "always")
  expect_serving(it)
  url <- sub(" .*", "", sub(".*Serving on ", "", it$tell()))
  text <- rawToChar(curl::curl_fetch_memory(url)$content)
  tag <- regmatches(text, regexpr("<script src=\"[^\"]*rookery-shiny.js\"[^>]*></script>", text))
  expect_match(tag, "data-reconnect=\"always\"")
  script <- curl::curl_fetch_memory(paste0(url, "/", sub(".*src=\"([^\"]*)\".*", "\\1", tag)))
  expect_equal(script$status_code, 200)
  expect_match(rawToChar(script$content), "allowReconnect")
})
