# Wake-ups between R's thread and the I/O thread: neither waits for long.

# Runs an R process that talks to the server of this one; `code` is evaluated there with `port`.
talk <- function(server, code) {
  skip_if_not_installed("callr")
  callr::r_bg(code, list(port = server$getPort()))
}

test_that("an idle server leaves later::loop_empty() TRUE and wakes only for its clock", {
  threads <- function() {
    tasks <- list.files("/proc/self/task", full.names = TRUE)
    Filter(function(task) identical(readLines(file.path(task, "comm")), "rookery-io"), tasks)
  }
  # Package later's timer thread ticks, and has the name of our thread if our thread started it in
  # an earlier test.
  expect_length(listServers(), 0)
  others <- threads()
  server <- local_server(list(call = function(req) ok()))
  # A thread sets its name a moment after its start.
  expect_true(wait_until(function() length(setdiff(threads(), others)) == 1))
  ours <- setdiff(threads(), others)
  client <- local_client(server)
  expect_identical(get(client)$text, "ok")
  service(NA)
  expect_true(later::loop_empty())
  # Returns the processor time and context switches of the I/O thread.
  ticks <- function() {
    fields <- strsplit(sub(".*\\) ", "", readLines(file.path(ours, "stat"))), " ")[[1]]
    sum(as.numeric(fields[12:13]))
  }
  switches <- function() {
    lines <- grep("ctxt_switches", readLines(file.path(ours, "status")), value = TRUE)
    sum(as.numeric(sub(".*:\\s*", "", lines)))
  }
  disconnect(client)
  serve_until(function() rookery:::connections_of(server) == 0)
  # Without connections, only the sweep of deadlines wakes the thread, once a second. Each wake-up
  # costs a few switches and hardly any processor time (the unit is 10 ms).
  expect_true(wait_until(function() {
    before <- c(ticks(), switches())
    time <- system.time(Sys.sleep(2))[["elapsed"]]
    spent <- c(ticks(), switches()) - before
    spent[[1]] <= 1 && spent[[2]] <= 10 * (time + 1)
  }))
})

test_that("service() returns for each of 50 messages in one write", {
  seen <- 0
  server <- local_server(list(
    onWSOpen = function(ws) ws$onMessage(function(binary, message) seen <<- seen + 1)
  ))
  client <- local_client(server)
  upgrade(client)
  send(client, do.call(c, lapply(1:50, function(i) frame(as.character(i)))))
  Sys.sleep(0.3)
  returns <- 0
  at_return <- numeric(0)
  while (seen < 50 && returns < 200) {
    service(1000)
    returns <- returns + 1
    at_return <- c(at_return, seen)
  }
  expect_identical(seen, 50)
  # Each return of service() has handled at most one message.
  expect_true(all(diff(c(0, at_return)) <= 1))
})

test_that("a service() within a handler returns, and handles the rest of the queue", {
  inner <- character(0)
  server <- local_server(list(call = function(req) {
    if (req$PATH_INFO == "/outer") {
      until <- Sys.time() + 60
      while (length(inner) == 0 && Sys.time() < until) service(10)
      ok("outer")
    } else {
      inner <<- c(inner, req$PATH_INFO)
      ok("inner")
    }
  }))
  one <- local_client(server)
  two <- local_client(server)
  send(one, request("/outer"))
  send(two, request("/inner"))
  expect_identical(reply(one)$text, "outer")
  expect_identical(reply(two)$text, "inner")
  expect_identical(inner, "/inner")
})

test_that("a loop that only calls later::run_now() is served, with WebSockets", {
  server <- local_server(list(
    call = function(req) ok(),
    onWSOpen = function(ws) ws$onMessage(function(binary, message) ws$send(message))
  ))
  answers <- talk(server, function(port) {
    url <- paste0("http://127.0.0.1:", port, "/")
    began <- Sys.time()
    texts <- vapply(1:50, function(i) rawToChar(curl::curl_fetch_memory(url)$content), "")
    list(texts = texts, seconds = as.numeric(Sys.time() - began, units = "secs"))
  })
  until <- Sys.time() + 60
  while (answers$is_alive() && Sys.time() < until) later::run_now(0.05)
  result <- answers$get_result()
  expect_identical(result$texts, rep("ok", 50))
})

test_that("a promise that another process resolves results in a response", {
  server <- local_server(list(call = function(req) {
    promises::promise(function(resolve, reject) later::later(function() resolve(ok("later")), 0.05))
  }))
  client <- local_client(server)
  expect_identical(get(client)$text, "later")
})

test_that("an interactive R process serves at its prompt", {
  skip_if_not_installed("processx")
  port <- free_port()
  paths <- paste(deparse(.libPaths()), collapse = "")
  # A pseudo-terminal, at which R waits for input in its event loop, as for a user.
  process <- processx::process$new(
    file.path(R.home("bin"), "R"), c("--interactive", "--no-save", "--no-readline", "--quiet"),
    pty = TRUE, poll_connection = FALSE
  )
  withr::defer(process$kill())
  process$write_input(paste0(
    ".libPaths(", paths, "); library(rookery); s <- startServer('127.0.0.1', ", port,
    ", function(req) list(status = 200L, headers = list(), body = 'prompt'))\n"
  ))
  answer <- NULL
  until <- Sys.time() + 60
  while (is.null(answer) && Sys.time() < until) {
    process$read_output()
    answer <- tryCatch(
      rawToChar(curl::curl_fetch_memory(
        paste0("http://127.0.0.1:", port, "/"), curl::new_handle(timeout = 5)
      )$content),
      error = function(e) {
        Sys.sleep(0.1)
        NULL
      }
    )
  }
  expect_identical(answer, "prompt")
})

test_that("stopServer() within a handler still sends its response", {
  server <- NULL
  server <- startServer("127.0.0.1", 0, list(call = function(req) {
    stopServer(server)
    ok("bye")
  }))
  client <- local_client(server)
  answer <- get(client)
  expect_identical(answer$text, "bye")
  expect_identical(answer$headers[["connection"]], "close")
  expect_false(server$isRunning())
})

test_that("interrupt() ends service(0) after the handler that calls it", {
  server <- local_server(list(call = function(req) {
    interrupt()
    ok("interrupted")
  }))
  client <- local_client(server)
  send(client, request())
  expect_true(service(0))
  expect_identical(reply(client)$text, "interrupted")
})

test_that("a queue that is never empty does not block callbacks of package later", {
  ticks <- 0
  during <- NULL
  tick <- function() {
    ticks <<- ticks + 1
    if (!is.null(during) && !is_over) later::later(tick, 0.005)
  }
  is_over <- FALSE
  server <- local_server(function(req) {
    # Slower than the clients, so requests wait all the time.
    Sys.sleep(0.003)
    during <<- c(during, ticks)
    if (length(during) == 1) later::later(tick, 0)
    ok()
  })
  clients <- talk(server, function(port) {
    url <- paste0("http://127.0.0.1:", port, "/")
    pool <- curl::new_pool(total_con = 40, host_con = 40)
    for (i in 1:400) {
      curl::curl_fetch_multi(url, pool = pool, handle = curl::new_handle(timeout = 60))
    }
    curl::multi_run(pool = pool)$success
  })
  until <- Sys.time() + 300
  while (clients$is_alive() && Sys.time() < until) service(50)
  is_over <- TRUE
  expect_identical(clients$get_result(), 400L)
  # 400 requests of at least 3 ms would be hundreds of ticks if nothing else used the processor.
  expect_gt(max(during), 20)
})

# Counts failures of a callback to send while it continues to run: `send(i)` is called three times,
# and the callback runs until a client in another process has received the message and added a byte
# to the file `got`.
unheard <- function(app_of, client, env = parent.frame()) {
  got <- withr::local_tempfile(.local_envir = env)
  file.create(got)
  missed <- 0
  send_and_work <- function(send) {
    for (i in 1:3) {
      send(i)
      until <- Sys.time() + 60
      # A busy loop, because R runs its event loop during Sys.sleep().
      while (file.size(got) < i && Sys.time() < until) NULL
      if (file.size(got) < i) missed <<- missed + 1
    }
  }
  server <- local_server(app_of(send_and_work), env)
  skip_if_not_installed("callr")
  answers <- callr::r_bg(client, list(port = server$getPort(), got = got))
  withr::defer(answers$kill(), envir = env)
  serve_until(function() !answers$is_alive(), 300)
  answers$get_result()
  missed
}

test_that("messages sent in a WebSocket callback leave at once, whatever the callback does next", {
  missed <- unheard(
    function(send_and_work) {
      list(onWSOpen = function(ws) {
        ws$onMessage(function(binary, message) send_and_work(function(i) ws$send("now")))
      })
    },
    function(port, got) {
      socket <- socketConnection("127.0.0.1", port, open = "r+b", blocking = TRUE)
      writeBin(charToRaw(paste0(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
      )), socket)
      while (nzchar(readLines(socket, 1))) NULL
      writeBin(as.raw(c(0x81, 0x82, 0, 0, 0, 0, 0x68, 0x69)), socket)
      for (i in 1:3) {
        stopifnot(length(readBin(socket, "raw", 5)) == 5)
        cat("x", file = got, append = TRUE)
      }
    }
  )
  # Without the wake timer, all three would fail, because messages would be sent after the callback.
  expect_equal(missed, 0)
})

test_that("responses of promises are sent at once, even if the callback continues to run", {
  settle <- list()
  missed <- unheard(
    function(send_and_work) {
      list(call = function(req) {
        promises::promise(function(resolve, reject) {
          settle[[length(settle) + 1]] <<- resolve
          if (length(settle) == 3) {
            # Each callback of package later schedules another one, as promises do.
            later::later(function() {
              send_and_work(function(i) {
                settle[[i]](ok(as.character(i)))
                later::run_now(0)
              })
            })
          }
        })
      })
    },
    function(port, got) {
      sockets <- lapply(1:3, function(i) {
        socket <- socketConnection("127.0.0.1", port, open = "r+b", blocking = TRUE)
        writeBin(charToRaw("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), socket)
        socket
      })
      # In any order of acceptance.
      while (length(sockets) > 0) {
        ready <- which(socketSelect(sockets))
        cat(strrep("x", length(ready)), file = got, append = TRUE)
        sockets <- sockets[-ready]
      }
    }
  )
  expect_equal(missed, 0)
})
