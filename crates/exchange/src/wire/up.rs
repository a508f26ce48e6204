//! The records to the front end, which come from a worker that may be hostile.

use super::{Malformed, Reader, kind, response, write_text};
use crate::event::MessageKind;
use crate::exchange::Exchange;
use crate::ids::{ExchangeId, StreamId, WebSocketId};
use crate::stream_flow_control::StreamEnd;

/// The maximum length in bytes of the reason for closing a WebSocket (RFC 6455, 5.5).
const MAX_REASON: usize = 123;

/// A record to the front end. The ids are those of the front end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the events and commands")]
pub enum Up<'a> {
    /// A response. [`read_response`](super::read_response) reads its content.
    Response { exchange: ExchangeId, ticket: u64, content: &'a [u8] },
    /// A report that a response cannot be sent, because it is too long or the system does not pass
    /// on the file of its body. The client gets an error.
    Unsendable { exchange: ExchangeId, ticket: u64 },
    /// A request that the worker gives back, because no listener of the worker serves the request.
    /// The application has not begun the request.
    Declined { exchange: ExchangeId, ticket: u64 },
    /// A command to receive the body of a request of which the application has got only the head.
    /// If not `is_head_seen`, the application inspects the head again when the body has been
    /// received.
    ReadBody { exchange: ExchangeId, ticket: u64, is_head_seen: bool },
    /// A message to a WebSocket. If `is_waiting`, the application waits until all messages have
    /// been written.
    Message { socket: WebSocketId, kind: MessageKind, is_waiting: bool, content: &'a [u8] },
    /// A command to send a ping to a WebSocket.
    Ping { socket: WebSocketId },
    /// A command to start the closing handshake of a WebSocket.
    Close { socket: WebSocketId, code: u16, reason: &'a [u8] },
    /// A command to close the connection of a WebSocket without a closing handshake.
    Abort { socket: WebSocketId },
    /// A chunk of a streamed response. If `is_pushing`, the application sends further chunks
    /// without being asked. If `is_waiting`, the application waits until the client has caught up.
    Chunk { stream: StreamId, is_pushing: bool, is_waiting: bool, content: &'a [u8] },
    /// A command to ask for chunks again, because the application no longer sends them unasked.
    ResumePulls { stream: StreamId },
    /// A command to send the head of a streamed response now.
    SendHead { stream: StreamId },
    /// The end of a streamed response that is complete.
    EndStream { stream: StreamId },
    /// The end of a streamed response that cannot be completed, or that ends because the
    /// application stops. `page` is the error page for the client, and may be empty.
    AbortStream { stream: StreamId, reason: StreamEnd, page: &'a [u8] },
}

impl<'a> Up<'a> {
    /// Appends the record of a response to `out`, which must be empty, and returns the kind. If
    /// `file_len` is given, the body is a file of this length, which the caller sends beside the
    /// record. Otherwise the caller sends [`response_body`](super::response_body) after these
    /// bytes.
    pub fn write_response(
        exchange: &Exchange,
        (id, ticket): (ExchangeId, u64),
        file_len: Option<u64>,
        out: &mut Vec<u8>,
    ) -> u8 {
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&ticket.to_le_bytes());
        response::write(exchange, file_len, out);
        kind::RESPONSE
    }

    /// Appends the record to `out`, which must be empty, and returns its kind.
    pub fn write(self, out: &mut Vec<u8>) -> u8 {
        let mut id = |id: u64| out.extend_from_slice(&id.to_le_bytes());
        match self {
            Up::Response { exchange, ticket, content } => {
                id(exchange);
                id(ticket);
                out.extend_from_slice(content);
                kind::RESPONSE
            }
            Up::Unsendable { exchange, ticket } => {
                id(exchange);
                id(ticket);
                kind::UNSENDABLE
            }
            Up::Declined { exchange, ticket } => {
                id(exchange);
                id(ticket);
                kind::DECLINED
            }
            Up::ReadBody { exchange, ticket, is_head_seen } => {
                id(exchange);
                id(ticket);
                out.push(is_head_seen.into());
                kind::READ_BODY
            }
            Up::Message { socket, kind, is_waiting, content } => {
                id(socket);
                out.push(is_waiting.into());
                out.extend_from_slice(content);
                if kind == MessageKind::Text { kind::TEXT } else { kind::BINARY }
            }
            Up::Ping { socket } => {
                id(socket);
                kind::PING
            }
            Up::Close { socket, code, reason } => {
                id(socket);
                out.extend_from_slice(&code.to_le_bytes());
                write_text(reason, out);
                kind::CLOSE
            }
            Up::Abort { socket } => {
                id(socket);
                kind::ABORT
            }
            Up::Chunk { stream, is_pushing, is_waiting, content } => {
                id(stream);
                out.extend_from_slice(&[is_pushing.into(), is_waiting.into()]);
                out.extend_from_slice(content);
                kind::CHUNK
            }
            Up::ResumePulls { stream } => {
                id(stream);
                kind::RESUME_PULLS
            }
            Up::SendHead { stream } => {
                id(stream);
                kind::SEND_HEAD
            }
            Up::EndStream { stream } => {
                id(stream);
                kind::END_STREAM
            }
            Up::AbortStream { stream, reason, page } => {
                id(stream);
                out.push(reason as u8);
                write_text(page, out);
                kind::ABORT_STREAM
            }
        }
    }

    /// Reads a record.
    ///
    /// # Errors
    /// Returns an error if the bytes are no such record.
    pub fn read(kind: u8, bytes: &'a [u8]) -> Result<Up<'a>, Malformed> {
        let mut reader = Reader(bytes);
        let id = reader.u64()?;
        let (exchange, socket, stream) = (id, id, id);
        let up = match kind {
            kind::RESPONSE => {
                let ticket = reader.u64()?;
                return Ok(Up::Response { exchange, ticket, content: reader.rest() });
            }
            kind::UNSENDABLE => Up::Unsendable { exchange, ticket: reader.u64()? },
            kind::DECLINED => Up::Declined { exchange, ticket: reader.u64()? },
            kind::READ_BODY => {
                let (ticket, is_head_seen) = (reader.u64()?, reader.bool()?);
                Up::ReadBody { exchange, ticket, is_head_seen }
            }
            kind::TEXT | kind::BINARY => {
                let is_waiting = reader.bool()?;
                let (is_text, content) = (kind == kind::TEXT, reader.rest());
                if is_text && std::str::from_utf8(content).is_err() {
                    return Err(Malformed);
                }
                let kind = if is_text { MessageKind::Text } else { MessageKind::Binary };
                return Ok(Up::Message { socket, kind, is_waiting, content });
            }
            kind::PING => Up::Ping { socket },
            kind::CLOSE => {
                let (code, reason) = (reader.u16()?, reader.text()?);
                if reason.len() > MAX_REASON || std::str::from_utf8(reason).is_err() {
                    return Err(Malformed);
                }
                Up::Close { socket, code, reason }
            }
            kind::ABORT => Up::Abort { socket },
            kind::CHUNK => {
                let (is_pushing, is_waiting) = (reader.bool()?, reader.bool()?);
                let content = reader.rest();
                return Ok(Up::Chunk { stream, is_pushing, is_waiting, content });
            }
            kind::RESUME_PULLS => Up::ResumePulls { stream },
            kind::SEND_HEAD => Up::SendHead { stream },
            kind::END_STREAM => Up::EndStream { stream },
            kind::ABORT_STREAM => {
                let reason = match reader.u8()? {
                    reason if reason == StreamEnd::Error as u8 => StreamEnd::Error,
                    reason if reason == StreamEnd::Slow as u8 => StreamEnd::Slow,
                    reason if reason == StreamEnd::Stop as u8 => StreamEnd::Stop,
                    _ => return Err(Malformed),
                };
                Up::AbortStream { stream, reason, page: reader.text()? }
            }
            _ => return Err(Malformed),
        };
        reader.end()?;
        Ok(up)
    }
}
