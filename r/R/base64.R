#' Encode bytes as base64
#'
#' Encodes bytes in the alphabet of RFC 4648, section 4, with padding and
#' without line breaks.
#'
#' @param x The bytes to encode, as a raw vector.
#' @return The base64 text as a string; `""` if `x` is empty.
#' @examples
#' rawToBase64(charToRaw("Hello, World!"))
#' @export
rawToBase64 <- function(x) {
  if (!is.raw(x)) {
    abort_argument("`x` must be a raw vector, not ", class(x)[[1]], ".")
  }
  .Call(ffi_base64, x)
}
