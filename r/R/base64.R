#' Encode bytes as base64
#'
#' The alphabet of RFC 4648, section 4, with padding and without line breaks.
#'
#' @param x A raw vector.
#' @return A string; `""` for no bytes.
#' @examples
#' rawToBase64(charToRaw("Hello, World!"))
#' @export
rawToBase64 <- function(x) {
  if (!is.raw(x)) {
    stop("`x` must be a raw vector, not ", class(x)[[1]], ".", call. = FALSE)
  }
  padding <- -length(x) %% 3L
  # Three bytes are two numbers of 12 bits, and each of these is two characters.
  triple <- matrix(as.integer(c(x, raw(padding))), nrow = 3)
  middle <- triple[2, ]
  pairs <- rbind(triple[1, ] * 16L + middle %/% 16L, middle %% 16L * 256L + triple[3, ])
  encoded <- as.vector(base64_pairs[, pairs + 1L])
  if (padding > 0) {
    encoded[seq(to = length(encoded), length.out = padding)] <- charToRaw("=")
  }
  rawToChar(encoded)
}

# The two characters of each number of 12 bits: column i is that of i - 1.
base64_pairs <- local({
  alphabet <- charToRaw("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  rbind(rep(alphabet, each = 64), rep(alphabet, 64))
})
