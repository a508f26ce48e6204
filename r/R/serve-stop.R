# Ending gracefully. `docker stop` kills after 10 s, so all of it has to be over before: requests that R has not begun
# 7.5 s after the signal are answered with 503, what runs at 9 s is interrupted.
drain_seconds <- list(queued = 7.5, running = 9)

# Runs `body` so that Ctrl-C and SIGTERM end it gracefully, and returns its value, or NULL when it was told to end.
with_graceful_stop <- function(body) {
  .Call(ffi_signals_watch, drain_seconds$running)
  on.exit(.Call(ffi_signals_unwatch))
  signal <- NULL
  value <- withRestarts(
    withCallingHandlers(
      body,
      # An interrupt that is no signal, as RStudio's, or one that came when time was up.
      interrupt = function(interrupt) stop_gracefully()
    ),
    rookery_stop = function() {
      signal <<- .Call(ffi_signals_seen)
      NULL
    }
  )
  if (interactive() && identical(signal, 15L)) {
    # The process was told to end, not only the server.
    quit(save = "no", status = 0)
  }
  value
}

# What service() calls between two events when there is something to heed.
heed <- function(is_asked) {
  log_pump()
  if (is_asked) {
    stop_gracefully()
  }
}

# Ends what with_graceful_stop() runs. Does not return.
stop_gracefully <- function() {
  if (!isTRUE(.globals$is_stopping)) {
    .globals$is_stopping <- TRUE
    on.exit(.globals$is_stopping <- FALSE)
    drain_servers()
  }
  # At once when R was interrupted while draining: time is up.
  invokeRestart("rookery_stop")
}

# Stops accepting, closes WebSockets with 1001, and serves until everything is answered or time is up.
drain_servers <- function() {
  waiting <- 0
  for (server in listServers()) {
    .Call(ffi_drain, listener_of(server))
    waiting <- waiting + connections_of(server)
  }
  if (waiting > 0) {
    what <- if (waiting == 1) " connection is" else " connections are"
    message("Stopping: ", waiting, what, " being finished. A second signal ends at once.")
  }
  are_begun <- FALSE
  repeat {
    left <- .Call(ffi_signals_left)
    if (left <= 0 || sum(vapply(listServers(), connections_of, numeric(1))) == 0) {
      break
    }
    if (!are_begun && left < drain_seconds$running - drain_seconds$queued) {
      are_begun <- TRUE
      for (server in listServers()) {
        .Call(ffi_refuse, listener_of(server))
      }
    }
    service(20)
  }
  stopAllServers()
  # The closing callbacks of WebSockets.
  for (i in 1:10) {
    service(NA)
  }
}

listener_of <- function(server) {
  as.integer(server$.__enclos_env__$private$handle)
}

# How many connections and WebSockets of a server have not ended.
connections_of <- function(server) {
  .Call(ffi_connections, listener_of(server))
}
