# The spans of a Shiny app: of each message, with a child for each output and samples of the stack.

skip_if_not_installed("processx")
skip_if_not_installed("curl")
skip_if_not_installed("shiny")
skip_on_os(c("mac", "solaris"))
skip_if(getRversion() < "4.0.0", "no serverSocket()")

# Decodes the fields of a protobuf message: a list of numbers and raw vectors, named by the numbers
# of the fields.
protobuf_fields <- function(bytes) {
  at <- 1
  varint <- function() {
    value <- 0
    shift <- 0
    repeat {
      byte <- as.integer(bytes[[at]])
      at <<- at + 1
      value <- value + bitwAnd(byte, 127L) * 2^shift
      shift <- shift + 7
      if (byte < 128L) return(value)
    }
  }
  found <- list()
  while (at <= length(bytes)) {
    tag <- varint()
    size <- c(NA, 8, NA, NA, NA, 4)[tag %% 8 + 1]
    value <- if (tag %% 8 == 0) {
      varint()
    } else {
      if (is.na(size)) size <- varint()
      at <- at + size
      bytes[at - size - 1 + seq_len(size)]
    }
    found <- c(found, stats::setNames(list(value), tag %/% 8))
  }
  found
}

all_of <- function(fields, number) unname(fields[names(fields) == number])

# Returns list(id, parent, name, seconds, attributes, events, status) of each span of an export.
spans_of <- function(bytes) {
  attributes_of <- function(fields, number) {
    pairs <- lapply(all_of(fields, number), protobuf_fields)
    values <- lapply(pairs, function(pair) {
      value <- protobuf_fields(pair[["2"]])[[1]]
      if (is.raw(value)) rawToChar(value) else value
    })
    stats::setNames(values, vapply(pairs, function(pair) rawToChar(pair[["1"]]), ""))
  }
  seconds <- function(bytes) sum(as.integer(bytes) * 256^(0:7)) / 1e9
  groups <- lapply(all_of(protobuf_fields(bytes), 1), protobuf_fields)
  scopes <- lapply(unlist(lapply(groups, all_of, 2), recursive = FALSE), protobuf_fields)
  spans <- lapply(unlist(lapply(scopes, all_of, 2), recursive = FALSE), protobuf_fields)
  lapply(spans, function(span) {
    list(
      id = format_hex(span[["2"]]), parent = format_hex(span[["4"]]),
      name = rawToChar(span[["5"]]), seconds = seconds(span[["8"]]) - seconds(span[["7"]]),
      attributes = attributes_of(span, 9),
      events = lapply(all_of(span, 11), function(event) {
        event <- protobuf_fields(event)
        c(list(name = rawToChar(event[["2"]])), attributes_of(event, 3))
      }),
      is_error = !is.null(span[["15"]]) && identical(protobuf_fields(span[["15"]])[["3"]], 2)
    )
  })
}

format_hex <- function(bytes) paste(as.character(bytes), collapse = "")

test_that("the span of a message includes the flush, and has children for outputs and errors", {
  port <- NULL
  for (attempt in 1:20) {
    port <- sample(20000:40000, 1)
    socket <- tryCatch(serverSocket(port), error = function(error) NULL)
    if (!is.null(socket)) break
  }
  withr::defer(close(socket))
  dir <- normalizePath(withr::local_tempdir())
  writeLines(c(
    "library(shiny)",
    "save_all <- function() Sys.sleep(1.5)",
    "shinyApp(fluidPage(textOutput('out'), textOutput('slow')), function(input, output) {",
    "  output$out <- renderText({ Sys.sleep(0.3); paste('clicks:', input$go) })",
    "  output$slow <- renderText({ if (input$go > 0) stop('no such user') else 'fine' })",
    "  observeEvent(input$go, {",
    "    save_all()",
    "  })",
    "})"
  ), file.path(dir, "app.R"))
  admin <- withr::local_tempfile(pattern = "a", tmpdir = "/tmp")
  it <- local_cli("serve", dir, "--port=0", "--log=none", "--admin", paste0("unix:", admin), environment = c(
    OTEL_EXPORTER_OTLP_ENDPOINT = paste0("http://127.0.0.1:", port),
    OTEL_BSP_SCHEDULE_DELAY = "300", OTEL_SDK_DISABLED = "", OTEL_TRACES_EXPORTER = ""
  ))
  expect_serving(it)
  session <- local_shiny_session(sub(" .*", "", sub(".*Serving on ", "", it$tell())))
  got <- function(text) wait_until(function() session$has(text), 30)
  expect_true(got("clicks: 0"))
  session$update('"go:shiny.action":1')
  expect_true(got("clicks: 1"))
  # Each process has a connection of its own to the collector.
  spans <- list()
  connections <- list()
  withr::defer(lapply(connections, function(it) close(it$connection)))
  read_exports <- function() {
    if (socketSelect(list(socket), timeout = 0)) {
      one <- new.env()
      one$connection <- socketAccept(socket, open = "r+b", blocking = FALSE, timeout = 5)
      one$got <- raw()
      connections <<- c(connections, list(one))
    }
    for (one in connections) {
      one$got <- c(one$got, readBin(one$connection, "raw", 1e6))
      end <- grepRaw("\r\n\r\n", one$got, fixed = TRUE)
      if (length(end) == 0) next
      head <- rawToChar(one$got[seq_len(end)])
      size <- as.numeric(sub("(?is)^.*content-length: ([0-9]+).*$", "\\1", head, perl = TRUE))
      if (length(one$got) < end + 3 + size) next
      spans <<- c(spans, spans_of(one$got[end + 3 + seq_len(size)]))
      one$got <- one$got[-seq_len(end + 3 + size)]
      writeBin(charToRaw("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), one$connection)
    }
    outputs <- Filter(function(span) startsWith(span$name, "output$"), spans)
    messages <- Filter(function(span) span$name == "rookery.on_message", spans)
    length(outputs) >= 4 && length(messages) >= 2
  }
  expect_true(wait_until(read_exports, 30))
  names <- vapply(spans, `[[`, "", "name")
  expect_setequal(names[startsWith(names, "output$")], c("output$out", "output$slow"))
  messages <- spans[names == "rookery.on_message"]
  ids <- vapply(messages, `[[`, "", "id")
  outputs <- spans[startsWith(names, "output$")]
  for (span in outputs) expect_true(span$parent %in% ids)
  # The first message opens the session, and the second one is a click, after which an output fails.
  clicked <- Filter(function(span) span$is_error, messages)
  expect_length(clicked, 1)
  failed <- Filter(function(span) span$is_error, outputs)
  expect_equal(vapply(failed, `[[`, "", "name"), "output$slow")
  expect_equal(failed[[1]]$parent, clicked[[1]]$id)
  expect_equal(failed[[1]]$events, list(list(name = "exception", exception.type = "simpleError")))
  expect_equal(failed[[1]]$attributes$error.type, "simpleError")
  expect_match(clicked[[1]]$attributes$session.id, "^[0-9a-f]{8}$")
  # The observer is named by samples of the stack.
  samples <- Filter(function(event) event$name == "rookery.stack_sample", clicked[[1]]$events)
  expect_match(
    vapply(samples, `[[`, "", "code.stacktrace"),
    paste0(
      "^Sys.sleep < save_all < .*<observer:observeEvent\\(input[$]go\\)>, app.R#[0-9], ",
      "session [0-9a-f]{8}$"
    ),
    all = FALSE
  )
  slow <- Filter(function(span) span$name == "output$out", outputs)
  for (span in slow) expect_gt(span$seconds, 0.25)
  for (span in messages) expect_gt(span$seconds, 0.25)
  metrics <- strsplit(fetch("http://localhost/metrics", path = admin)$text, "\n")[[1]]
  expect_true("rookery_errors_total{place=\"output$slow\"} 1" %in% metrics)
  expect_true("rookery_shiny_sessions{state=\"idle\"} 1" %in% metrics)
})
