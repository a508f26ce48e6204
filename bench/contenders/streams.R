# The streamed responses that only Rookery is measured with, one app for each workload; `tokens` and
# `pieces` are in handlers.R.

stream_apps <- list(
  `tokens-pushed` = function() {
    list(call = function(req) {
      s <- rookery::stream_response(headers = list("Content-Type" = "text/plain"))
      for (i in seq_len(tokens)) s$write(token)
      s$close()
      s
    })
  },
  events = function() {
    clients <- new.env()
    number <- 0
    every_tenth(function() {
      event <- rookery::sse_event(event_data)
      for (name in ls(clients, sorted = FALSE)) clients[[name]]$write(event)
    })
    list(call = function(req) {
      number <<- number + 1
      name <- as.character(number)
      clients[[name]] <- sse_response(on_close = function(reason) rm(list = name, envir = clients))
      clients[[name]]$send("hello")
      clients[[name]]
    })
  },
  `idle-events` = function() {
    clients <- list()
    list(call = function(req) {
      if (req$PATH_INFO == "/gc") {
        gc()
        return(rook_handlers$hello(req))
      }
      e <- sse_response()
      clients[[length(clients) + 1L]] <<- e
      e$send("hello")
      e
    })
  },
  promised = function() {
    list(call = function(req) {
      more <- counted(tokens, token)
      streamed(function() {
        piece <- more()
        if (!is.null(piece)) promises::promise(function(resolve, reject) resolve(piece))
      })
    })
  },
  `promised-late` = function() {
    list(call = function(req) {
      more <- counted(tokens, token)
      streamed(function() {
        piece <- more()
        if (!is.null(piece)) promises::promise(function(resolve,
          reject) later::later(function() resolve(piece)))
      })
    })
  },
  # The time at which each chunk is written, and then work, as in a callback that continues.
  busy = function() {
    work <- function(s) {
      for (i in 1:120) {
        s$write(sprintf("~%.6f\n", as.numeric(Sys.time())))
        until <- Sys.time() + 0.01
        while (Sys.time() < until) NULL
      }
      s$close()
    }
    list(call = function(req) {
      if (req$PATH_INFO != "/busy") return(rook_handlers$hello(req))
      s <- rookery::stream_response(headers = list("Content-Type" = "text/plain"))
      later::later(function() work(s), 0.05)
      s
    })
  },
  departure = function() {
    told <- 0
    list(call = function(req) {
      if (req$PATH_INFO == "/told") {
        return(list(status = 200L, headers = list(), body = sprintf("%.6f", told)))
      }
      s <- rookery::stream_response()
      s$on_close(function(reason) told <<- as.numeric(Sys.time()))
      s$write("~")
      # Referenced by its own callback, so that R does not collect it.
      s$on_drain(function() s)
      s
    })
  },
  slow = function() list(call = function(req) streamed(counted(16384L, piece_64k))),
  upload = function() {
    path <- tempfile("upload-", Sys.getenv("ROOKERY_BENCH_OUT", tempdir()))
    list(
      onHeaders = function(req) {
        if (req$REQUEST_METHOD != "POST") return(NULL)
        con <- file(path, "wb")
        size <- 0
        rookery::receive_body(
          on_data = function(bytes) {
            size <<- size + length(bytes)
            writeBin(bytes, con)
          },
          on_end = function() {
            close(con)
            written <- file.size(path)
            stopifnot(written == size)
            list(status = 200L, headers = list(), body = format(size, scientific = FALSE))
          },
          on_close = function(reason) unlink(path)
        )
      },
      call = rook_handlers$hello
    )
  }
)
