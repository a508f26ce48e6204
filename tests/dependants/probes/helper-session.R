# What a probe needs: an R beside this one that serves, with the same libraries, and requests to it.

in_background <- function(serve, ..., env = parent.frame()) {
  port <- httpuv::randomPort()
  process <- callr::r_bg(serve, list(port, ...), libpath = .libPaths(), stdout = "|", stderr = "2>&1")
  withr::defer(process$kill(), envir = env)
  until <- Sys.time() + 300
  repeat {
    connection <- try(suppressWarnings(socketConnection("127.0.0.1", port, open = "r+b", timeout = 5)), silent = TRUE)
    if (!inherits(connection, "try-error")) break
    if (!process$is_alive()) stop("it does not serve: ", process$read_all_output())
    if (Sys.time() > until) stop("it does not serve in time")
    Sys.sleep(0.05)
  }
  close(connection)
  list(url = sprintf("http://127.0.0.1:%d", port), port = port, process = process)
}

fetch <- function(url, ...) {
  answer <- curl::curl_fetch_memory(url, curl::new_handle(timeout = 60, accept_encoding = "identity", ...))
  answer$text <- rawToChar(answer$content[answer$content != 0])
  answer
}

header <- function(answer, name) {
  found <- curl::parse_headers_list(answer$headers)
  unlist(found[tolower(names(found)) == tolower(name)], use.names = FALSE)
}
