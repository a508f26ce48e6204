# The programs in examples/ do what they say. (chat.R and shiny/ are driven by a browser: tests/browser/.)

examples <- test_path("..", "..", "..", "examples")
skip_if_not(dir.exists(examples), "outside the repository there are no examples")
skip_if_not_installed("processx")
skip_if_not_installed("curl")
examples <- normalizePath(examples)

# The address that a script printed: from then on it answers.
printed_address <- function(it) {
  line <- "(http://127[.]0[.]0[.]1:[0-9]+) [(]Ctrl-C stops[)]"
  expect_true(wait_until(function() grepl(line, it$tell())))
  regmatches(it$tell(), regexec(line, it$tell()))[[1]][[2]]
}

test_that("hello.R answers", {
  it <- local_process(file.path(examples, "hello.R"), environment = c(PORT = 0))
  answer <- fetch(paste0(printed_address(it), "/some/where"))
  expect_match(answer$text, "Hello from R .*You asked for /some/where")
})

test_that("chat.R finds its page, by Rscript and by the command", {
  ways <- list(
    printed_address(local_process(file.path(examples, "chat.R"), environment = c(PORT = 0))),
    expect_serving(local_cli("serve", file.path(examples, "chat.R"), "--port", "0"))
  )
  for (url in ways) {
    expect_match(fetch(url)$text, "<title>Chat</title>")
  }
})

test_that("plumber: JSON in and out, a filter, an error, an async route, an upload, a page", {
  skip_if_not_installed("plumber")
  skip_if_not_installed("jsonlite")
  it <- local_cli("serve", file.path(examples, "plumber"), "--port", "0")
  url <- expect_serving(it)
  square <- function(text) {
    fetch(
      paste0(url, "/square"),
      postfields = charToRaw(text), post = TRUE, postfieldsize = nchar(text), httpheader = "Content-Type: application/json"
    )
  }
  answer <- square("{\"x\": [1, 2, 3]}")
  expect_equal(jsonlite::fromJSON(answer$text), list(x = 1:3, squares = c(1, 4, 9)))
  expect_equal(curl::parse_headers_list(answer$headers)[["x-served-by"]], "rookery")
  expect_equal(square("{\"x\": \"one\"}")$status_code, 422)
  expect_equal(fetch(paste0(url, "/error"))$status_code, 500)
  expect_match(it$tell(), "the database is away")
  # The route that waits does not hold up the other one.
  slow <- local_requests(paste0(url, "/wait?seconds=2"), 1)
  expect_equal(square("{\"x\": 2}")$status_code, 200)
  slow$wait(60000)
  expect_equal(slow$get_result(), 200L)
  file <- withr::local_tempfile(lines = "some text", fileext = ".txt")
  handle <- curl::new_handle(timeout = 60)
  curl::handle_setform(handle, file = curl::form_file(file, "text/plain"))
  taken <- curl::curl_fetch_memory(paste0(url, "/upload"), handle)
  told <- paste0("[{\"name\":\"", basename(file), "\",\"bytes\":10}]")
  expect_equal(rawToChar(taken$content), told)
  expect_equal(fetch(paste0(url, "/uploads"))$text, told)
  expect_match(fetch(paste0(url, "/www/index.html"))$text, "<form id=\"upload\">")
  it$process$signal(15)
  expect_equal(exit_of(it), 0)
})
