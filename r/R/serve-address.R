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
  classes <- c("rookery_bad_address", "rookery_bad_argument")
  host <- setting_value(host, "host", "`host`", classes)
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
  port <- as.integer(setting_value(port, "port", "`port`", classes))
  list(host = host, port = port, socket = NULL, tls = tls)[with_tls]
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
  checked <- strsplit(text_of("address", host, address$port %||% 0L), "\n", fixed = TRUE)[[1]]
  if (length(checked) > 1) {
    abort(paste(checked[-(1:2)], collapse = "\n"), checked[[1]], reason = checked[[2]])
  }
  if (is.null(address$socket)) address$port <- as.integer(checked)
  address
}

# Returns the URL of a server. `domain` is the public name of the host, or "".
url_of <- function(host, port, scheme = "http", domain = "") {
  text_of("url", host, port, scheme, domain)
}
