# Ending gracefully. `docker stop` kills after 10 s, so all of it has to be over before. In seconds from the signal:
# requests that R has not begun at `queued` are answered with 503; a handler that runs at `running` is interrupted, a
# promise that is not settled is answered for. Sending that may take `closing`, and with the rest a second.
drain_seconds <- list(queued = 7, running = 9, closing = 0.5)

# Runs `body` so that Ctrl-C and SIGTERM end it gracefully, and returns its value, or NULL when it was told to end.
with_graceful_stop <- function(body) {
  if (identical(.globals$serving, Sys.getpid())) {
    # An engine that is rookery itself: the outer one ends both.
    return(body)
  }
  .Call(ffi_signals_watch, drain_seconds$running)
  # By its number: a child that is forked meanwhile watches for itself, if it serves.
  .globals$serving <- Sys.getpid()
  on.exit({
    .globals$serving <- NULL
    .Call(ffi_signals_unwatch)
  })
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
handle_signals <- function(is_asked, is_reload) {
  log_pump()
  if (is_reload) {
    reload_all_tls()
  }
  if (is_asked) {
    stop_gracefully()
  }
}

# Ends what with_graceful_stop() runs. Does not return.
stop_gracefully <- function() {
  if (!isTRUE(.globals$is_stopping)) {
    .globals$is_stopping <- TRUE
    on.exit(.globals$is_stopping <- FALSE)
    if (.Call(ffi_signals_seen) == 0L && length(listServers()) == 0) {
      # Interrupted by R's own handler, as in Sys.sleep(); of a signal, signals.c tells.
      message("Stopping: nothing is being served yet.")
    }
    drain_servers()
  }
  # At once when R was interrupted while draining: time is up. Nothing interrupts this; it has a second, see
  # ffi_signals_closing().
  suspendInterrupts(close_servers())
  invokeRestart("rookery_stop")
}

# Stops accepting, closes WebSockets with 1001, and serves until everything is answered or time is up.
drain_servers <- function() {
  admin_drains()
  waiting <- 0
  for (server in listServers()) {
    .Call(ffi_drain, listener_of(server))
    waiting <- waiting + connections_of(server)
  }
  if (waiting > 0) {
    what <- if (waiting == 1) " connection is" else " connections are"
    message("Stopping: ", waiting, what, " being finished. A second signal ends at once.")
  }
  # For new requests there is less time than for those begun.
  serve_rest(function() .Call(ffi_signals_left) > drain_seconds$running - drain_seconds$queued)
  refuse_rest(is_held = FALSE)
  serve_rest(function() .Call(ffi_signals_left) > 0)
}

# Answers what is left with 503, and stops.
close_servers <- function() {
  .Call(ffi_signals_closing)
  refuse_rest(is_held = TRUE)
  until <- proc.time()[["elapsed"]] + drain_seconds$closing
  serve_rest(function() proc.time()[["elapsed"]] < until)
  stopAllServers()
  # The closing callbacks of WebSockets.
  for (i in 1:10) {
    service(NA)
  }
}

# Serves while there is time and somebody to serve.
serve_rest <- function(has_time) {
  while (has_time() && sum(vapply(listServers(), connections_of, numeric(1))) > 0) {
    service(20)
  }
}

# From now on what R comes to is answered with 503, and with `is_held` what waits for a promise as well.
refuse_rest <- function(is_held) {
  for (server in listServers()) {
    .Call(ffi_refuse, listener_of(server), is_held)
  }
}

listener_of <- function(server) {
  as.integer(server$.__enclos_env__$private$handle)
}

# How many connections and WebSockets of a server have not ended.
connections_of <- function(server) {
  .Call(ffi_connections, listener_of(server))
}
