//! What can go wrong on a connection.

use std::fmt;
use std::io;

use crate::protocol::Violation;
use crate::protocol::handshake::{HandshakeError, Refusal};

/// Why an operation failed. [`Error::is_retryable`] tells the ones after which the connection goes on.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The transport failed.
    Io(io::Error),
    /// The peer broke the protocol; it was told so with a close frame.
    Violation(Violation),
    /// The peer's bytes ended without a close frame.
    Eof,
    /// A close frame was sent or received: nothing more may be sent.
    Closed,
    /// The deadline of this operation passed. Nothing is lost; the operation can be repeated.
    TimedOut,
    /// [`Canceller::cancel`](crate::Canceller::cancel) was called. Nothing is lost; the operation can be repeated.
    Cancelled,
    /// [`Connection::ping`](crate::Connection::ping): a message came before the pong and is to be read first.
    MessageFirst,
    /// The peer was silent for longer than [`KeepAlive::timeout`](crate::KeepAlive::timeout) after a ping.
    PongTimeout,
    /// A message that was written in chunks was given up half way; the connection can not go on.
    Abandoned,
    /// The server refused, or did not follow the handshake.
    Handshake(HandshakeError),
    /// The client asked for something that is not granted; it was told so.
    Refused(Refusal),
    /// The handshake took longer than [`Config::handshake_timeout`](crate::Config::handshake_timeout).
    HandshakeTimeout,
    /// The address is not `ws://host[:port][/path]`.
    Address,
}

impl Error {
    /// Whether the connection is as it was before the operation.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::TimedOut | Error::Cancelled | Error::MessageFirst)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(error) => write!(f, "transport: {error}"),
            Error::Violation(violation) => write!(f, "the peer broke the protocol: {violation}"),
            Error::Eof => f.write_str("the connection ended without a close frame"),
            Error::Closed => f.write_str("the connection is closed"),
            Error::TimedOut => f.write_str("the deadline passed"),
            Error::Cancelled => f.write_str("cancelled"),
            Error::MessageFirst => f.write_str("a message came before the pong"),
            Error::PongTimeout => f.write_str("the peer did not answer a ping"),
            Error::Abandoned => f.write_str("a message was given up half way"),
            Error::Handshake(error) => error.fmt(f),
            Error::Refused(refusal) => write!(f, "refused: {refusal}"),
            Error::HandshakeTimeout => f.write_str("the handshake took too long"),
            Error::Address => f.write_str("not an address of the form ws://host[:port][/path]"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(error) => Some(error),
            Error::Violation(violation) => Some(violation),
            Error::Handshake(error) => Some(error),
            Error::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }
}

impl From<HandshakeError> for Error {
    fn from(error: HandshakeError) -> Error {
        Error::Handshake(error)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Io(error)
    }
}
