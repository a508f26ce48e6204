//! The search for the end of an HTTP head (the request or status line and the header fields).
//!
//! Each byte is searched once, the head is parsed once when it is complete, and its size is
//! limited. Another library parsed the head again after each read, and needed minutes for a head of
//! 20 MB (CVE-2023-43669).

use std::fmt;

/// The maximum size in bytes of the head of a handshake request or response.
pub const HEAD_MAX: usize = 64 << 10;

/// The maximum number of header fields in a handshake request or response. Too many fields crashed
/// another library (CVE-2024-37890).
pub const HEADERS_MAX: usize = 100;

/// The reason why the head of a handshake request or response is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadHead {
    /// The head is longer than [`HEAD_MAX`].
    TooLong,
    /// The head has more than [`HEADERS_MAX`] fields.
    TooManyHeaders,
    /// The head is not valid HTTP.
    Malformed,
}

impl fmt::Display for BadHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadHead::TooLong => "head of more than 64 KiB",
            BadHead::TooManyHeaders => "more than 100 header fields",
            BadHead::Malformed => "malformed head",
        })
    }
}

impl std::error::Error for BadHead {}

impl BadHead {
    /// Returns the reason for refusing a head that httparse, the HTTP parser, could not parse.
    pub(super) fn of(error: httparse::Error) -> BadHead {
        match error {
            httparse::Error::TooManyHeaders => BadHead::TooManyHeaders,
            _ => BadHead::Malformed,
        }
    }
}

/// A search for the empty line that ends an HTTP head, while the head arrives in parts.
#[derive(Debug, Clone, Copy, Default)]
pub struct HeadReader {
    /// The number of bytes of the head that have already been searched.
    searched: usize,
}

impl HeadReader {
    /// Returns the length of the head at the start of `bytes`, or `None` if the head is incomplete.
    /// `bytes` must be everything that was received so far. Each call searches only the bytes that
    /// are new since the previous call, and the three before them.
    ///
    /// # Errors
    /// [`BadHead::TooLong`] if the head does not end within [`HEAD_MAX`] bytes.
    pub fn find(&mut self, bytes: &[u8]) -> Result<Option<usize>, BadHead> {
        let end = bytes.len().min(HEAD_MAX);
        let from = self.searched.saturating_sub(3).min(end);
        let window = &bytes[from..end];
        if let Some(at) = window.windows(4).position(|four| four == b"\r\n\r\n") {
            return Ok(Some(from + at + 4));
        }
        self.searched = bytes.len();
        if bytes.len() >= HEAD_MAX { Err(BadHead::TooLong) } else { Ok(None) }
    }
}
