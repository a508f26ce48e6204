//! Received messages.

use std::ops::Deref;

/// The type of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// UTF-8 text.
    Text,
    /// Binary data.
    Binary,
}

/// A whole message, borrowed from its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    kind: Kind,
    bytes: &'a [u8],
}

/// A chunk of a message, as it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Chunk<'a> {
    /// The type of the whole message.
    pub kind: Kind,
    /// The bytes. Only the last chunk of a message may be empty. A chunk of text may begin and end
    /// within a character. A compressed message yields chunks of about 64 KiB, however well it was
    /// compressed.
    pub bytes: &'a [u8],
    /// True for the last chunk of a message.
    pub is_last: bool,
}

impl<'a> Message<'a> {
    /// Makes a message. The caller has checked that a text message, or the rest of one that was
    /// read in chunks, is UTF-8.
    pub(crate) fn new(kind: Kind, bytes: &'a [u8]) -> Message<'a> {
        debug_assert!(kind == Kind::Binary || std::str::from_utf8(bytes).is_ok());
        Message { kind, bytes }
    }

    /// Returns the type of the message.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the bytes of the message.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the text of a text message, and `None` for a binary message. The rest of a text
    /// message whose beginning was read in chunks is binary if it begins within a character.
    pub fn as_text(&self) -> Option<&'a str> {
        match self.kind {
            // SAFETY: the decoder checks every text message (`Violation::Utf8`), and a `Message` is
            // made only of its events. The rest of a message whose beginning was read in chunks is
            // checked again (`Inbound::message`).
            Kind::Text => Some(unsafe { std::str::from_utf8_unchecked(self.bytes) }),
            Kind::Binary => None,
        }
    }
}

impl Deref for Message<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_is_text() {
        let text = Message::new(Kind::Text, "héllo".as_bytes());
        assert_eq!(text.as_text(), Some("héllo"));
        let binary = Message::new(Kind::Binary, b"\xFF");
        assert_eq!((binary.as_text(), &binary[..]), (None, &b"\xFF"[..]));
    }
}
