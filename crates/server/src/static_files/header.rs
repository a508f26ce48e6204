//! The response headers that an application sets for its static files.

use std::fmt;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};

/// A response header that an application sets for static files. The name is a token (RFC 9110,
/// 5.1), the value has no control characters (5.5), and the header does not affect the framing of
/// the message. Clones share the same memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Header {
    name: Bytes,
    value: Bytes,
}

/// The reason why a response header was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidHeader {
    /// Content-Length, Transfer-Encoding and Content-Range are refused because they depend on the
    /// individual response, so that the server has to set them.
    Framing,
    /// The header name is empty or contains a character that a token must not contain.
    Name,
    /// The header value contains CR, LF, NUL or another control character.
    Value,
}

impl Header {
    /// Validates and copies a response header that an application set. The spelling of the name is
    /// kept.
    ///
    /// # Errors
    /// Fails if the name or the value is invalid, or if the header affects the framing of the
    /// message. [`InvalidHeader`] tells the reason.
    pub fn new(name: &[u8], value: &[u8]) -> Result<Header, InvalidHeader> {
        let parsed = HeaderName::from_bytes(name).map_err(|_| InvalidHeader::Name)?;
        if [
            http::header::CONTENT_LENGTH,
            http::header::TRANSFER_ENCODING,
            http::header::CONTENT_RANGE,
        ]
        .contains(&parsed)
        {
            return Err(InvalidHeader::Framing);
        }
        HeaderValue::from_bytes(value).map_err(|_| InvalidHeader::Value)?;
        Ok(Header { name: Bytes::copy_from_slice(name), value: Bytes::copy_from_slice(value) })
    }

    /// Creates a response header that the server itself adds. `value` is not checked, so the caller
    /// must pass a valid value, for example a number or a date.
    pub(crate) fn own(name: &'static str, value: impl Into<Bytes>) -> Header {
        let value = value.into();
        debug_assert!(HeaderValue::from_bytes(&value).is_ok(), "{name}: {value:?}");
        Header { name: Bytes::from_static(name.as_bytes()), value }
    }

    /// Returns the header's name in its original spelling.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns the header's value.
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    /// Converts the response header to the types of the `http` crate, which has header names in
    /// lower case. The value is not copied.
    pub fn into_http(self) -> (HeaderName, HeaderValue) {
        let name = HeaderName::from_bytes(&self.name).expect("checked when the header was made");
        let value =
            HeaderValue::from_maybe_shared(self.value).expect("checked when the header was made");
        (name, value)
    }

    pub(crate) fn is(&self, lower_name: &str) -> bool {
        self.name.eq_ignore_ascii_case(lower_name.as_bytes())
    }
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name.escape_ascii(), self.value.escape_ascii())
    }
}

impl fmt::Display for InvalidHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InvalidHeader::Framing => {
                "Content-Length, Transfer-Encoding and Content-Range are written by the server"
            }
            InvalidHeader::Name => "a header's name must be a token (letters, digits, - and _)",
            InvalidHeader::Value => {
                "a header's value must not contain line breaks or control bytes"
            }
        })
    }
}

impl std::error::Error for InvalidHeader {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_split_or_reframe_a_response_is_refused() {
        let table: &[(&str, &str, Result<(), InvalidHeader>)] = &[
            ("Cache-Control", "max-age=60", Ok(())),
            ("X-Tab", "a\tb", Ok(())),
            ("X-Latin", "\u{e9}", Ok(())),
            ("X-Empty", "", Ok(())),
            ("", "v", Err(InvalidHeader::Name)),
            ("X Y", "v", Err(InvalidHeader::Name)),
            ("X:", "v", Err(InvalidHeader::Name)),
            ("X\r\nSet-Cookie", "v", Err(InvalidHeader::Name)),
            ("X", "a\r\nSet-Cookie: b", Err(InvalidHeader::Value)),
            ("X", "a\nb", Err(InvalidHeader::Value)),
            ("X", "a\0b", Err(InvalidHeader::Value)),
            ("X", "a\x7fb", Err(InvalidHeader::Value)),
            ("content-LENGTH", "5", Err(InvalidHeader::Framing)),
            ("Transfer-Encoding", "chunked", Err(InvalidHeader::Framing)),
            ("Content-Range", "bytes 0-1/2", Err(InvalidHeader::Framing)),
        ];
        for (name, value, expected) in table {
            let made = Header::new(name.as_bytes(), value.as_bytes()).map(|_| ());
            assert_eq!(made, *expected, "{name:?}: {value:?}");
        }
    }

    #[test]
    fn the_spelling_is_kept_and_the_map_form_is_lower_case() {
        let header = Header::new(b"X-Mixed-Case", b"Value").unwrap();
        assert_eq!(header.name(), b"X-Mixed-Case");
        let (name, value) = header.into_http();
        assert_eq!((name.as_str(), value.as_bytes()), ("x-mixed-case", &b"Value"[..]));
    }
}
