# The handlers of the contenders with a Rook interface, one for each workload, so that no contender
# needs a router.
#
# Command line of each server script: Rscript --vanilla <contender>.R <port> <workload> <folder of
# static files>

args <- commandArgs(trailingOnly = TRUE)
port <- as.integer(args[[1]])
workload <- args[[2]]
static_dir <- args[[3]]
# A certificate and its key, for the contenders with TLS (runner/build.py).
tls_file <- file.path(Sys.getenv("ROOKERY_BENCH_OUT"), "tls.pem")

# Ten kilobytes of JSON, made once, because the group measures servers and not jsonlite.
json_10k <- local({
  rows <- sprintf('{"id":%04d,"name":"row %04d","value":%08.3f,"flag":true}', 1:170, 1:170,
    (1:170) / 7)
  text <- paste0("[", paste(rows, collapse = ","), "]")
  paste0(text, strrep(" ", 10240L - nchar(text)))
})

raw_1mb <- raw(1e6)

rook_handlers <- list(
  hello = function(req) {
    list(status = 200L, headers = list("Content-Type" = "text/plain"), body = "Hello, World!")
  },
  json = function(req) {
    list(status = 200L, headers = list("Content-Type" = "application/json"), body = json_10k)
  },
  post = function(req) {
    size <- length(req$rook.input$read())
    list(status = 200L, headers = list("Content-Type" = "text/plain"), body = as.character(size))
  },
  `answer-1mb` = function(req) {
    list(status = 200L, headers = list("Content-Type" = "application/octet-stream"), body = raw_1mb)
  },
  # 1 GB of input, read in chunks, as an application does that cannot hold all of it
  `body-in` = function(req) {
    size <- 0
    while (length(piece <- req$rook.input$read(65536L)) > 0L) size <- size + length(piece)
    list(status = 200L, headers = list("Content-Type" = "text/plain"),
      body = format(size, scientific = FALSE))
  },
  `body-out` = function(req) {
    list(
      status = 200L,
      headers = list("Content-Type" = "application/octet-stream"),
      body = c(file = file.path(static_dir, "1g.bin"))
    )
  },
  promise = function(req) {
    promises::promise(function(resolve, reject) {
      resolve(list(status = 200L, headers = list("Content-Type" = "text/plain"),
        body = "Hello, World!"))
    })
  },
  `promise-later` = function(req) {
    promises::promise(function(resolve, reject) {
      later::later(function() resolve(list(status = 200L,
        headers = list("Content-Type" = "text/plain"), body = "Hello, World!")))
    })
  },
  static = function(req) list(status = 404L, headers = list(), body = "")
)
# `/gc` is requested while connections are idle. The memory that they keep alive counts, but not
# garbage that R has not collected yet.
rook_handlers$idle <- function(req) {
  if (req$PATH_INFO == "/gc") gc()
  list(status = 200L, headers = list("Content-Type" = "text/plain"), body = "Hello, World!")
}
rook_handlers$headers <- rook_handlers$hello
# Takes R about this long on the reference machine. The length of the loop is fixed, so that all
# contenders do the same work.
spin <- function(n) {
  sum <- 0
  for (i in seq_len(n)) sum <- sum + i
  sum
}
spinning <- function(n) {
  force(n)
  function(req) {
    spin(n)
    list(status = 200L, headers = list("Content-Type" = "text/plain"), body = "Hello, World!")
  }
}
rook_handlers$`spin-5ms` <- spinning(300000)
rook_handlers$`spin-1ms` <- spinning(60000)
rook_handlers$`spin-200us` <- spinning(12000)
# Sleeps for as many seconds as the path says, and returns the process id
rook_handlers$naps <- function(req) {
  seconds <- suppressWarnings(as.numeric(substring(req$PATH_INFO, 2L)))
  if (!is.na(seconds)) Sys.sleep(seconds)
  list(status = 200L, headers = list("Content-Type" = "text/plain"),
    body = as.character(Sys.getpid()))
}
rook_handlers$`static-naps` <- rook_handlers$naps
# wrk waits for the body that the head of a response to HEAD announces
rook_handlers$empty <- function(req) list(status = 200L,
  headers = list("Content-Type" = "text/plain"), body = "")
rook_handlers$absent <- function(req) list(status = 404L,
  headers = list("Content-Type" = "text/plain"), body = "Not here")
# For bench/soak: everything that a request can be, by path. `/open` returns the number of
# WebSockets and streams that the app considers open, and `/memory` the memory in R.
sockets <- 0L
streams <- 0L
# Indices are reused, because R keeps each name that it has ever seen.
listeners <- list()
places <- integer(0)
big <- raw(4194304L)
soak_piece <- paste0(strrep("s", 999L), "\n")
# Twenty chunks, every third of which is delayed.
soak_stream <- function() {
  left <- 20L
  streams <<- streams + 1L
  rookery::stream_body(function() {
    left <<- left - 1L
    if (left < 0L) {
      NULL
    } else if (left %% 3L == 0L) {
      promises::promise(function(resolve, reject) later::later(function() resolve(soak_piece), 0.2))
    } else {
      soak_piece
    }
  }, on_close = function(reason) streams <<- streams - 1L)
}
# An earlier build, which is measured as well, has the former name of this function.
sse_response <- function(...) {
  name <- intersect(c("sse_response", "event_stream"), getNamespaceExports("rookery"))[[1]]
  getExportedValue("rookery", name)(...)
}
soak_events <- function() {
  place <- if (length(places) > 0L) places[[1L]] else length(listeners) + 1L
  places <<- places[-1L]
  event <- sse_response(on_close = function(reason) {
    listeners[place] <<- list(NULL)
    places <<- c(places, place)
  })
  event$send("hello")
  listeners[[place]] <<- event
}
if (workload == "soak") {
  soak_tick <- function() {
    for (listener in listeners) if (!is.null(listener)) listener$send(strrep("e", 50L),
      event = "tick")
    later::later(soak_tick, 1)
  }
  soak_tick()
}
rook_handlers$soak <- function(req) {
  switch(req$PATH_INFO,
    "/upload" = rook_handlers$`body-in`(req),
    "/big" = list(status = 200L, headers = list("Content-Type" = "application/octet-stream"),
      body = big),
    "/promise" = promises::promise(function(resolve, reject) {
      later::later(function() resolve(rook_handlers$hello(req)), 0.02)
    }),
    "/stop" = stop("as the soak asked"),
    "/open" = list(status = 200L, headers = list(),
      body = as.character(sockets + streams + length(listeners) - length(places))),
    "/memory" = list(status = 200L, headers = list(),
      body = format(sum(gc()[, 2]) * 2^20, scientific = FALSE)),
    "/stream" = streamed(soak_stream()),
    "/events" = soak_events(),
    rook_handlers$idle(req)
  )
}

# For bench/soak/leak.py: every other body is read, and every tenth of them as a connection
asked <- 0
rook_handlers$leak <- function(req) {
  asked <<- asked + 1
  if (asked %% 2 == 0) req$rook.input$read()
  if (asked %% 10 == 0) readBin(req$.bodyData, "raw", 1L)
  rook_handlers$hello(req)
}
# For bench/load/callbacks.c: a thread other than R's, which schedules callbacks through later
rook_handlers$callbacks <- function(req) {
  reply <- rook_handlers$hello(req)
  if (req$PATH_INFO == "/start") .Call(callbacks$wake_start, 100L)
  if (req$PATH_INFO == "/delays") reply$body <- paste(format(.Call(callbacks$wake_delays)),
    collapse = " ")
  reply
}
if (workload == "callbacks") {
  loadNamespace("later")
  callbacks <- dyn.load(file.path(Sys.getenv("ROOKERY_BENCH_OUT"), "callbacks.so"))
}

# For bench/scenarios/r-observe.toml: a request for `/route/<n>/<status>` reports a route of its
# own, and `/loop` computes for ten seconds.
rook_handlers$observe <- function(req) {
  parts <- strsplit(req$PATH_INFO, "/", fixed = TRUE)[[1]]
  reply <- rook_handlers$idle(req)
  if (identical(parts[2], "route")) {
    req$ROUTE <- paste0("/route/", parts[[3]], "/<id>")
    reply$status <- as.integer(parts[[4]])
  } else if (identical(parts[2], "loop")) {
    until <- proc.time()[["elapsed"]] + 10
    while (proc.time()[["elapsed"]] < until) spin(10000)
  }
  reply
}

# For bench/scenarios/r-stream.toml: each chunk has one `~`
piece_64k <- c(charToRaw("~"), rep(charToRaw("x"), 65535L))
token <- paste0("~", strrep("t", 19L))
tokens <- 10000L
event_data <- paste0("~", strrep("e", 50L))
# Ten times a second, independent of the duration of each chunk.
every_tenth <- function(each) {
  due <- as.numeric(Sys.time())
  tick <- function() {
    each()
    # Missed chunks are not made up for.
    due <<- max(due + 0.1, as.numeric(Sys.time()))
    later::later(tick, max(0, due - as.numeric(Sys.time())))
  }
  tick()
}
counted <- function(count, piece) {
  left <- count
  function() if (left > 0L) {
    left <<- left - 1L
    piece
  }
}
streamed <- function(body) list(status = 200L, headers = list("Content-Type" = "text/plain"),
  body = body)
rook_handlers$pieces <- function(req) streamed(counted(2000L, piece_64k))
rook_handlers$tokens <- function(req) streamed(counted(tokens, token))

rook_app <- function(as_static_path) {
  app <- list(call = rook_handlers[[if (workload == "ws") "idle" else workload]])
  if (workload %in% c("static", "static-naps", "soak", "observe")) {
    app$staticPaths <- list("/static" = as_static_path(static_dir))
  }
  if (workload %in% c("ws", "soak", "leak", "observe")) {
    app$onWSOpen <- function(ws) {
      if (!workload %in% c("ws", "observe")) {
        sockets <<- sockets + 1L
        ws$onClose(function() sockets <<- sockets - 1L)
      }
      ws$onMessage(function(binary, message) ws$send(message))
    }
  }
  app
}
