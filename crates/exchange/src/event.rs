//! The events that the server sends to the application (the code that responds to requests).

use crate::exchange::Exchange;
use crate::ids::{ExchangeId, ListenerId, StreamId, WebSocketId};
use crate::payload::Payload;
use crate::streamed_body::StreamEnd;

/// The kind of a WebSocket message: text or binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    /// A WebSocket message of text, which is valid UTF-8.
    Text,
    /// A WebSocket message of arbitrary bytes.
    Binary,
}

/// An event that the server reports to the application. Events of the same connection stay in their
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
        /// The id of the WebSocket from which the message came.
        socket: WebSocketId,
        /// The listener on which the WebSocket was opened.
        listener: ListenerId,
        /// Whether the WebSocket message is text or binary.
        kind: MessageKind,
        /// The bytes of the WebSocket message.
        payload: Payload,
    },
    /// Reports that a WebSocket has ended. The server sends this event exactly once for each
    /// WebSocket that was accepted.
    Closed {
        /// The id of the WebSocket that has ended.
        socket: WebSocketId,
        /// The listener on which the WebSocket was opened.
        listener: ListenerId,
        /// The peer's close code: 1005 if the close frame had none, 1006 if the connection broke
        /// (RFC 6455, 7.4.1).
        code: u16,
        /// The reason in the close frame of a WebSocket's peer, at most 123 bytes. Without such a
        /// close frame the reason is empty and uses no heap memory.
        reason: Box<str>,
        /// Whether the WebSocket was closed cleanly, that is, both peers sent a close frame.
        is_clean: bool,
    },
    /// Reports that all data waiting for a WebSocket has been written. The server sends this event
    /// after [`SendBacklog::count_sent`](crate::SendBacklog::count_sent) has returned
    /// `Some(false)`, or after a megabyte was waiting.
    Drained {
        /// The id of the WebSocket for which no data is waiting any more.
        socket: WebSocketId,
        /// The listener on which the WebSocket was opened.
        listener: ListenerId,
    },
    /// A chunk of a streamed request body, which the application has requested with
    /// [`Command::StreamBody`](crate::Command::StreamBody).
    Body {
        /// The id of the request to whose body the chunk belongs.
        exchange: ExchangeId,
        /// The listener on which the request arrived.
        listener: ListenerId,
        /// The bytes of this chunk of the request body.
        payload: Payload,
    },
    /// Reports the end of a streamed request body. The server sends this event exactly once for
    /// each [`Command::StreamBody`](crate::Command::StreamBody).
    BodyEnd {
        /// The id of the request whose body has ended.
        exchange: ExchangeId,
        /// The listener on which the request arrived.
        listener: ListenerId,
        /// The reason why the streamed request body ended. It is [`StreamEnd::Done`] if the body is
        /// complete or the application has already responded.
        reason: StreamEnd,
    },
    /// Requests the next chunk of a streamed response whose application produces chunks on demand
    /// ([`StreamOptions::is_pulled`](crate::StreamOptions::is_pulled)). The application responds
    /// with [`Command::Chunk`](crate::Command::Chunk),
    /// [`Command::EndStream`](crate::Command::EndStream) or
    /// [`Command::AbortStream`](crate::Command::AbortStream). The server does not send this event
    /// again before that response, nor while the application sends chunks by itself.
    Pull {
        /// The id of the streamed response whose next chunk is requested.
        stream: StreamId,
        /// The listener on which the request arrived.
        listener: ListenerId,
    },
    /// Reports that the application may send chunks of a streamed response again, after
    /// [`StreamFlow::admit`](crate::StreamFlow::admit) had returned
    /// [`ChunkAdmission::Pause`](crate::ChunkAdmission::Pause).
    Writable {
        /// The id of the streamed response that accepts chunks again.
        stream: StreamId,
        /// The listener on which the request arrived.
        listener: ListenerId,
    },
    /// Reports the end of a streamed response. The server sends this event exactly once for each
    /// streamed response.
    StreamEnded {
        /// The id of the streamed response that has ended.
        stream: StreamId,
        /// The listener on which the request arrived.
        listener: ListenerId,
        /// The reason why the streamed response ended.
        reason: StreamEnd,
    },
}

impl Event {
    /// Returns true if the event carries an [`Exchange`], because it reports a request, the opening
    /// handshake of a WebSocket, or the head of a request.
    pub fn is_request(&self) -> bool {
        matches!(self, Event::Request(_) | Event::Head(_))
    }

    /// Returns true if the event concerns a WebSocket after its opening handshake.
    pub fn is_websocket_event(&self) -> bool {
        matches!(self, Event::Message { .. } | Event::Closed { .. } | Event::Drained { .. })
    }
}
