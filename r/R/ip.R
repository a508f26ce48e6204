#' Tell IPv4 from IPv6 addresses
#'
#' @param ip A literal address, as one string. An IPv6 address may have a zone: `"fe80::1%eth0"`.
#' @return `4L`, `6L`, or `-1L` for what is no address, such as a host name.
#' @examples
#' ipFamily("127.0.0.1")
#' ipFamily("::1")
#' ipFamily("localhost")
#' @export
ipFamily <- function(ip) {
  if (!is.character(ip) || length(ip) != 1 || is.na(ip)) {
    stop("`ip` must be one string.", call. = FALSE)
  }
  if (grepl(ipv4_pattern, ip, perl = TRUE, useBytes = TRUE)) {
    return(4L)
  }
  address <- sub("%.*", "", ip, useBytes = TRUE)
  if (grepl("\\A[0-9A-Fa-f:.]+\\z", address, perl = TRUE, useBytes = TRUE) && is_ipv6(address)) 6L else -1L
}

# No leading zeros: some read 010 as eight.
ipv4_pattern <- local({
  number <- "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
  paste0("\\A", number, "(\\.", number, "){3}\\z")
})

# RFC 4291, section 2.2: eight groups of 16 bits, of which "::" may stand for one or more that are zero, and the last
# two of which may be written as an IPv4 address.
is_ipv6 <- function(ip) {
  last <- sub(".*:", "", ip)
  if (grepl(".", last, fixed = TRUE)) {
    if (!grepl(ipv4_pattern, last, perl = TRUE)) {
      return(FALSE)
    }
    ip <- paste0(substr(ip, 1, nchar(ip) - nchar(last)), "0:0")
  }
  halves <- strsplit(paste0(ip, " "), "::", fixed = TRUE)[[1]]
  groups <- lapply(sub(" $", "", halves), ipv6_groups)
  counts <- lengths(groups)
  is_valid <- all(grepl("\\A[0-9A-Fa-f]{1,4}\\z", unlist(groups), perl = TRUE))
  is_valid && (if (length(groups) == 2) sum(counts) <= 7 else length(groups) == 1 && counts == 8)
}

# The groups between colons; "" for each that is missing.
ipv6_groups <- function(half) {
  if (half == "") character(0) else sub(" $", "", strsplit(paste0(half, " "), ":", fixed = TRUE)[[1]])
}
