//! The application's response to a request, as an exchange stores it.

use std::fmt;
use std::fs::File;
use std::sync::Arc;

use super::arena_slice::ArenaSlice;
use crate::budget::{Budget, Charge, Share};
use crate::payload::Lease;
use crate::stream_flow_control::StreamedBody;

/// The application's response to a request. It need not contain `Content-Length` or `Date`, which
/// the server adds.
#[derive(Debug, Default)]
pub struct Response {
    status: u16,
    headers: Vec<(ArenaSlice, ArenaSlice)>,
    body: ResponseBody,
    copied: Option<ArenaSlice>,
    is_failure: bool,
    is_server_error: bool,
    compression: Option<WebSocketCompression>,
}

/// The settings for compressing the messages of a WebSocket (RFC 7692). Compression is used if the
/// client supports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebSocketCompression {
    /// The level of WebSocket compression, from 1 (fastest) to 9 (smallest).
    pub level: u8,
    /// The minimum length in bytes at which a WebSocket message is compressed.
    pub threshold: usize,
    /// Whether client and server may reuse the data of earlier WebSocket messages to compress later
    /// ones (context takeover). This compresses better but needs more memory.
    pub keeps_window: bool,
}

/// The body of a response.
#[derive(Debug, Default)]
pub enum ResponseBody {
    /// No body, because the application has set none for the response.
    #[default]
    None,
    /// A response body that was copied into the exchange
    /// ([`Exchange::response_copy`](crate::Exchange::response_copy)).
    Copied,
    /// A response body in memory that the application has lent. The memory is returned after the
    /// response has been sent.
    Lent(Lease),
    /// A response body in memory of its own, which is freed after the response has been sent.
    Owned(OwnedBody),
    /// A response body that the server has dropped, because the memory budget has no room for it.
    Refused,
    /// A response body that consists of the first `len` bytes of a file.
    File {
        /// The file whose contents are the response body, open for reading.
        file: File,
        /// The length in bytes that the file had when it was opened.
        len: u64,
        /// The charge for the descriptor of the file, once the server has the response.
        charge: Option<Charge>,
    },
    /// A streamed response body, whose chunks are sent after the head.
    Stream(StreamedBody),
}

/// A response body that is the end of a vector.
pub struct OwnedBody {
    bytes: Vec<u8>,
    start: usize,
    charge: Option<Charge>,
}

impl OwnedBody {
    /// Makes a body from the last `len` bytes of a vector, without copying them.
    ///
    /// # Panics
    /// Panics if the vector has fewer bytes.
    pub fn from_end(bytes: Vec<u8>, len: usize) -> OwnedBody {
        let start = bytes.len().checked_sub(len).expect("the body is a part of the vector");
        OwnedBody { bytes, start, charge: None }
    }

    /// Counts the vector against the memory budget by `charge`.
    pub fn set_charge(&mut self, charge: Charge) {
        self.charge = Some(charge);
    }

    /// Separates the body from its charge to the memory budget.
    #[must_use]
    pub fn without_charge(self) -> (OwnedBody, Option<Charge>) {
        let OwnedBody { bytes, start, charge } = self;
        (OwnedBody { bytes, start, charge: None }, charge)
    }

    /// Returns the number of bytes that the body holds.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Returns the bytes of the body.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

impl AsRef<[u8]> for OwnedBody {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Debug for OwnedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedBody").field("len", &self.as_bytes().len()).finish_non_exhaustive()
    }
}

/// The reason why the server rejects a response header. Sending such an invalid header could allow
/// response splitting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderError {
    /// The name of the response header is empty or contains a byte that is not allowed in a token
    /// (RFC 9110, 5.1).
    Name,
    /// The value of the response header contains CR, LF, NUL or another control character (RFC
    /// 9110, 5.5).
    Value,
    /// The response has [`MAX_RESPONSE_HEADERS`] headers already.
    Count,
}

/// The maximum number of headers in a response. It is far more than clients accept, and less than
/// the 24,576 names that the server's table of headers ([`http::HeaderMap`]) can hold, to which the
/// server adds its own headers.
///
/// [`http::HeaderMap`]: https://docs.rs/http/latest/http/header/struct.HeaderMap.html
pub const MAX_RESPONSE_HEADERS: usize = 10_000;

impl Response {
    /// Returns the status code of the response. For an opening handshake, status 101 accepts the
    /// WebSocket.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns true if the response was [marked](Self::set_failure) as the result of an error in
    /// the application.
    pub fn is_failure(&self) -> bool {
        self.is_failure
    }

    /// Marks the response as the result of an error in the application, so that the server reports
    /// the error.
    pub fn set_failure(&mut self) {
        self.is_failure = true;
    }

    /// Returns true if the response was [marked](Self::set_server_error) as an error of the server
    /// itself.
    pub fn is_server_error(&self) -> bool {
        self.is_server_error
    }

    /// Marks the response as an error of the server itself, and not of the application. Its body
    /// must be the plain text of the error, which the server replaces by a page for clients that
    /// prefer another form.
    pub fn set_server_error(&mut self) {
        self.is_server_error = true;
    }

    /// Returns the compression settings for the messages of the WebSocket that this response
    /// accepts, or `None` if the messages are not compressed.
    pub fn compression(&self) -> Option<WebSocketCompression> {
        self.compression
    }

    /// Enables compression for the messages of the WebSocket that this response accepts.
    pub fn set_compression(&mut self, compression: WebSocketCompression) {
        self.compression = Some(compression);
    }

    /// Returns the body of the response.
    pub fn body(&self) -> &ResponseBody {
        &self.body
    }

    /// Returns the body of the response, to change it.
    pub fn body_mut(&mut self) -> &mut ResponseBody {
        &mut self.body
    }

    /// Removes and returns the body of the response.
    pub fn take_body(&mut self) -> ResponseBody {
        std::mem::take(&mut self.body)
    }

    /// Sets the body of the response to one that is not copied into the exchange, such as a file or
    /// a stream.
    pub fn set_body(&mut self, body: ResponseBody) {
        self.copied = None;
        self.body = body;
    }

    /// Charges the descriptor of the response body, if it is a file, until the file is closed.
    pub fn charge_file(&mut self, budget: &Arc<Budget>) {
        if let ResponseBody::File { charge, .. } = &mut self.body {
            charge.get_or_insert_with(|| Charge::new(budget, Share::Descriptors)).set(1);
        }
    }

    pub(crate) fn set_status(&mut self, status: u16) {
        self.status = status;
    }

    /// Returns true if no header can be added to the response.
    pub(crate) fn has_all_headers(&self) -> bool {
        self.headers.len() >= MAX_RESPONSE_HEADERS
    }

    pub(crate) fn push_header(&mut self, name: ArenaSlice, value: ArenaSlice) {
        self.headers.push((name, value));
    }

    pub(crate) fn set_copied(&mut self, body: ArenaSlice) {
        self.copied = Some(body);
        self.body = ResponseBody::Copied;
    }

    pub(crate) fn copied(&self) -> Option<ArenaSlice> {
        self.copied
    }

    pub(crate) fn headers(&self) -> &[(ArenaSlice, ArenaSlice)] {
        &self.headers
    }

    /// Returns the number of bytes of memory that the table of response headers occupies.
    pub(crate) fn capacity(&self) -> usize {
        self.headers.capacity() * size_of::<(ArenaSlice, ArenaSlice)>()
    }

    pub(crate) fn reset(&mut self) {
        self.status = 0;
        self.headers.clear();
        self.headers.shrink_to(KEPT_HEADERS);
        self.body = ResponseBody::None;
        self.copied = None;
        self.is_failure = false;
        self.is_server_error = false;
        self.compression = None;
    }
}

/// Checks whether a header is allowed in a response.
pub(crate) fn check_header(name: &[u8], value: &[u8]) -> Result<(), HeaderError> {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    if name.is_empty() || !name.iter().all(is_token) {
        return Err(HeaderError::Name);
    }
    // Tabs and bytes above 0x7F are allowed in field values (obs-text). Other bytes below 0x20 and
    // DEL are not.
    let is_field = |byte: &u8| (*byte >= 0x20 && *byte != 0x7F) || *byte == b'\t';
    if value.iter().all(is_field) { Ok(()) } else { Err(HeaderError::Value) }
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HeaderError::Name => "a header's name must be a token (letters, digits, - and _)",
            HeaderError::Value => "a header's value must not contain line breaks or control bytes",
            HeaderError::Count => "a response must not have more than 10,000 headers",
        })
    }
}

impl std::error::Error for HeaderError {}

/// The maximum capacity, in headers, that the table of response headers keeps from one request to
/// the next. A table of this capacity occupies 2 KiB.
const KEPT_HEADERS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_headers_that_would_split_a_response() {
        let table: &[(&str, &str, Result<(), HeaderError>)] = &[
            ("Content-Type", "text/plain", Ok(())),
            ("X-Tab", "a\tb", Ok(())),
            ("X-Latin", "\u{e9}", Ok(())),
            ("X-Empty", "", Ok(())),
            ("", "v", Err(HeaderError::Name)),
            ("X Y", "v", Err(HeaderError::Name)),
            ("X:", "v", Err(HeaderError::Name)),
            ("X\r\nSet-Cookie", "v", Err(HeaderError::Name)),
            ("X", "a\r\nSet-Cookie: b", Err(HeaderError::Value)),
            ("X", "a\nb", Err(HeaderError::Value)),
            ("X", "a\0b", Err(HeaderError::Value)),
        ];
        for (name, value, expected) in table {
            assert_eq!(
                check_header(name.as_bytes(), value.as_bytes()),
                *expected,
                "{name:?} {value:?}"
            );
        }
    }
}
