# The expected values are those of httpuv 1.6.9, unless a test names a difference.

# Creates a stream over `body` which checks that no call reads past its end.
stream_of <- function(body) {
  bytes <- if (is.raw(body)) body else charToRaw(body)
  InputStream$new(
    function(offset, n) {
      stopifnot(n > 0, offset + n <= length(bytes))
      bytes[offset + seq_len(n)]
    },
    length(bytes)
  )
}

test_that("read() returns the remaining bytes, and none at the end", {
  input <- stream_of("0123456789")
  expect_identical(rawToChar(input$read(4)), "0123")
  expect_identical(rawToChar(input$read(4)), "4567")
  expect_identical(rawToChar(input$read(4)), "89")
  expect_identical(input$read(4), raw(0))
  expect_identical(input$rewind(), 10)
  expect_identical(input$rewind(), 0)
  expect_identical(rawToChar(input$read(2)), "01")
  expect_identical(input$read(0), raw(0))
  expect_identical(rawToChar(input$read(-5)), "23456789")
  expect_identical(input$read(2^16), raw(0))
  input$rewind()
  expect_identical(rawToChar(input$read(2.9)), "01")
  expect_identical(rawToChar(input$read()), "23456789")
})

test_that("read_lines() recognizes all three line ends", {
  lines_of <- function(body) stream_of(body)$read_lines()
  expect_identical(lines_of("l1\nl2\r\nl3"), c("l1", "l2", "l3"))
  expect_identical(lines_of("a\rb\r\rc\n\nd\n"), c("a", "b", "", "c", "", "d"))
  expect_identical(lines_of("\n"), "")
  expect_identical(lines_of("\n\n"), c("", ""))
  expect_identical(lines_of("ab\n"), "ab")
  expect_identical(lines_of("ab\r\ncd\r"), c("ab", "cd"))
})

test_that("reading bytes and lines can be mixed", {
  input <- stream_of("l1\nl2\r\nl3")
  expect_identical(input$read_lines(), c("l1", "l2", "l3"))
  expect_identical(input$read_lines(), character(0))
  expect_identical(input$rewind(), 9)
  expect_identical(input$read_lines(1), "l1")
  expect_identical(rawToChar(input$read(2)), "l2")
  expect_identical(input$read_lines(1), "")
  expect_identical(rawToChar(input$read()), "l3")
  input$rewind()
  expect_identical(rawToChar(input$read(3)), "l1\n")
  expect_identical(input$read_lines(0), character(0))
  expect_identical(input$read_lines(), c("l2", "l3"))
})

test_that("a carriage return does not include the next byte (httpuv: it does)", {
  input <- stream_of("ab\rcd\r")
  expect_identical(input$read_lines(1), "ab")
  expect_identical(rawToChar(input$read()), "cd\r")
})

test_that("lines are found across the blocks that a body is read in", {
  text <- vapply(1:300, function(i) strrep("x", i %% 97), character(1))
  for (n in c(1, 7, 299, 300, 1000)) {
    input <- stream_of(paste0(text, "\r\n", collapse = ""))
    lines <- character(0)
    repeat {
      more <- input$read_lines(n)
      if (length(more) == 0) break
      lines <- c(lines, more)
    }
    expect_identical(lines, text)
  }
  long <- paste0(strrep("a", 3 * line_block - 1), "\r\nb")
  expect_identical(nchar(stream_of(long)$read_lines(1)), 3L * as.integer(line_block) - 1L)
  # The first block ends between the two bytes.
  split <- stream_of(paste0(strrep("a", line_block - 1), "\r\n", strrep("b", line_block)))
  split$read_lines(1)
  expect_identical(rawToChar(split$read(1)), "b")
})

test_that("valid UTF-8 lines are marked, and a byte order mark is removed", {
  lines <- stream_of(c(as.raw(c(0xc3, 0xa9, 0x0a, 0xff, 0x0a)), charToRaw("abc")))$read_lines()
  expect_identical(
    lapply(lines, charToRaw), list(as.raw(c(0xc3, 0xa9)), as.raw(0xff), charToRaw("abc"))
  )
  expect_identical(Encoding(lines), c("UTF-8", "unknown", "unknown"))
  marked <- stream_of(as.raw(c(0xef, 0xbb, 0xbf, 0x61, 0x62, 0x0a)))
  expect_identical(charToRaw(marked$read_lines()), charToRaw("ab"))
  marked$rewind()
  expect_identical(length(marked$read()), 6L)
})

test_that("a line with a NUL ends before it", {
  expect_identical(stream_of(as.raw(c(97, 0, 98, 10, 99)))$read_lines(), c("a", "c"))
})

test_that("arguments that are not numbers are refused", {
  input <- stream_of("abc")
  for (n in list(NA, NULL, c(1, 2), "2")) {
    expect_error(input$read(n), "`l` must be one number.", fixed = TRUE)
    expect_error(input$read_lines(n), "`n` must be one number.", fixed = TRUE)
  }
})

test_that("an InputStream can be created from a connection", {
  file <- withr::local_tempfile()
  writeBin(charToRaw("hello\nyou"), file)
  connection <- file(file, "rb")
  withr::defer(close(connection))
  input <- InputStream$new(connection, 9)
  expect_identical(input$read_lines(1), "hello")
  expect_identical(rawToChar(input$read()), "you")
  expect_identical(input$rewind(), 9)
})

test_that("InputStream objects have httpuv's classes", {
  expect_identical(class(stream_of("a")), c("InputStream", "R6"))
  expect_identical(class(nullInputStream), c("NullInputStream", "R6"))
  expect_identical(class(stdErrStream), c("ErrorStream", "R6"))
})

test_that("a request without a body has an empty rook.input", {
  expect_identical(nullInputStream$read(), raw(0))
  expect_identical(nullInputStream$read(5), raw(0))
  expect_identical(nullInputStream$read_lines(), character(0))
  expect_identical(nullInputStream$read_lines(2), character(0))
  expect_invisible(expect_null(nullInputStream$rewind()))
  expect_invisible(expect_null(nullInputStream$close()))
})

test_that("rook.errors writes to stderr", {
  said <- utils::capture.output(stdErrStream$cat("a", "b\n", sep = "-"), type = "message")
  expect_identical(said, "a-b")
  expect_null(stdErrStream$flush())
})

test_that("`.bodyData` above 1 MiB works without /proc/self/fd and /dev/fd", {
  body <- as.raw(rep_len(0:250, 3e6))
  seen <- list()
  folder <- withr::local_tempdir()
  withr::local_options(rookery.spool_dir = folder)
  server <- local_server(function(req) {
    ticket <- environment(req$rook.input$read)$.ticket
    where <- .Call(rookery:::ffi_body_open, ticket)
    for (folders in list(c("/proc/self/fd", "/dev/fd"), character(), "/nowhere")) {
      con <- rookery:::open_spooled(ticket, where[[1]], where[[2]], folders)
      first <- readBin(con, "raw", 1e7)
      seek(con, 10)
      seen[[length(seen) + 1]] <<- list(
        where[[2]] >= 0, class(con)[[1]], identical(first, body), readBin(con, "raw", 2)
      )
      close(con)
    }
    ok(as.character(length(list.files(folder))))
  })
  client <- local_client(server)
  send(client, paste0("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ", length(body), "\r\n\r\n"))
  for (at in seq(1, length(body), by = 1e5)) {
    send(client, body[at:(at + 99999)])
    service(NA)
  }
  expect_equal(reply(client)$text, "0")
  expect_identical(seen, rep(list(list(TRUE, "file", TRUE, as.raw(10:11))), 3))
})
