//! Messages, as they are read.

use std::ops::Deref;

/// Text or binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// UTF-8.
    Text,
    /// Any bytes.
    Binary,
}

/// A whole message, borrowed from its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    kind: Kind,
    bytes: &'a [u8],
}

/// A chunk of a message, as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Chunk<'a> {
    /// Of the whole message.
    pub kind: Kind,
    /// Not empty, but for a last chunk. A chunk of text may begin and end within a character. A compressed message comes in
    /// chunks of about 64 KiB, however well it was compressed.
    pub bytes: &'a [u8],
    /// Whether it ends the message.
    pub is_last: bool,
}

impl<'a> Message<'a> {
    /// A rest of a text message, of which chunks were shown, is text only where it is UTF-8 by itself. Any other text the
    /// caller has checked.
    pub(crate) fn new(kind: Kind, bytes: &'a [u8]) -> Message<'a> {
        debug_assert!(kind == Kind::Binary || std::str::from_utf8(bytes).is_ok());
        Message { kind, bytes }
    }

    /// Text or binary.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The text, if it is text, which was checked as it came. The rest of a text whose beginning was
    /// read in chunks is binary if it begins within a character.
    pub fn as_text(&self) -> Option<&'a str> {
        match self.kind {
            // SAFETY: the decoder checks every text message (`Violation::Utf8`), and a `Message` is made of its events only;
            // what is left of one after its chunks were read is checked anew (`Inbound::message`).
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
