# Percent-encoding (RFC 3986), with the character sets of the JavaScript functions of the same
# names.

#' Encode and decode URIs
#'
#' `encodeURI()` encodes a whole URI, and leaves the reserved characters
#' `; , / ? : @ & = + $` unchanged. `encodeURIComponent()` encodes a part of a
#' URI, such as the value of a parameter, including these characters. Letters,
#' digits and `- _ . ! ~ * ' ( )` are never encoded. Unlike in JavaScript, both
#' functions encode `#`.
#'
#' `decodeURI()` does not decode escapes of reserved characters;
#' `decodeURIComponent()` decodes all escapes. Neither converts `+` to a space.
#' If a `%` is not followed by two hexadecimal digits, it is kept together with
#' the next two characters.
#'
#' @param value The text to encode or decode: a character vector, or an object
#'   that can be converted to one. Text is encoded as UTF-8, and `NA` stays
#'   `NA`.
#' @return A character vector without names. Encoded text is ASCII. Decoded text
#'   is marked as UTF-8, even if its bytes are not valid UTF-8. Decoding `%00`
#'   is an error.
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

# Returns the text with the name `what`, which Rust makes from the other arguments
# (src/rust/src/text/for_r.rs). With `native`, it may be in any encoding, like a path.
text_of <- function(what, ..., native = FALSE) {
  .Call(ffi_text, what, as.character(c(...)), native)
}

as_strings <- function(value) {
  if (is.null(value) || is.list(value) || is.function(value)) {
    abort_argument("`value` must be a character vector, not ", class(value)[[1]], ".")
  }
  # Removes names and dimensions.
  value <- as.character(value)
  # Bytes that are invalid in their encoding are kept, because enc2utf8() would write them as
  # "<e9>".
  is_valid <- validEnc(value)
  if (all(is_valid)) {
    return(enc2utf8(value))
  }
  value[is_valid] <- enc2utf8(value[is_valid])
  value
}
