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

# Listens on the address for a moment, because the errors of frameworks that fail to listen say much
# less. Replaces port 0 by a free port.
probe <- function(address) {
  if (is_worker()) {
    # A worker listens on its supervisor's address. Frameworks do not accept port 0.
    if (is.null(address$socket)) address$port <- chosen_port(address)
    return(address)
  }
  # Without HTTPS, because a listener with ACME would order a certificate, and this one is closed at
  # once.
  tls <- .globals$tls
  .globals$tls <- NULL
  on.exit(.globals$tls <- tls)
  # The screen of an outer serve() would say that the app is served, which is too early.
  on_listen <- .globals$on_listen
  .globals$on_listen <- NULL
  on.exit(.globals$on_listen <- on_listen, add = TRUE)
  server <- tryCatch(
    if (is.null(address$socket)) {
      startServer(address$host, address$port, list(), quiet = TRUE)
    } else {
      startPipeServer(address$socket, NULL, list(), quiet = TRUE)
    },
    rookery_no_server = function(error) abort_address(address, error$reason)
  )
  if (is.null(address$socket) && address$port == 0) {
    address$port <- as.integer(server$getPort())
  }
  stopServer(server)
  address
}

abort_address <- function(address, reason) {
  if (!is.null(address$socket)) {
    abort(
      paste0("Cannot listen on the socket `", address$socket, "`: ", reason, "."),
      "rookery_no_address", reason = reason
    )
  }
  holder <- if (address$port > 0) port_holder(address$port)
  if (grepl("in use", reason, fixed = TRUE)) {
    by <- if (is.null(holder)) {
      paste0("by a process that this user cannot see; ", port_question(address$port))
    } else {
      paste0("by ", holder)
    }
    abort(
      paste0(
        "Port ", address$port, " of ", address$host, " is in use, ", by,
        ".\nChoose another one, with `port = ",
        next_port(address$port), "` (`--port ", next_port(address$port),
        "`), or let the system choose: `port = 0`."
      ),
      "rookery_port_in_use",
      reason = reason
    )
  }
  hint <- if (grepl("denied", reason)) {
    "\nOn most systems, ports below 1024 need administrator rights: choose a higher one."
  } else if (grepl("not available|assign", reason)) {
    paste0(
      "\nNo network interface of this machine has the address ", address$host,
      "; use \"0.0.0.0\" for all interfaces."
    )
  }
  abort(
    paste0("Cannot listen on ", address$host, " port ", address$port, ": ", reason, ".", hint),
    "rookery_no_address",
    reason = reason
  )
}

next_port <- function(port) {
  if (port < 65535) port + 1L else 8000L
}

port_question <- function(port) {
  if (Sys.info()[["sysname"]] == "Windows") {
    paste0("`netstat -ano | findstr :", port, "` may show it")
  } else if (Sys.info()[["sysname"]] == "Darwin") {
    paste0("`sudo lsof -nP -iTCP:", port, " -sTCP:LISTEN` may show it")
  } else {
    paste0("`sudo ss -ltnp 'sport = :", port, "'` may show it")
  }
}

# Returns "R (process 1234: command line, in its folder)" for the process that listens on a port, or
# NULL. It is found in /proc, and therefore only on Linux and only if this user may see its
# descriptors.
port_holder <- function(port) {
  inodes <- listening_inodes(port)
  if (length(inodes) == 0) {
    return(NULL)
  }
  sockets <- paste0("socket:[", inodes, "]")
  for (pid in list.files("/proc", "^[0-9]+$")) {
    links <- suppressWarnings(Sys.readlink(
      list.files(file.path("/proc", pid, "fd"), full.names = TRUE)
    ))
    if (any(links %in% sockets)) {
      return(describe_process(pid))
    }
  }
  NULL
}

listening_inodes <- function(port) {
  tables <- Filter(file.exists, c("/proc/net/tcp", "/proc/net/tcp6"))
  rows <- unlist(lapply(tables, function(table) readLines(table, warn = FALSE)[-1]))
  fields <- strsplit(trimws(rows), "[[:space:]]+")
  local <- sprintf(":%04X", as.integer(port))
  # State 0A is LISTEN; the tenth field is the inode.
  is_it <- vapply(
    fields, function(row) length(row) > 9 && endsWith(row[[2]], local) && row[[4]] == "0A",
    logical(1)
  )
  vapply(fields[is_it], function(row) row[[10]], character(1))
}

describe_process <- function(pid) {
  name <- tryCatch(
    readLines(file.path("/proc", pid, "comm"), warn = FALSE), error = function(error) "a process"
  )
  bytes <- tryCatch(
    readBin(file.path("/proc", pid, "cmdline"), "raw", 4096), error = function(error) raw()
  )
  bytes[bytes == as.raw(0)] <- charToRaw(" ")
  command <- trimws(rawToChar(bytes))
  if (nchar(command, "bytes") > 120) {
    command <- paste0(substr(command, 1, 117), "...")
  }
  whose <- if (pid == as.character(Sys.getpid())) "this R session" else name[[1]]
  # The command line of an R process does not always show what it serves, so its folder is added.
  folder <- Sys.readlink(file.path("/proc", pid, "cwd"))
  about <- c(
    if (nzchar(command)) paste0(": ", command), if (nzchar(folder)) paste0(", in ", folder)
  )
  paste0(whose, " (process ", pid, paste(about, collapse = ""), ")")
}

url_of <- function(host, port, scheme = "http") {
  if (host == "0.0.0.0") {
    host <- "127.0.0.1"
  }
  if (host == "::") {
    host <- "::1"
  }
  paste0(scheme, "://", if (ipFamily(host) == 6L) paste0("[", host, "]") else host, ":", port)
}
