# The address to listen on, and the error messages if the server cannot listen on it.

# Returns list(host =, port =, socket =), and with HTTPS also `tls`. Either `socket` is the path of
# a Unix socket, or `host` and `port` are set.
serve_address <- function(host, port, tls = NULL) {
  if (!is.null(tls) && !identical(tls, "dev") && !inherits(tls, "rookery_tls")) {
    abort_argument("`tls` must be made by tls_config(), or be \"dev\".", class = "rookery_bad_tls")
  }
  if (is.numeric(host) && length(host) == 1) {
    abort_argument(
      "`host` must be one string, such as \"127.0.0.1\". Did you mean `port = ", format(host), "`?",
      class = "rookery_bad_address"
    )
  }
  if (!is.character(host) || length(host) != 1 || is.na(host) || !nzchar(host)) {
    abort_argument(
      "`host` must be one string: an IP address such as \"127.0.0.1\", or ",
      "\"unix:/path/of/a/socket\".",
      class = "rookery_bad_address"
    )
  }
  with_tls <- c("host", "port", "socket", if (!is.null(tls)) "tls")
  if (startsWith(host, "unix:")) {
    not_on_windows("A Unix socket", "give the IP address of this machine.", argument = "host")
    return(
      list(
        host = NULL, port = NULL, socket = socket_path(sub("^unix:", "", host)), tls = tls
      )[with_tls]
    )
  }
  host <- literal_host(host)
  if (ipFamily(host) == -1L) {
    abort_argument(
      "`host` must be \"localhost\" or an IP address of this machine, not \"", host,
      "\": \"127.0.0.1\" is for this machine only, ",
      "\"0.0.0.0\" and \"::\" are for all networks.",
      class = "rookery_bad_address"
    )
  }
  if (!is_port(port)) {
    abort_argument(
      "`port` must be one whole number from 0 to 65535; 0 lets the system choose.",
      class = "rookery_bad_address"
    )
  }
  list(host = host, port = as.integer(port), socket = NULL, tls = tls)[with_tls]
}

is_port <- function(port) {
  is.numeric(port) && length(port) == 1 && !is.na(port) && port == round(port) && port >= 0 &&
    port <= 65535
}

socket_path <- function(path) {
  path <- path.expand(path)
  dir <- dirname(path)
  if (!nzchar(path) || !dir.exists(dir)) {
    abort_argument(
      "The folder of the socket, `", dir, "`, does not exist.", argument = "host",
      class = "rookery_bad_address"
    )
  }
  file.path(normalizePath(dir, winslash = "/"), basename(path))
}

# Checks that a server can listen on the address, because the errors of frameworks that fail to listen
# say much less. Replaces port 0 by a free port.
probe <- function(address) {
  if (is_worker()) {
    # A worker listens on its supervisor's address. Frameworks do not accept port 0.
    if (is.null(address$socket)) address$port <- chosen_port(address)
    return(address)
  }
  host <- if (is.null(address$socket)) address$host else paste0("unix:", address$socket)
  checked <- strsplit(.Call(ffi_check_address, host, address$port %||% 0L), "\n", fixed = TRUE)[[1]]
  if (length(checked) > 1) {
    abort(
      paste(checked[-(1:2)], collapse = "\n"),
      if (checked[[1]] == "in use" && is.null(address$socket)) {
        "rookery_port_in_use"
      } else {
        "rookery_no_address"
      },
      reason = checked[[2]]
    )
  }
  if (is.null(address$socket)) address$port <- as.integer(checked)
  address
}

# Returns the URL of a server. `domain` is the public name of the host, or "".
url_of <- function(host, port, scheme = "http", domain = "") {
  .Call(ffi_server_url, c(host, scheme, domain), port)
}
