# The number of a WebSocket's connection, which its handle keeps out of R's sight.
handle_id <- function(handle) {
  .Call(ffi_ws_id, handle)
}
