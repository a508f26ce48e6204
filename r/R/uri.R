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
  encode_bytes(value, uri_escapes, "[^A-Za-z0-9_.!~*'();,/?:@&=+$-]")
}

#' @rdname encodeURI
#' @export
encodeURIComponent <- function(value) {
  encode_bytes(value, component_escapes, "[^A-Za-z0-9_.!~*'()-]")
}

#' @rdname encodeURI
#' @export
decodeURI <- function(value) {
  decode_bytes(value, utf8ToInt(reserved_characters))
}

#' @rdname encodeURI
#' @export
decodeURIComponent <- function(value) {
  decode_bytes(value, integer(0))
}

reserved_characters <- ";,/?:@&=+$"
unreserved_characters <- "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.!~*'()"

# What becomes of each byte.
escape_table <- function(kept) {
  kept <- utf8ToInt(kept)
  table <- sprintf("%%%02X", 0:255)
  table[kept + 1L] <- strsplit(intToUtf8(kept), "")[[1]]
  table
}

uri_escapes <- escape_table(paste0(unreserved_characters, reserved_characters))
component_escapes <- escape_table(unreserved_characters)

# What each byte means as a hexadecimal digit.
hex_values <- local({
  values <- rep(NA_integer_, 256)
  values[utf8ToInt("0123456789") + 1L] <- 0:9
  values[utf8ToInt("abcdef") + 1L] <- 10:15
  values[utf8ToInt("ABCDEF") + 1L] <- 10:15
  values
})

as_strings <- function(value) {
  if (is.null(value) || is.list(value) || is.function(value)) {
    stop("`value` must be a character vector, not ", class(value)[[1]], ".", call. = FALSE)
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

encode_bytes <- function(value, table, unsafe) {
  value <- as_strings(value)
  for (i in which(grepl(unsafe, value, perl = TRUE, useBytes = TRUE) & !is.na(value))) {
    value[[i]] <- paste0(table[as.integer(charToRaw(value[[i]])) + 1L], collapse = "")
  }
  value
}

decode_bytes <- function(value, kept) {
  value <- as_strings(value)
  for (i in which(grepl("%", value, fixed = TRUE, useBytes = TRUE))) {
    value[[i]] <- decode_string(value[[i]], kept)
  }
  Encoding(value) <- "UTF-8"
  value
}

decode_string <- function(string, kept) {
  bytes <- charToRaw(string)
  at <- escape_starts(bytes)
  value <- 16L * hex_values[as.integer(bytes[at + 1L]) + 1L] + hex_values[as.integer(bytes[at + 2L]) + 1L]
  is_escape <- !is.na(value) & !(value %in% kept)
  at <- at[is_escape]
  if (length(at) == 0) {
    return(string)
  }
  value <- value[is_escape]
  if (any(value == 0L)) {
    stop("embedded nul in string", call. = FALSE)
  }
  bytes[at] <- as.raw(value)
  rawToChar(bytes[-c(at + 1L, at + 2L)])
}

# Where three bytes begin that may be an escape. They are passed over together whether they are one or not: what looks
# like an escape within a bad one is none.
escape_starts <- function(bytes) {
  at <- which(bytes == 0x25)
  at <- at[at <= length(bytes) - 2L]
  if (all(diff(at) > 2L)) {
    return(at)
  }
  is_start <- logical(length(at))
  end <- 0L
  for (i in seq_along(at)) {
    if (at[[i]] > end) {
      is_start[[i]] <- TRUE
      end <- at[[i]] + 2L
    }
  }
  at[is_start]
}
