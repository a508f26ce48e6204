# Percent-encoding: RFC 3986, with the sets of characters of JavaScript's functions of the same names.

#' Encode and decode URIs
#'
#' `encodeURI()` is for whole URIs and leaves the characters that have a meaning in them, `; , / ? : @ & = + $`, as they
#' are; `encodeURIComponent()` is for a part of one, such as the value of a parameter, and encodes these as well.
#' Letters, digits and `- _ . ! ~ * ' ( )` are never encoded. Unlike JavaScript's, both encode `#`.
#'
#' `decodeURI()` leaves what `encodeURI()` would not have encoded; `decodeURIComponent()` decodes everything. Neither
#' makes a space of `+`. A `%` that two hexadecimal digits do not follow is kept, as are the two characters after it.
#'
#' @param value A character vector, or something that can be made one. It is taken as UTF-8, and `NA` stays `NA`.
#' @return A character vector without names: ASCII when encoded, marked as UTF-8 when decoded. That decoded bytes are
#'   valid UTF-8 is not checked; `%00` is an error.
#' @examples
#' encodeURI("https://example.org/a b?x=1&y=2")
#' encodeURIComponent("a/b & c")
#' decodeURIComponent("caf%C3%A9")
#' @export
encodeURI <- function(value) {
  .Call(ffi_uri_encode, as_strings(value), TRUE)
}

#' @rdname encodeURI
#' @export
encodeURIComponent <- function(value) {
  .Call(ffi_uri_encode, as_strings(value), FALSE)
}

#' @rdname encodeURI
#' @export
decodeURI <- function(value) {
  .Call(ffi_uri_decode, as_strings(value), TRUE)
}

#' @rdname encodeURI
#' @export
decodeURIComponent <- function(value) {
  .Call(ffi_uri_decode, as_strings(value), FALSE)
}

as_strings <- function(value) {
  if (is.null(value) || is.list(value) || is.function(value)) {
    abort_argument("`value` must be a character vector, not ", class(value)[[1]], ".")
  }
  # Without names and dimensions.
  value <- as.character(value)
  # Bytes that are nothing in their encoding stay what they are; enc2utf8() would spell them "<e9>".
  is_valid <- validEnc(value)
  if (all(is_valid)) {
    return(enc2utf8(value))
  }
  value[is_valid] <- enc2utf8(value[is_valid])
  value
}
