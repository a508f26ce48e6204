# Graceful shutdown. It has to be complete within 10 s, after which `docker stop` kills the process.
# The times are seconds from the signal. At `queued`, requests that R has not begun get status 503.
# At `running`, a running handler is interrupted, and requests that wait for a promise get status
# 503. Sending these responses may take `closing`, and the rest another second.
drain_seconds <- list(queued = 7, running = 9, closing = 0.5)

# Runs `body` so that Ctrl-C and SIGTERM shut it down gracefully. Returns its value, or NULL if it
# was shut down.
with_graceful_stop <- function(body) {
  if (identical(.globals$serving, Sys.getpid())) {
    # If the engine is rookery itself, the outer call ends both.
    return(body)
  }
  .Call(ffi_signals_watch, drain_seconds$running)
  # The process id, so that a forked child that serves handles its own signals.
  .globals$serving <- Sys.getpid()
  on.exit({
    .globals$serving <- NULL
    .Call(ffi_signals_unwatch)
    .Call(ffi_flush_end)
  })
  signal <- NULL
  value <- withRestarts(
    withCallingHandlers(
      body,
      # An interrupt without a signal, as by RStudio, or after the time limit.
      interrupt = function(interrupt) stop_gracefully()
    ),
    rookery_stop = function() {
      signal <<- .Call(ffi_signals_seen)
      NULL
    }
  )
  if (interactive() && identical(signal, 15L)) {
    # The signal was meant to end the process and not only the server.
    quit(save = "no", status = 0)
  }
  value
}

# Called by service() between two events after a signal, if the app has stopped all servers, and for
# records of the access log.
handle_signals <- function(is_asked, is_reload) {
  log_pump()
  if (is_reload) {
    reload_all_tls()
  }
  if (is_asked) {
    stop_gracefully()
  }
}

# Shuts down what with_graceful_stop() runs. Does not return.
stop_gracefully <- function() {
  if (!isTRUE(.globals$is_stopping)) {
    .globals$is_stopping <- TRUE
    on.exit(.globals$is_stopping <- FALSE)
    if (.Call(ffi_signals_seen) == 0L && length(listServers()) == 0 && !is_worker()) {
      # The app has stopped all servers, or R's own handler interrupted R, as in Sys.sleep(). After a
      # signal that signals.c handled, signals.c prints this line. The supervisor
      # of a worker logs why it stops the worker.
      is_early <- is.function(.globals$on_listen)
      message(
        "Stopping: ",
        if (is_early) "nothing is being served yet." else "the app has stopped all servers."
      )
    }
    drain_servers()
  }
  # If R was interrupted while it drained, the time is up, and the servers are closed at once.
  # Interrupts are suspended; closing may take a second, see ffi_signals_closing().
  suspendInterrupts(close_servers())
  invokeRestart("rookery_stop")
}

# Stops accepting, closes WebSockets with 1001, and serves until all requests are answered or the
# time is up.
drain_servers <- function() {
  admin_drains()
  waiting <- 0
  for (server in listServers()) {
    .Call(ffi_drain, listener_of(server))
    waiting <- waiting + connections_of(server)
  }
  # The supervisor of a worker has said how long the connections may take.
  if (waiting > 0 && !is_worker()) {
    what <- if (waiting == 1) " connection is" else " connections are"
    message(
      "Stopping: ", waiting, what, " being finished. A second signal stops the server at once."
    )
  }
  # New requests get less time than those that R has begun.
  serve_rest(function() .Call(ffi_signals_left) > drain_seconds$running - drain_seconds$queued)
  refuse_rest(is_held = FALSE)
  serve_rest(function() .Call(ffi_signals_left) > 0)
}

# Responds to the remaining requests with 503, and stops the servers.
close_servers <- function() {
  .Call(ffi_signals_closing)
  refuse_rest(is_held = TRUE)
  until <- proc.time()[["elapsed"]] + drain_seconds$closing
  serve_rest(function() proc.time()[["elapsed"]] < until)
  stopAllServers()
  # Runs the closing callbacks of WebSockets.
  for (i in 1:10) {
    service(NA)
  }
}

# Serves while time remains and connections are open.
serve_rest <- function(has_time) {
  while (has_time() && sum(vapply(listServers(), connections_of, numeric(1))) > 0) {
    service(20)
  }
}

# Makes further requests that reach R get status 503; with `is_held` also those that wait for a
# promise.
refuse_rest <- function(is_held) {
  for (server in listServers()) {
    .Call(ffi_refuse, listener_of(server), is_held)
  }
}

listener_of <- function(server) {
  as.integer(server$.__enclos_env__$private$handle)
}

# Returns the number of open connections and WebSockets of a server.
connections_of <- function(server) {
  .Call(ffi_connections, listener_of(server))
}
