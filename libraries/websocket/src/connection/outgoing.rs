//! WebSocket messages to be sent, and their encoding.

use std::sync::Arc;

use crate::connection::message::{Kind, Message, OwnedMessage};
use crate::protocol::deflate::{Agreed, DeflateConfig, Deflater, Fin};
use crate::protocol::{OpCode, Role, encode_frame, encode_message};

/// A WebSocket message to send: a text, binary data, a message that was received, or a message that
/// is already encoded.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Outgoing<'a> {
    /// A text message.
    Text(&'a str),
    /// A binary message.
    Binary(&'a [u8]),
    /// A message that was encoded before, for instance in order to send it on many connections.
    Prepared(&'a Prepared),
    /// A message that was received from a connection.
    Message(Message<'a>),
}

impl<'a> From<&'a str> for Outgoing<'a> {
    fn from(text: &'a str) -> Outgoing<'a> {
        Outgoing::Text(text)
    }
}

impl<'a> From<&'a [u8]> for Outgoing<'a> {
    fn from(bytes: &'a [u8]) -> Outgoing<'a> {
        Outgoing::Binary(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Outgoing<'a> {
    fn from(bytes: &'a [u8; N]) -> Outgoing<'a> {
        Outgoing::Binary(bytes)
    }
}

impl<'a> From<&'a Prepared> for Outgoing<'a> {
    fn from(prepared: &'a Prepared) -> Outgoing<'a> {
        Outgoing::Prepared(prepared)
    }
}

impl<'a> From<&'a OwnedMessage> for Outgoing<'a> {
    fn from(message: &'a OwnedMessage) -> Outgoing<'a> {
        match message {
            OwnedMessage::Text(text) => Outgoing::Text(text),
            OwnedMessage::Binary(bytes) => Outgoing::Binary(bytes),
        }
    }
}

impl<'a> From<Message<'a>> for Outgoing<'a> {
    fn from(message: Message<'a>) -> Outgoing<'a> {
        Outgoing::Message(message)
    }
}

/// The parts of an [`Outgoing`] message that are needed to encode its frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: Kind,
    pub(crate) payload: &'a [u8],
    pub(crate) prepared: Option<&'a Prepared>,
}

impl<'a> Outgoing<'a> {
    #[inline]
    pub(crate) fn frame(&self) -> Frame<'a> {
        let (kind, payload, prepared) = match *self {
            Outgoing::Text(text) => (Kind::Text, text.as_bytes(), None),
            Outgoing::Binary(bytes) => (Kind::Binary, bytes, None),
            Outgoing::Prepared(prepared) => {
                (prepared.inner.kind, prepared.payload(), Some(prepared))
            }
            Outgoing::Message(message) => (message.kind(), message.as_bytes(), None),
        };
        Frame { kind, payload, prepared }
    }
}

/// A WebSocket message that is encoded once and sent on many connections. Cloning it is cheap.
///
/// A server sends the encoded frame unchanged. A client has to mask each frame with a new key, so
/// it encodes the message again for each connection.
#[derive(Debug, Clone)]
pub struct Prepared {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    kind: Kind,
    /// The encoded frame of the message without compression.
    plain: Box<[u8]>,
    /// The offset in `plain` at which the message begins, after the frame's header.
    payload: usize,
    /// The encoded frame of the compressed message, if compression was requested and the message is
    /// large enough.
    compressed: Option<Box<[u8]>>,
}

impl Prepared {
    /// Encodes a message without compression.
    pub fn new<'a>(message: impl Into<Outgoing<'a>>) -> Prepared {
        Prepared::encode(message.into(), None)
    }

    /// Encodes a message with and without compression. Connections whose compression uses the full
    /// window and no context takeover send the compressed frame. All other connections send the
    /// uncompressed frame.
    pub fn compressed<'a>(message: impl Into<Outgoing<'a>>, config: &DeflateConfig) -> Prepared {
        Prepared::encode(message.into(), Some(config))
    }

    fn encode(message: Outgoing<'_>, config: Option<&DeflateConfig>) -> Prepared {
        let Frame { kind, payload, .. } = message.frame();
        let mut plain = Vec::new();
        encode_frame(&mut plain, kind.opcode(), true, None, payload);
        let deflater =
            config.and_then(|config| Deflater::new(&Agreed::PREPARED, Role::Server, config));
        let compressed = deflater
            .filter(|deflater| deflater.is_worth_compressing(payload.len()))
            .map(|mut deflater| {
                let mut frame = Vec::new();
                encode_message(
                    &mut frame,
                    kind.opcode(),
                    Fin::Last,
                    None,
                    payload,
                    Some(&mut deflater),
                );
                frame.into_boxed_slice()
            });
        let start = plain.len() - payload.len();
        let inner = Inner { kind, plain: plain.into_boxed_slice(), payload: start, compressed };
        Prepared { inner: Arc::new(inner) }
    }

    /// Returns the content of the message as bytes.
    pub fn payload(&self) -> &[u8] {
        &self.inner.plain[self.inner.payload..]
    }

    /// Returns the encoded frame that a server sends on a connection: the compressed one if the
    /// connection's compressor `deflater` permits it, otherwise the uncompressed one.
    pub(crate) fn encoded(&self, deflater: Option<&Deflater>) -> &[u8] {
        match &self.inner.compressed {
            Some(frame) if deflater.is_some_and(Deflater::can_send_prepared) => frame,
            _ => &self.inner.plain,
        }
    }
}

impl Kind {
    pub(crate) fn opcode(self) -> OpCode {
        match self {
            Kind::Text => OpCode::Text,
            Kind::Binary => OpCode::Binary,
        }
    }
}
