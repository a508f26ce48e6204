//! The records to a worker.

use super::{Malformed, Reader, kind, write_text};
use crate::event::MessageKind;
use crate::ids::{StreamId, WebSocketId};
use crate::stream_flow_control::StreamEnd;

/// The form of a request's record: what the record contains, and what the application gets first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RequestForm {
    /// The application gets the complete request at once.
    Complete = kind::REQUEST,
    /// The application inspects the head first. The record contains the body as well.
    HeadFirst = kind::HEAD_FIRST,
    /// The application inspects the head, and the body has not been received.
    HeadOnly = kind::HEAD_ONLY,
}

impl RequestForm {
    /// Returns the kind of the request's record.
    pub fn kind(self) -> u8 {
        self as u8
    }
}

/// A record to a worker. The ids are those of the front end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the events and commands")]
pub enum Down<'a> {
    /// A request. [`read_request`](super::read_request) reads its content.
    Request { form: RequestForm, content: &'a [u8] },
    /// A message from a WebSocket.
    Message { socket: WebSocketId, kind: MessageKind, content: &'a [u8] },
    /// The end of a WebSocket.
    Closed { socket: WebSocketId, code: u16, is_clean: bool, reason: &'a [u8] },
    /// A report that all messages to a WebSocket have been written, `sent` bytes in total.
    Drained { socket: WebSocketId, sent: u64 },
    /// The number of bytes of messages to a WebSocket that have been written so far.
    Sent { socket: WebSocketId, sent: u64 },
    /// A request for the next chunk of a streamed response, of which `written` bytes have been
    /// written.
    Pull { stream: StreamId, written: u64 },
    /// The number of bytes of a streamed response that have been written so far.
    Written { stream: StreamId, written: u64 },
    /// The end of a streamed response.
    StreamEnded { stream: StreamId, reason: StreamEnd },
}

impl<'a> Down<'a> {
    /// Appends the record to `out`, which must be empty, and returns its kind.
    pub fn write(self, out: &mut Vec<u8>) -> u8 {
        let mut number = |number: u64| out.extend_from_slice(&number.to_le_bytes());
        match self {
            Down::Request { form, content } => {
                out.extend_from_slice(content);
                form.kind()
            }
            Down::Message { socket, kind, content } => {
                number(socket);
                out.extend_from_slice(content);
                if kind == MessageKind::Text { kind::TEXT } else { kind::BINARY }
            }
            Down::Closed { socket, code, is_clean, reason } => {
                number(socket);
                out.extend_from_slice(&code.to_le_bytes());
                out.push(is_clean.into());
                write_text(reason, out);
                kind::CLOSE
            }
            Down::Drained { socket, sent } => {
                number(socket);
                number(sent);
                kind::DRAINED
            }
            Down::Sent { socket, sent } => {
                number(socket);
                number(sent);
                kind::SENT
            }
            Down::Pull { stream, written } => {
                number(stream);
                number(written);
                kind::PULL
            }
            Down::Written { stream, written } => {
                number(stream);
                number(written);
                kind::WRITTEN
            }
            Down::StreamEnded { stream, reason } => {
                number(stream);
                out.push(reason as u8);
                kind::STREAM_ENDED
            }
        }
    }

    /// Reads a record.
    ///
    /// # Errors
    /// Returns an error if the bytes are no such record.
    pub fn read(kind: u8, bytes: &'a [u8]) -> Result<Down<'a>, Malformed> {
        let forms = [RequestForm::Complete, RequestForm::HeadFirst, RequestForm::HeadOnly];
        if let Some(form) = forms.into_iter().find(|form| form.kind() == kind) {
            return Ok(Down::Request { form, content: bytes });
        }
        let mut reader = Reader(bytes);
        let id = reader.u64()?;
        let (socket, stream) = (id, id);
        let down = match kind {
            kind::TEXT | kind::BINARY => {
                let is_text = kind == kind::TEXT;
                let kind = if is_text { MessageKind::Text } else { MessageKind::Binary };
                return Ok(Down::Message { socket, kind, content: reader.rest() });
            }
            kind::CLOSE => Down::Closed {
                socket,
                code: reader.u16()?,
                is_clean: reader.bool()?,
                reason: reader.text()?,
            },
            kind::DRAINED => Down::Drained { socket, sent: reader.u64()? },
            kind::SENT => Down::Sent { socket, sent: reader.u64()? },
            kind::PULL => Down::Pull { stream, written: reader.u64()? },
            kind::WRITTEN => Down::Written { stream, written: reader.u64()? },
            kind::STREAM_ENDED => {
                let reason = StreamEnd::of_number(reader.u8()?).ok_or(Malformed)?;
                Down::StreamEnded { stream, reason }
            }
            _ => return Err(Malformed),
        };
        reader.end()?;
        Ok(down)
    }
}
