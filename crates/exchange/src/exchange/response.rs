//! The reply of an exchange, as the application gave it.

use std::fmt;
use std::fs::File;

use super::arena_slice::ArenaSlice;
use crate::payload::Lease;
use crate::streamed_body::StreamedBody;

/// What the application answers. Framing (Content-Length, Date, HEAD, 204, 304) is the server's business.
#[derive(Debug, Default)]
pub struct Response {
    status: u16,
    headers: Vec<(ArenaSlice, ArenaSlice)>,
    body: ResponseBody,
    copied: Option<ArenaSlice>,
    is_failure: bool,
    compression: Option<WebSocketCompression>,
}

/// How the messages of a WebSocket are to be compressed (RFC 7692), if its client takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebSocketCompression {
    /// 1 (fastest) to 9 (smallest).
    pub level: u8,
    /// Bytes; a shorter message is sent as it is.
    pub threshold: usize,
    /// Whether messages may refer back to earlier ones, either way.
    pub keeps_window: bool,
}

/// The body of a reply.
#[derive(Debug, Default)]
pub enum ResponseBody {
    /// None given.
    #[default]
    None,
    /// In the exchange: see [`Exchange::response_copy`](crate::Exchange::reply_copied).
    Copied,
    /// Memory of the application, given back when sent.
    Lent(Lease),
    /// A file to stream, `len` bytes from its start.
    File {
        /// Open for reading.
        file: File,
        /// Its length when it was opened.
        len: u64,
    },
    /// Pieces that come after the reply.
    Stream(StreamedBody),
}

/// Why a header of a reply was refused: it would have split the response or be no header at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderError {
    /// The name is empty or has a byte that is no token character (RFC 9110, 5.1).
    Name,
    /// The value has CR, LF, NUL or another control byte (RFC 9110, 5.5).
    Value,
}

impl Response {
    /// The status code; 101 accepts a WebSocket.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Whether the reply stands for a failure of the application, see [`set_failure`](Self::set_failure).
    pub fn is_failure(&self) -> bool {
        self.is_failure
    }

    /// Says that the application failed: the server reports it to the request's hook.
    pub fn set_failure(&mut self) {
        self.is_failure = true;
    }

    /// How the messages of the WebSocket that it accepts are compressed; none: not at all.
    pub fn compression(&self) -> Option<WebSocketCompression> {
        self.compression
    }

    /// Has them compressed.
    pub fn set_compression(&mut self, compression: WebSocketCompression) {
        self.compression = Some(compression);
    }

    /// The body.
    pub fn body(&self) -> &ResponseBody {
        &self.body
    }

    /// Takes the body out.
    pub fn take_body(&mut self) -> ResponseBody {
        std::mem::take(&mut self.body)
    }

    /// Sets a body that is not copied.
    pub fn set_body(&mut self, body: ResponseBody) {
        self.copied = None;
        self.body = body;
    }

    pub(crate) fn set_status(&mut self, status: u16) {
        self.status = status;
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

    /// Bytes of its table.
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
        self.compression = None;
    }
}

/// Whether a header may stand in a response.
pub(crate) fn check_header(name: &[u8], value: &[u8]) -> Result<(), HeaderError> {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    if name.is_empty() || !name.iter().all(is_token) {
        return Err(HeaderError::Name);
    }
    // Tab and bytes past 0x7F are field content (obs-text); the rest below 0x20 and DEL are not.
    let is_field = |byte: &u8| (*byte >= 0x20 && *byte != 0x7F) || *byte == b'\t';
    if value.iter().all(is_field) { Ok(()) } else { Err(HeaderError::Value) }
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HeaderError::Name => "a header's name must be a token (letters, digits, - and _)",
            HeaderError::Value => "a header's value must not contain line breaks or control bytes",
        })
    }
}

impl std::error::Error for HeaderError {}

/// Replies of applications have a handful of lines; 64 are kept (2 KiB).
const KEPT_HEADERS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_split_a_response_is_refused() {
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
