//! The end of a head, found once.
//!
//! CVE-2023-43669: a library that parsed the head anew at each read spent minutes on 20 MB of it. Here each byte is looked
//! at once for the end, the head is parsed once when it is whole, and it has a size.

use std::fmt;

/// Bytes of a head.
pub const HEAD_MAX: usize = 64 << 10;

/// Header fields of a head (CVE-2024-37890: too many of them crashed a peer's library).
pub const HEADERS_MAX: usize = 100;

/// Why a head is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadHead {
    /// Longer than [`HEAD_MAX`].
    TooLong,
    /// More than [`HEADERS_MAX`] fields.
    TooManyHeaders,
    /// Not HTTP.
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
    /// Returns what httparse finds wrong with a head.
    pub(super) fn of(error: httparse::Error) -> BadHead {
        match error {
            httparse::Error::TooManyHeaders => BadHead::TooManyHeaders,
            _ => BadHead::Malformed,
        }
    }
}

/// Looks for the empty line that ends a head.
#[derive(Debug, Clone, Copy, Default)]
pub struct HeadReader {
    /// Bytes already searched.
    searched: usize,
}

impl HeadReader {
    /// The length of the head at the start of `bytes`, which holds all that was received so far; nothing if the head is not
    /// whole. Looks only at what is new and the three bytes before it.
    ///
    /// # Errors
    /// When there are more than [`HEAD_MAX`] bytes and no end.
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
