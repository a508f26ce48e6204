//! The events that the server sends to the application.

use crate::exchange::Exchange;
use crate::ids::{ExchangeId, ListenerId, StreamId, WebSocketId};
use crate::payload::Payload;
use crate::streamed_body::StreamEnd;

/// The kind of a WebSocket message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    /// Text, which is valid UTF-8.
    Text,
    /// Arbitrary bytes.
    Binary,
}

/// An event that the server reports to the application. The events of one connection keep their
/// order.
#[derive(Debug)]
pub enum Event {
    /// A complete request, or the opening handshake of a WebSocket ([`Exchange::is_upgrade`]). The
    /// application responds once, with [`Command::Respond`](crate::Command::Respond).
    Request(Box<Exchange>),
    /// A request whose body has not been read, for an application that inspects the head first. The
    /// application responds with [`Command::ReadBody`](crate::Command::ReadBody), after which the
    /// complete request follows as an [`Event::Request`], or with
    /// [`Command::Respond`](crate::Command::Respond). Before it responds, it may request the body
    /// in chunks with [`Command::StreamBody`](crate::Command::StreamBody).
    Head(Box<Exchange>),
    /// A complete message from a WebSocket.
    Message {
        /// The WebSocket.
        socket: WebSocketId,
        /// The listener on which the WebSocket was opened.
        listener: ListenerId,
        /// Whether the message is text or binary.
        kind: MessageKind,
        /// The bytes of the message.
        payload: Payload,
    },
    /// The end of a WebSocket. The server sends this event exactly once for each WebSocket that was
    /// accepted.
    Closed {
        /// The WebSocket.
        socket: WebSocketId,
        /// The listener on which the WebSocket was opened.
        listener: ListenerId,
        /// The peer's close code: 1005 if the close frame had none, 1006 if the connection broke
        /// (RFC 6455, 7.4.1).
        code: u16,
        /// The reason in the peer's close frame, at most 123 bytes. In all other cases the reason
        /// is empty and uses no heap memory.
        reason: Box<str>,
        /// Whether both sides sent a close frame.
        is_clean: bool,
    },
    /// All data waiting for this WebSocket has been written. The server sends this event after
    /// [`SendBacklog::count_sent`](crate::SendBacklog::count_sent) has returned `Some(false)`, or
    /// after a megabyte was waiting.
    Drained {
        /// The WebSocket.
        socket: WebSocketId,
        /// The listener on which the WebSocket was opened.
        listener: ListenerId,
    },
    /// A chunk of a request body, after [`Command::StreamBody`](crate::Command::StreamBody).
    Body {
        /// The request.
        exchange: ExchangeId,
        /// The listener on which the request arrived.
        listener: ListenerId,
        /// The bytes of the chunk.
        payload: Payload,
    },
    /// The end of a streamed request body. The server sends this event exactly once for each
    /// [`Command::StreamBody`](crate::Command::StreamBody).
    BodyEnd {
        /// The request.
        exchange: ExchangeId,
        /// The listener on which the request arrived.
        listener: ListenerId,
        /// The cause of the end: [`StreamEnd::Done`] if the body is complete, or if the application
        /// has already responded.
        reason: StreamEnd,
    },
    /// The server requests the next chunk of a streamed response that is pulled
    /// ([`StreamOptions::is_pulled`](crate::StreamOptions::is_pulled)), because there is capacity
    /// for it. The application responds with [`Command::Chunk`](crate::Command::Chunk),
    /// [`Command::EndStream`](crate::Command::EndStream) or
    /// [`Command::AbortStream`](crate::Command::AbortStream). The server does not send this event
    /// again before that response, nor while the application pushes chunks by itself.
    Pull {
        /// The streamed response.
        stream: StreamId,
        /// The listener on which the request arrived.
        listener: ListenerId,
    },
    /// A streamed response has capacity for further chunks again, after
    /// [`StreamFlow::admit`](crate::StreamFlow::admit) had returned
    /// [`ChunkAdmission::Pause`](crate::ChunkAdmission::Pause).
    Writable {
        /// The streamed response.
        stream: StreamId,
        /// The listener on which the request arrived.
        listener: ListenerId,
    },
    /// The end of a streamed response. The server sends this event exactly once for each streamed
    /// response.
    StreamEnded {
        /// The streamed response.
        stream: StreamId,
        /// The listener on which the request arrived.
        listener: ListenerId,
        /// The cause of the end.
        reason: StreamEnd,
    },
}

impl Event {
    /// Returns true if the event carries an exchange: a request, an opening handshake, or the head
    /// of a request.
    pub fn is_request(&self) -> bool {
        matches!(self, Event::Request(_) | Event::Head(_))
    }

    /// Returns true if the event concerns a WebSocket after its opening handshake.
    pub fn is_websocket_event(&self) -> bool {
        matches!(self, Event::Message { .. } | Event::Closed { .. } | Event::Drained { .. })
    }
}
