#' Find a free port
#'
#' Tries ports at random and returns the first one on which a server can listen.
#' Ports that browsers refuse to connect to are skipped. The ports are drawn
#' with [sample()], so [set.seed()] makes them reproducible.
#'
#' @param min,max The smallest and the largest port to choose from. The range is
#'   limited to 1 to 65535.
#' @param host The address on which the port must be free, as for
#'   [startServer()].
#' @param n The maximum number of random ports to try.
#' @return A free port, as an integer. If no free port is found, an error of
#'   class `httpuv_unavailable_port` is raised.
#' @examples
#' randomPort()
#' randomPort(8000, 9000, n = 5)
#' @export
randomPort <- function(min = 1024L, max = 49151L, host = "127.0.0.1", n = 20) {
  call <- sys.call()
  host <- literal_host(host)
  if (ipFamily(host) == -1L) {
    text <- paste0(
      "`host` must be an IP address of this machine, such as \"127.0.0.1\", not ", describe(host),
      "."
    )
    stop(error_unavailable_port(text, call))
  }
  ends <- c(check_count(min, "min"), check_count(max, "max"))
  if (any(is.finite(ends) & ends != trunc(ends))) {
    abort_argument(
      "`min` and `max` must be whole numbers, not ", describe(min), " and ", describe(max), "."
    )
  }
  ends <- as.integer(pmin(pmax(ends, 1), 65535))
  ports <- setdiff(seq.int(ends[[1]], ends[[2]]), unsafe_ports)
  count <- check_count(n, "n")
  if (count < 0) {
    abort_argument("`n` must not be negative.")
  }
  # sample(ports) would treat a single port as the end of a range.
  ports <- ports[sample.int(length(ports), pmin(count, length(ports)))]
  for (port in ports) {
    if (is_port_available(port, host)) {
      return(port)
    }
  }
  stop(error_unavailable_port("Cannot find an available port.", call))
}

# Returns whether a server can listen on a port of `host`, by listening for a moment.
is_port_available <- function(port, host = "127.0.0.1") {
  server <- tryCatch(startServer(host, port, list(), quiet = TRUE), error = function(error) NULL)
  if (is.null(server)) {
    return(FALSE)
  }
  server$stop()
  TRUE
}

# plumber handles the first of these classes.
error_unavailable_port <- function(message, call = NULL) {
  structure(
    class = c("httpuv_unavailable_port", "rookery_no_port", "rookery_error", "error", "condition"),
    list(message = message, call = call, reason = message)
  )
}

# The ports that browsers refuse to connect to, from the Fetch standard, section 2.9 "Port
# blocking".
unsafe_ports <- c(
  0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101,
  102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427,
  465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990,
  993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667,
  6668, 6669, 6679, 6697, 10080
)
