//! Messages and chunks of messages that were received from a WebSocket's peer.

use std::ops::Deref;

/// The type of a WebSocket message: text or binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A text message, in UTF-8.
    Text,
    /// A binary message.
    Binary,
}

/// A whole received message. It is borrowed from its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    kind: Kind,
    bytes: &'a [u8],
}

/// A chunk of a received message: the part that had arrived when it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Chunk<'a> {
    /// The type of the message that the chunk belongs to.
    pub kind: Kind,
    /// The bytes of the chunk. Only the last chunk of a message may be empty. A chunk of a text
    /// message may begin and end within a character. A chunk of a compressed message has at most
    /// about 64 KiB, even if the message was compressed very well.
    pub bytes: &'a [u8],
    /// True if this is the last chunk of its message.
    pub is_last: bool,
}

impl<'a> Message<'a> {
    /// Makes a message. If `kind` is text, the caller must have checked that `bytes` is UTF-8.
    pub(crate) fn new(kind: Kind, bytes: &'a [u8]) -> Message<'a> {
        debug_assert!(kind == Kind::Binary || std::str::from_utf8(bytes).is_ok());
        Message { kind, bytes }
    }

    /// Returns the type of the message: text or binary.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the bytes of the message.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the text of a text message, or `None` for a binary message. If the beginning of a
    /// text message was read in chunks and the rest begins within a character, the rest counts as
    /// binary.
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

/// A whole message that owns its content, for code that keeps messages or passes them on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum OwnedMessage {
    /// A text message.
    Text(String),
    /// A binary message.
    Binary(Vec<u8>),
}

/// Copies a received message.
impl From<Message<'_>> for OwnedMessage {
    fn from(message: Message<'_>) -> OwnedMessage {
        match message.as_text() {
            Some(text) => OwnedMessage::Text(text.to_owned()),
            None => OwnedMessage::Binary(message.bytes.to_vec()),
        }
    }
}

impl From<String> for OwnedMessage {
    fn from(text: String) -> OwnedMessage {
        OwnedMessage::Text(text)
    }
}

impl From<&str> for OwnedMessage {
    fn from(text: &str) -> OwnedMessage {
        OwnedMessage::Text(text.to_owned())
    }
}

impl From<Vec<u8>> for OwnedMessage {
    fn from(bytes: Vec<u8>) -> OwnedMessage {
        OwnedMessage::Binary(bytes)
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
