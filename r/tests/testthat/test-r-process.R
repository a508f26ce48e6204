# Tests that need an R process of their own: its end, signals, children and memory.

hello_app <- function(req) {
  list(status = 200L, headers = list("Content-Type" = "text/plain"), body = "Hello, World!")
}

# Runs an R process with `code`, in which `port` is a free port and `ready()` reports that the
# server listens.
local_process <- function(code, env = parent.frame()) {
  port <- free_port()
  script <- withr::local_tempfile(fileext = ".R", .local_envir = env)
  paths <- paste(deparse(.libPaths()), collapse = "")
  writeLines(c(
    paste0(".libPaths(", paths, ")"),
    "library(rookery)",
    paste0("port <- ", port, "L"),
    "ready <- function() cat('ready\\n')",
    paste0("hello_app <- ", paste(deparse(hello_app), collapse = "\n")),
    deparse(substitute(code), width.cutoff = 500)
  ), script)
  process <- processx::process$new(
    file.path(R.home("bin"), "Rscript"), script, stdout = "|", stderr = "|", cleanup_tree = TRUE
  )
  withr::defer(process$kill_tree(), envir = env)
  list(process = process, port = port)
}

await_line <- function(started, line, seconds = 60) {
  until <- Sys.time() + seconds
  lines <- character(0)
  while (!(line %in% lines)) {
    if (Sys.time() > until || !started$process$is_alive()) {
      lines <- c(lines, started$process$read_output_lines())
      if (line %in% lines) break
      stop(
        "no `", line, "` in: ",
        paste(c(lines, started$process$read_all_error_lines()), collapse = "\n")
      )
    }
    started$process$poll_io(200)
    lines <- c(lines, started$process$read_output_lines())
  }
  invisible(lines)
}

# Waits for the end of a process; raises an error with its output after a timeout, because
# read_all_output() would wait for ever.
await_end <- function(started, seconds) {
  started$process$wait(seconds * 1000)
  if (started$process$is_alive()) {
    started$process$kill_tree()
    stop(
      "not done after ", seconds, " s; it said: ",
      started$process$read_all_output(), started$process$read_all_error()
    )
  }
}

fetch <- function(started, path = "/") {
  url <- paste0("http://127.0.0.1:", started$port, path)
  rawToChar(curl::curl_fetch_memory(url, curl::new_handle(timeout = 60))$content)
}

test_that("quit() in a handler ends the process cleanly", {
  skip_if_not_installed("processx")
  started <- local_process({
    reg.finalizer(globalenv(), function(e) cat("finalized\n"), onexit = TRUE)
    startServer("127.0.0.1", port, function(req) {
      if (req$PATH_INFO == "/quit") quit(status = 3) else hello_app(req)
    })
    ready()
    while (TRUE) service()
  })
  await_line(started, "ready")
  expect_identical(fetch(started), "Hello, World!")
  try(fetch(started, "/quit"), silent = TRUE)
  started$process$wait(60000)
  expect_identical(started$process$get_exit_status(), 3L)
  expect_match(started$process$read_all_output(), "finalized")
  expect_no_match(started$process$read_all_error(), "panicked|terminate|segfault|Aborted")
})

test_that("R may end while a server runs", {
  skip_if_not_installed("processx")
  started <- local_process({
    startServer("127.0.0.1", port, hello_app)
    ready()
    later::later(function() NULL, 0)
    service(200)
  })
  await_line(started, "ready")
  started$process$wait(60000)
  expect_identical(started$process$get_exit_status(), 0L)
  expect_identical(started$process$read_all_error(), "")
})

test_that("Ctrl-C stops an idle runServer() and frees the port", {
  skip_if_not_installed("processx")
  for (i in 1:3) {
    started <- local_process({
      tryCatch({
        later::later(ready, 0.1)
        runServer("127.0.0.1", port, hello_app)
      }, interrupt = function(e) {
        cat("interrupted\n")
        server <- startServer("127.0.0.1", port, hello_app)
        cat("free\n")
        server$stop()
      })
    })
    await_line(started, "ready")
    expect_identical(fetch(started), "Hello, World!")
    Sys.sleep(0.3)
    started$process$signal(tools::SIGINT)
    await_line(started, "interrupted")
    started$process$wait(60000)
    expect_identical(started$process$get_exit_status(), 0L)
  }
})

test_that("a forked child only closes what it inherited, and may serve itself", {
  skip_if_not_installed("processx")
  started <- local_process({
    server <- startServer("127.0.0.1", port, hello_app)
    own <- randomPort()
    child <- parallel::mcparallel({
      sockets <- system2("ls", c("-l", paste0("/proc/", Sys.getpid(), "/fd")), stdout = TRUE)
      server <- startServer("127.0.0.1", own, function(req) {
        list(status = 200L, headers = list(), body = "child")
      })
      until <- Sys.time() + 60
      while (Sys.time() < until) service(50)
    })
    cat("own", own, "\n")
    ready()
    while (TRUE) service()
  })
  lines <- await_line(started, "ready")
  own <- as.integer(sub("own ", "", grep("^own ", lines, value = TRUE)))
  expect_identical(fetch(started), "Hello, World!")
  expect_length(own, 1)
  child <- list(port = own)
  until <- Sys.time() + 60
  repeat {
    answer <- try(fetch(child), silent = TRUE)
    if (identical(answer, "child") || Sys.time() > until) break
    Sys.sleep(0.1)
  }
  expect_identical(answer, "child")
  expect_identical(fetch(started), "Hello, World!")
})

test_that("starting and stopping 100 times leaks no threads, descriptors or memory", {
  skip_if_not_installed("processx")
  started <- local_process({
    threads <- function() length(list.files("/proc/self/task"))
    descriptors <- function() length(list.files("/proc/self/fd"))
    measure <- function() c(threads(), descriptors(), .Call(rookery:::ffi_live_bytes))
    once <- function() {
      server <- startServer("127.0.0.1", port, hello_app)
      socket <- socketConnection("127.0.0.1", port, open = "r+b", blocking = FALSE)
      writeBin(charToRaw("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), socket)
      got <- raw(0)
      while (length(got) == 0) {
        service(20)
        got <- readBin(socket, "raw", 1e4)
      }
      close(socket)
      server$stop()
      service(NA)
    }
    for (i in 1:10) once()
    gc()
    tenth <- measure()
    for (i in 1:90) once()
    gc()
    hundredth <- measure()
    cat(tenth, "\n", hundredth, "\n")
    cat(if (identical(tenth, hundredth)) "same\n" else "different\n")
  })
  await_end(started, 300)
  expect_match(started$process$read_all_output(), "same")
})

test_that("a million header names make R grow by less than 8 MB", {
  skip_if_not_installed("processx")
  started <- local_process({
    startServer("127.0.0.1", port, hello_app)
    socket <- socketConnection("127.0.0.1", port, open = "r+b", blocking = FALSE)
    ask <- function(from, n) {
      names <- sprintf("X-Name-%d: v\r\n", seq(from, length.out = n))
      writeBin(
        charToRaw(paste0("GET / HTTP/1.1\r\nHost: a\r\n", paste(names, collapse = ""), "\r\n")),
        socket
      )
      got <- raw(0)
      while (length(got) == 0) {
        service(20)
        got <- readBin(socket, "raw", 1e5)
      }
      stopifnot(grepl("200 OK", rawToChar(got)))
    }
    size <- function() {
      gc(full = TRUE)
      sum(gc()[, 2]) * 2^20 + .Call(rookery:::ffi_live_bytes)
    }
    ask(-5000, 1900)
    before <- size()
    for (from in seq(1, 1e6, by = 1900)) ask(from, 1900)
    cat("grew", round(size() - before), "\n")
  })
  await_end(started, 600)
  out <- started$process$read_all_output()
  grew <- as.numeric(sub(".*grew (-?[0-9]+).*", "\\1", out))
  expect_lt(grew, 8 * 2^20)
})

test_that("the app finds a header whose name is new after a client has sent 10,000 names", {
  skip_if_not_installed("processx")
  started <- local_process({
    seen <- list()
    startServer("127.0.0.1", port, list(call = function(req) {
      req$HTTP_X_SET <- "by the app"
      seen <<- list(
        req$HTTP_X_HONEST, req[["HTTP_X_HONEST"]], req$HTTP_X_NONE, req$HTTP_HOST, req$HTTP_X_SET,
        "HTTP_X_HONEST" %in% names(req), as.list(req)$HTTP_X_HONEST,
        unname(req$HEADERS["x-honest"]), is.environment(req), inherits(req, "environment"),
        anyDuplicated(names(req))
      )
      list(status = 200L, headers = list(), body = "hello")
    }))
    ask <- function(headers) {
      socket <- socketConnection("127.0.0.1", port, open = "r+b", blocking = FALSE)
      on.exit(close(socket))
      lines <- paste0(headers, "\r\n", collapse = "")
      writeBin(charToRaw(paste0("GET / HTTP/1.1\r\nHost: a\r\n", lines, "\r\n")), socket)
      got <- raw(0)
      while (length(got) == 0) {
        service(20)
        got <- readBin(socket, "raw", 1e5)
      }
      stopifnot(grepl("200 OK", rawToChar(got)))
    }
    for (from in seq(1, 1e4, by = 1900)) ask(sprintf("X-Name-%d: v", from + 0:1899))
    ask(c("X-Honest: yes", "X-Set: by the client", "X_Honest: no"))
    expected <- list(
      "yes", "yes", NULL, "a", "by the app", TRUE, "yes", "yes", TRUE, TRUE, 0L
    )
    stopifnot(identical(seen, expected))
    cat("all found")
  })
  await_end(started, 60)
  expect_match(started$process$read_all_output(), "all found")
})

test_that("a header name past R's limit does not end the process", {
  server <- local_server(list(
    call = function(req) ok(as.character(max(nchar(names(req$HEADERS)))))
  ))
  client <- local_client(server)
  for (n in c(9900, 10001, 50000)) {
    answer <- get(client, "/", paste0(strrep("x", n), ": v"))
    expect_identical(answer$text, as.character(n))
  }
})

test_that("the boundary holds under gctorture2()", {
  skip_if_not_installed("processx")
  started <- local_process({
    # The compiler is off. R compiles a function at its second call, which takes minutes with a
    # collection at every third allocation.
    compiler::enableJIT(0)
    chunks <- function(...) {
      left <- list(...)
      function(close = FALSE) {
        if (close || length(left) == 0) return(NULL)
        chunk <- left[[1]]
        left <<- left[-1]
        chunk
      }
    }
    later_chunk <- function(chunk) {
      promises::promise(function(resolve, reject) later::later(function() resolve(chunk)))
    }
    streamed <- function(source) {
      list(
        status = 200L, headers = list(a = "b"),
        body = stream_body(source, on_close = function(reason) NULL)
      )
    }
    app <- list(
      onHeaders = function(req) {
        switch(
          req$PATH_INFO,
          "/early" = stop("early"),
          "/receive" = receive_body(
            on_data = function(bytes) {
              if (bytes[[1]] == 0x61) promises::promise_resolve(bytes) else stop("no")
            },
            on_end = function() hello_app(req),
            on_close = function(reason) NULL
          )
        )
      },
      call = function(req) {
        switch(
          req$PATH_INFO,
          "/error" = stop("an error"),
          "/promise" = promises::promise_resolve(hello_app(req)),
          "/body" = list(status = 200L, headers = list(a = "b"), body = req$rook.input$read()),
          "/null" = NULL,
          "/pull" = streamed(chunks("a", c("b", "c"), raw(0), as.raw(1:9))),
          "/promised" = streamed(chunks(promises::promise_resolve("a"), later_chunk("b"))),
          "/broken" = streamed(chunks(1)),
          "/lost" = stream_response(headers = list(a = "b")),
          "/push" = {
            s <- stream_response(headers = list(a = "b"))
            s$on_close(function(reason) NULL)
            s$write("early")
            later::later(function() {
              s$write(strrep("x", 1e5))
              s$close()
            })
            s
          },
          hello_app(req)
        )
      },
      onWSOpen = function(ws) {
        ws$onMessage(function(binary, message) {
          ws$send(if (message == "error") stop("no") else message)
        })
        ws$onClose(function() NULL)
      },
      onError = function(cond, req, info) if (info$stage == "call") invokeRestart("abort")
    )
    startServer("127.0.0.1", port, app)
    exchange <- function(step, text, frames = NULL) {
      socket <- socketConnection("127.0.0.1", port, open = "r+b", blocking = FALSE)
      on.exit(close(socket))
      writeBin(charToRaw(text), socket)
      if (!is.null(frames)) writeBin(frames, socket)
      got <- raw(0)
      gctorture2(step)
      for (i in 1:6) service(20)
      gctorture2(0)
      for (i in 1:50) {
        service(10)
        got <- c(got, readBin(socket, "raw", 1e4))
        if (length(got) > 0) break
      }
      # The bytes stay a raw vector, because newer versions of sub() refuse frames, which are not
      # text.
      rawToChar(got[seq_len(match(as.raw(13), got, nomatch = 1) - 1)])
    }
    get <- function(path) {
      paste0("GET ", path, " HTTP/1.1\r\nHost: a\r\nX-New-", sample(1e6, 1), ": v\r\n\r\n")
    }
    upgrade <- paste0(
      "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    frames <- as.raw(c(
      0x81, 0x82, 0, 0, 0, 0, 0x68, 0x69, 0x81, 0x85, 0, 0, 0, 0, 0x65, 0x72, 0x72, 0x6f, 0x72
    ))
    # Once without gctorture, to load packages and functions, which would take minutes as well.
    for (step in c(0, 3)) {
      for (path in c("/", "/error", "/early", "/promise", "/null", "/pull", "/promised", "/broken", "/push", "/lost")) cat(step, path, exchange(step, get(path)), "\n")
      cat(
        step, "/body",
        exchange(step, "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"), "\n"
      )
      for (body in c("abc", "xyz")) {
        cat(
          step, body,
          exchange(
            step, paste0("POST /receive HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n", body)
          ),
          "\n"
        )
      }
      cat(step, "/ws", exchange(step, upgrade, frames), "\n")
    }
    cat("done\n")
  })
  await_end(started, 600)
  out <- started$process$read_all_output()
  expect_match(out, "3 / HTTP/1.1 200 OK")
  expect_match(out, "3 /error HTTP/1.1 500")
  expect_match(out, "3 /early HTTP/1.1 500")
  expect_match(out, "3 /promise HTTP/1.1 200 OK")
  expect_match(out, "3 /null HTTP/1.1 500")
  for (path in c("/pull", "/promised", "/push")) {
    expect_match(out, paste("3", path, "HTTP/1.1 200 OK"))
  }
  # The client gets status 500, or if the head was sent after one second, a reset, before which it may
  # have read the head.
  for (path in c("/broken", "/lost")) {
    expect_match(out, paste0("3 ", path, " (HTTP/1.1 500 Internal Server Error|HTTP/1.1 200 OK|) \\n"))
  }
  expect_match(out, "3 abc HTTP/1.1 200 OK")
  expect_match(out, "3 xyz HTTP/1.1 500")
  expect_match(out, "3 /body HTTP/1.1 200 OK")
  expect_match(out, "3 /ws HTTP/1.1 101")
  expect_match(out, "done")
  expect_identical(started$process$get_exit_status(), 0L)
})
