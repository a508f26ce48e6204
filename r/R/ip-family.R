#' Tell IPv4 from IPv6 addresses
#'
#' @param ip A literal IP address, as a string. An IPv6 address may have a zone:
#'   `"fe80::1%eth0"`.
#' @return `4L` for an IPv4 address, `6L` for an IPv6 address, and `-1L` if `ip`
#'   is not an IP address, for example a host name.
#' @examples
#' ipFamily("127.0.0.1")
#' ipFamily("::1")
#' ipFamily("localhost")
#' @export
ipFamily <- function(ip) {
  if (!is.character(ip) || length(ip) != 1 || is.na(ip)) {
    abort_argument("`ip` must be one string.")
  }
  .Call(ffi_ip_family, ip)
}
