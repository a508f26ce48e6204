//! The errors of a WebSocket connection.

use std::fmt;
use std::io;

use crate::protocol::Violation;
use crate::protocol::handshake::{HandshakeError, Refusal};

/// The reason why an operation on a WebSocket connection failed. After an error for which
/// [`Error::is_retryable`] returns true, the connection can still be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The transport failed with an I/O error.
    Io(io::Error),
    /// The peer violated the WebSocket protocol. A close frame that reports the violation was sent
    /// to the peer.
    Violation(Violation),
    /// The peer's byte stream ended without a close frame.
    Eof,
    /// A close frame was sent or received, so nothing more can be sent.
    Closed,
    /// The deadline of this operation passed. Nothing is lost, and the operation can be repeated.
    TimedOut,
    /// The operation was cancelled by [`Canceller::cancel`](crate::Canceller::cancel). Nothing is
    /// lost, and the operation can be repeated.
    Cancelled,
    /// A message arrived before the pong that [`Connection::ping`](crate::Connection::ping) waits
    /// for. Read the message first.
    MessageFirst,
    /// The peer was silent for longer than [`KeepAlive::timeout`](crate::KeepAlive::timeout) after
    /// a ping.
    PongTimeout,
    /// A message that was being written in chunks was not finished, so the connection cannot be
    /// used any more.
    Abandoned,
    /// The opening handshake failed: the client's request was malformed, or the server refused it
    /// or did not follow the protocol.
    Handshake(HandshakeError),
    /// As a server: the client's handshake request was refused, and the refusal was sent to the
    /// client.
    Refused(Refusal),
    /// The opening handshake took longer than
    /// [`Config::handshake_timeout`](crate::Config::handshake_timeout).
    HandshakeTimeout,
    /// The address of the server does not have the form `ws://host[:port][/path]`, with `wss` for
    /// TLS.
    Address,
}

impl Error {
    /// Returns true if the failed operation can be repeated, because the connection is in the same
    /// state as before.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::TimedOut | Error::Cancelled | Error::MessageFirst)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(error) => write!(f, "transport: {error}"),
            Error::Violation(violation) => write!(f, "the peer violated the protocol: {violation}"),
            Error::Eof => f.write_str("the connection ended without a close frame"),
            Error::Closed => f.write_str("the connection is closed"),
            Error::TimedOut => f.write_str("the deadline passed"),
            Error::Cancelled => f.write_str("cancelled"),
            Error::MessageFirst => f.write_str("a message arrived before the pong"),
            Error::PongTimeout => f.write_str("the peer did not answer a ping"),
            Error::Abandoned => f.write_str("a message was not finished"),
            Error::Handshake(error) => error.fmt(f),
            Error::Refused(refusal) => write!(f, "refused: {refusal}"),
            Error::HandshakeTimeout => f.write_str("the handshake took too long"),
            Error::Address => {
                f.write_str("not an address of the form ws://host[:port][/path] (wss with TLS)")
            }
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

/// Converts an error for functions that return I/O errors, such as those of
/// [`ByteStream`](crate::ByteStream). The error of the transport itself stays the same.
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match error {
            Error::Io(error) => return error,
            Error::Violation(_) | Error::Handshake(_) => io::ErrorKind::InvalidData,
            Error::Eof => io::ErrorKind::UnexpectedEof,
            Error::Closed => io::ErrorKind::BrokenPipe,
            Error::TimedOut | Error::PongTimeout | Error::HandshakeTimeout => {
                io::ErrorKind::TimedOut
            }
            Error::Address => io::ErrorKind::InvalidInput,
            Error::Cancelled | Error::MessageFirst | Error::Abandoned | Error::Refused(_) => {
                io::ErrorKind::Other
            }
        };
        io::Error::new(kind, error)
    }
}
