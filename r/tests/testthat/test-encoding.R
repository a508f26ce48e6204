# Text is sent in UTF-8, whatever its encoding in R.

test_that("bodies and headers are sent in UTF-8, and bytes unchanged", {
  text <- function(bytes, encoding) {
    it <- rawToChar(as.raw(bytes))
    Encoding(it) <- encoding
    it
  }
  latin1 <- c(0x63, 0x61, 0x66, 0xe9)
  cafe <- text(latin1, "latin1")
  # In a C locale, paste() would write the text's last character as `<e9>`.
  long <- text(rep(latin1, 30000), "latin1")
  reply <- function(body) {
    list(
      status = 200L, headers = list("X-A" = cafe, "Content-Type" = "text/plain; charset=latin1"),
      body = body
    )
  }
  bodies <- list(
    "/latin1" = cafe, "/utf8" = enc2utf8(cafe), "/bytes" = text(c(0x63, 0xe9), "bytes"),
    "/long" = long
  )
  server <- startServer("127.0.0.1", 0, function(req) reply(bodies[[req$PATH_INFO]]))
  withr::defer(server$stop())
  url <- paste0("http://127.0.0.1:", server$getPort())
  utf8 <- charToRaw("caf\xc3\xa9")
  answer <- fetch_here(paste0(url, "/latin1"))
  expect_equal(answer$content, utf8)
  # A `Content-Type` of the app is not changed.
  expect_match(rawToChar(answer$headers), "charset=latin1", fixed = TRUE, useBytes = TRUE)
  expect_true(
    length(grepRaw(
      c(charToRaw("x-a: "), utf8), charToRaw(tolower(rawToChar(answer$headers))), fixed = TRUE
    )) >
      0 ||
    length(grepRaw(utf8, answer$headers, fixed = TRUE)) > 0)
  expect_equal(fetch_here(paste0(url, "/utf8"))$content, utf8)
  expect_equal(fetch_here(paste0(url, "/bytes"))$content, as.raw(c(0x63, 0xe9)))
  expect_equal(fetch_here(paste0(url, "/long"))$content, rep(utf8, 30000))
})

test_that("in a C locale, unmarked text that is valid UTF-8 is sent unchanged", {
  skip_if_not_installed("processx")
  app <- "function(req) list(status = 200L, headers = list(), body = rawToChar(as.raw(c(0x63, 0xc3, 0xa9))))"
  it <- local_r(
    paste0("rookery::serve(", app, ", port = 0, log = FALSE)"), environment = c(LC_ALL = "C")
  )
  expect_equal(fetch(expect_serving(it))$content, as.raw(c(0x63, 0xc3, 0xa9)))
})

test_that("numbers in events have no exponent", {
  expect_equal(as.character(sse_event("x", id = 100000)), "id: 100000\ndata: x\n\n")
  expect_equal(as.character(sse_event(c(100000, 0.5))), "data: 100000\ndata: 0.5\n\n")
  expect_equal(as.character(sse_event("x", retry = 1e5)), "retry: 100000\ndata: x\n\n")
  expect_error(
    sse_event("x", retry = Inf), "`retry` must be a whole number of milliseconds, not Inf",
    class = "rookery_bad_argument"
  )
  wrong <- "x\xff"
  # In a C locale, every unmarked text is valid.
  if (l10n_info()[["UTF-8"]]) {
    expect_error(sse_event(wrong), class = "rookery_bad_argument")
  }
  Encoding(wrong) <- "UTF-8"
  expect_error(sse_event(wrong), class = "rookery_bad_argument")
})

test_that("options of R about numbers and text do not change what is sent and read", {
  odd <- list(OutDec = ",", scipen = -10L, digits = 3L, encoding = "latin1")
  app <- list(
    call = function(req) {
      list(
        status = 200L, body = "abc",
        headers = list(
          "X-Number" = 1.23456789, "X-Large" = 100000, "X-Count" = 100000L, "X-Complex" = 1 + 2.5i,
          "X-Object" = structure(1.5, class = "difftime", units = "secs")
        )
      )
    },
    onWSOpen = function(ws) {
      ws$onMessage(function(binary, message) withr::with_options(odd, ws$send(1.5)))
    }
  )
  server <- startServer("127.0.0.1", 0, app)
  withr::defer(server$stop())
  url <- paste0("http://127.0.0.1:", server$getPort(), "/")
  answer <- withr::with_options(odd, fetch_here(url))
  headers <- curl::parse_headers_list(answer$headers)
  expect_equal(
    unlist(headers[c("x-number", "x-large", "x-count", "x-complex", "x-object")]),
    # As paste() formats the numbers with R's default options.
    c(
      "x-number" = "1.23456789", "x-large" = "1e+05", "x-count" = "100000",
      "x-complex" = "1+2.5i", "x-object" = "1.5"
    )
  )
  client <- local_client(server)
  upgrade(client)
  send(client, frame("x"))
  expect_equal(rawToChar(next_frame(client)$payload), "1.5")
  withr::local_options(odd)
  expect_equal(as.character(sse_event(1.5, id = 2.5)), "id: 2.5\ndata: 1.5\n\n")
  skip_if_not_installed("jsonlite")
  expect_equal(as.character(sse_event(list(a = 1.5, b = 1e5))), 'data: {"a":1.5,"b":100000}\n\n')
  limits <- server_limits(max_body_size = 1500000, request_timeout = 0.5, header_timeout = 12.345)
  expect_equal(limits$request_timeout, 0.5)
  # The printed limits can be given again.
  expect_match(format(limits), "max_body_size +1[.]5 MB", all = FALSE)
  expect_match(format(limits), "request_timeout +500 ms", all = FALSE)
  expect_match(format(limits), "header_timeout +12345 ms", all = FALSE)
  withr::local_options(rookery.header_timeout = 2.5)
  expect_equal(rookery_options()["header_timeout"]$value, "2.5 s")
  file <- withr::local_tempfile()
  writeBin(charToRaw("caf\xc3\xa9\n"), file)
  expect_equal(read_utf8_lines(file), "caf\u00e9")
})
