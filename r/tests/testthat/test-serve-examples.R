# The programs in examples/. tests/browser/ tests chat.R and shiny/ in a browser.

examples <- test_path("..", "..", "..", "examples")
skip_if_not(dir.exists(examples), "outside the repository there are no examples")
skip_if_not_installed("processx")
skip_if_not_installed("curl")
examples <- normalizePath(examples)

# Returns the address that a script has printed; from then on the script serves.
printed_address <- function(it) {
  line <- "(http://127[.]0[.]0[.]1:[0-9]+) [(]Ctrl-C stops[)]"
  expect_true(wait_until(function() grepl(line, it$tell())))
  regmatches(it$tell(), regexec(line, it$tell()))[[1]][[2]]
}

test_that("hello.R responds", {
  it <- local_process(file.path(examples, "hello.R"), environment = c(PORT = 0))
  answer <- fetch(paste0(printed_address(it), "/some/where"))
  expect_match(answer$text, "Hello from R .*You asked for /some/where")
})

test_that("chat.R finds its page with Rscript and with the command", {
  ways <- list(
    printed_address(local_process(file.path(examples, "chat.R"), environment = c(PORT = 0))),
    expect_serving(local_cli("serve", file.path(examples, "chat.R"), "--port", "0"))
  )
  for (url in ways) {
    expect_match(fetch(url)$text, "<title>Chat</title>")
  }
})

test_that("tokens.R sends a response token by token, marks its end, and does not repeat it", {
  it <- local_process(file.path(examples, "tokens.R"), environment = c(PORT = 0))
  url <- printed_address(it)
  expect_match(fetch(url)$text, "<title>Tokens</title>")
  answer <- fetch(paste0(url, "/answer?prompt=", curl::curl_escape("What is a rook?")))
  expect_match(curl::parse_headers_list(answer$headers)[["content-type"]], "^text/event-stream")
  tokens <- regmatches(
    answer$text, gregexpr("event: token\nid: 1\ndata: [^\n]+ \n\n", answer$text)
  )[[1]]
  expect_gt(length(tokens), 12)
  expect_match(answer$text, "event: done\nid: 1\ndata: \n\n$")
  expect_true(wait_until(function() grepl("An answer ended after [0-9.]+ s: done", it$tell())))
  again <- fetch(paste0(url, "/answer?prompt=rook"), httpheader = "Last-Event-ID: 1")
  expect_equal(again$status_code, 204)
})

test_that("table.R sends a table without holding it as text", {
  rows <- 3e5
  it <- local_process(file.path(examples, "table.R"), environment = c(PORT = 0, ROWS = rows))
  url <- printed_address(it)
  kilobytes <- function(what) {
    text <- fetch(paste0(url, "/memory"))$text
    as.numeric(sub(paste0("^.*", what, ":\\s*([0-9]+) kB.*$"), "\\1", text))
  }
  # The first requests bring R's heap to its size, which grows in steps of some 25 MB. Then the peak
  # is reset (proc(5), clear_refs).
  file <- withr::local_tempfile()
  for (i in 1:4) curl::curl_download(paste0(url, "/table.csv"), file)
  writeLines("5", file.path("/proc", it$process$get_pid(), "clear_refs"))
  before <- kilobytes("VmHWM")
  curl::curl_download(paste0(url, "/table.csv"), file)
  # A copy of the table as text in R would take more than 30 MB.
  expect_lt(kilobytes("VmHWM") - before, 16 * 1024)
  bytes <- readBin(file, "raw", 1e8)
  expect_equal(sum(bytes == 0x0a), rows + 1)
  expect_equal(rawToChar(bytes[1:28]), "\"id\",\"city\",\"price\",\"sold\"\r\n")
  table <- utils::read.csv(
    text = c(
      readLines(file, 4), utils::tail(strsplit(rawToChar(utils::tail(bytes, 200)), "\r\n")[[1]], 1)
    )
  )
  expect_equal(table$id, c(1, 2, 3, rows))
  expect_equal(table$city, c("Lund", "Saint-Louis, \"Ndar\"", "Kyoto", "Kyoto"))
  expect_equal(table$price[[1]], 1)
  expect_equal(table$sold[1:3], c("2026-01-01", "2026-01-02", "2026-01-03"))
  expect_match(it$tell(), "A table was sent: done")
})

test_that("progress.R sends the progress of a job to all pages, also when they join late", {
  it <- local_process(file.path(examples, "progress.R"), environment = c(PORT = 0))
  url <- printed_address(it)
  expect_match(fetch(url)$text, "<title>Progress</title>")
  follow <- function() {
    client <- local_client(
      list(getPort = function() as.integer(sub("^.*:", "", url))), parent.frame()
    )
    send(client, request("/progress"))
    client
  }
  first <- follow()
  read_to(first, "\"done\":0,\"estimate\":null,\"running\":false")
  expect_equal(fetch(paste0(url, "/start"), post = TRUE, postfieldsize = 0)$status_code, 202)
  read_to(first, "\"done\":10,")
  expect_equal(fetch(paste0(url, "/start"), post = TRUE, postfieldsize = 0)$status_code, 409)
  second <- follow()
  read_to(second, "\"running\":true")
  read_to(first, "\"done\":100,")
  read_to(second, "\"done\":100,")
  estimate <- sub("^.*\"done\":100,\"estimate\":([0-9.]+),.*$", "\\1", text_of(second$read))
  expect_equal(as.numeric(estimate), pi, tolerance = 0.01)
  # The second client joined later, and received the state first.
  expect_equal(find_raw(second$read, "\"done\":0,"), 0)
  disconnect(second)
  expect_true(wait_until(function() grepl("A page has left: client", it$tell())))
})

test_that("plumber: JSON in and out, a filter, an error, an async route, an upload, a page", {
  skip_if_not_installed("plumber")
  skip_if_not_installed("jsonlite")
  it <- local_cli("serve", file.path(examples, "plumber"), "--port", "0")
  url <- expect_serving(it)
  square <- function(text) {
    fetch(
      paste0(url, "/square"),
      postfields = charToRaw(text), post = TRUE, postfieldsize = nchar(text),
      httpheader = "Content-Type: application/json"
    )
  }
  answer <- square("{\"x\": [1, 2, 3]}")
  expect_equal(jsonlite::fromJSON(answer$text), list(x = 1:3, squares = c(1, 4, 9)))
  expect_equal(curl::parse_headers_list(answer$headers)[["x-served-by"]], "rookery")
  expect_equal(square("{\"x\": \"one\"}")$status_code, 422)
  expect_equal(fetch(paste0(url, "/error"))$status_code, 500)
  expect_true(wait_until(function() grepl("the database is away", it$tell())))
  # The slow route does not block the other one.
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
  it$signal(15)
  expect_equal(exit_of(it), 0)
})

test_that("all pages have the same style sheet with dark mode, and an icon", {
  style <- paste(readLines(file.path(examples, "shared", "style.css")), collapse = "\n")
  expect_match(style, "@media (prefers-color-scheme: dark)", fixed = TRUE)
  pages <- list.files(examples, "[.]html$", recursive = TRUE)
  expect_length(pages, 4)
  for (page in pages) {
    text <- paste(readLines(file.path(examples, page)), collapse = "\n")
    expect_match(text, "href=\"/?shared/style.css\"", info = page)
    expect_match(text, "href=\"/?shared/favicon.svg\"", info = page)
    expect_no_match(text, "<style")
  }
  for (name in c("chat.R", "progress.R", "tokens.R")) {
    url <- printed_address(local_process(file.path(examples, name), environment = c(PORT = 0)))
    expect_equal(fetch(paste0(url, "/shared/style.css"))$text, paste0(style, "\n"))
    expect_match(
      rawToChar(fetch(paste0(url, "/shared/favicon.svg"))$headers), "image/svg+xml", fixed = TRUE
    )
  }
})
