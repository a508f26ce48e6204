//! WebSocket messages to be sent.

use crate::connection::message::{Kind, Message, OwnedMessage};
use crate::protocol::OpCode;

/// A WebSocket message to send: a text, binary data, or a message that was received.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Outgoing<'a> {
    /// A text message.
    Text(&'a str),
    /// A binary message.
    Binary(&'a [u8]),
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
}

impl<'a> Outgoing<'a> {
    #[inline]
    pub(crate) fn frame(&self) -> Frame<'a> {
        let (kind, payload) = match *self {
            Outgoing::Text(text) => (Kind::Text, text.as_bytes()),
            Outgoing::Binary(bytes) => (Kind::Binary, bytes),
            Outgoing::Message(message) => (message.kind(), message.as_bytes()),
        };
        Frame { kind, payload }
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
