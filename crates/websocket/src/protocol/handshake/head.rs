//! The search for the end of a head.
//!
//! CVE-2023-43669: a library that parsed the head again at each read needed minutes for a head of
//! 20 MB. Here each byte is searched once, the head is parsed once when it is whole, and its size
//! is limited.

use std::fmt;

/// The maximum size of a head in bytes.
pub const HEAD_MAX: usize = 64 << 10;

/// The maximum number of header fields. Too many fields crashed another library (CVE-2024-37890).
pub const HEADERS_MAX: usize = 100;

/// The reason for which a head is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadHead {
    /// The head is longer than [`HEAD_MAX`].
    TooLong,
    /// The head has more than [`HEADERS_MAX`] fields.
    TooManyHeaders,
    /// The head is not HTTP.
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
    /// Returns the error for a failure of httparse.
    pub(super) fn of(error: httparse::Error) -> BadHead {
        match error {
            httparse::Error::TooManyHeaders => BadHead::TooManyHeaders,
            _ => BadHead::Malformed,
        }
    }
}

/// The search for the empty line that ends a head.
#[derive(Debug, Clone, Copy, Default)]
pub struct HeadReader {
    /// The number of bytes that were searched.
    searched: usize,
}

impl HeadReader {
    /// Returns the length of the head at the start of `bytes`, which has to hold everything
    /// received so far, or `None` if the head is incomplete. Searches only the new bytes and the
    /// three before them.
    ///
    /// # Errors
    /// [`BadHead::TooLong`] if there are more than [`HEAD_MAX`] bytes without an end.
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
