//! What goes up to the application and what comes down from it.

use crate::exchange::Exchange;
use crate::ids::{ExchangeId, ListenerId, StreamId, WebSocketId};
use crate::payload::Payload;
use crate::streamed_body::StreamEnd;

/// Whether a message is text (valid UTF-8) or binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    /// Text, valid UTF-8.
    Text,
    /// Any bytes.
    Binary,
}

/// Up: what the application is told. Events of one connection keep their order.
#[derive(Debug)]
pub enum Event {
    /// A whole request, or the opening handshake of a WebSocket ([`Exchange::is_upgrade`]). Answered by
    /// [`Command::Respond`], once.
    Request(Box<Exchange>),
    /// A request whose body has not been read, for an application that wants to see its head first. Answered by
    /// [`Command::ReadBody`], after which it comes again as [`Event::Request`], or by [`Command::Respond`], before which
    /// [`Command::StreamBody`] may ask for its body in pieces.
    Head(Box<Exchange>),
    /// A whole message.
    Message {
        /// The WebSocket.
        socket: WebSocketId,
        /// Its listener.
        listener: ListenerId,
        /// Text or binary.
        kind: MessageKind,
        /// Its bytes.
        payload: Payload,
    },
    /// The WebSocket has ended: told exactly once for each that was accepted.
    Closed {
        /// The WebSocket.
        socket: WebSocketId,
        /// Its listener.
        listener: ListenerId,
        /// The peer's close code, 1005 without one, 1006 when the connection broke (RFC 6455, 7.4.1).
        code: u16,
        /// What the peer's close frame says for a person, at most 123 bytes. Empty in all other cases; then it is not on the heap.
        reason: Box<str>,
        /// Whether both sides sent a close frame.
        is_clean: bool,
    },
    /// What waited for this WebSocket has been written out, after [`SendBacklog::count_sent`](crate::Backlog::give) had said that much does,
    /// or a megabyte waited.
    Drained {
        /// The WebSocket.
        socket: WebSocketId,
        /// Its listener.
        listener: ListenerId,
    },
    /// A piece of a request's body, after [`Command::StreamBody`].
    Body {
        /// The request.
        exchange: ExchangeId,
        /// Its listener.
        listener: ListenerId,
        /// The bytes.
        payload: Payload,
    },
    /// No more of it comes: told exactly once for each [`Command::StreamBody`].
    BodyEnd {
        /// The request.
        exchange: ExchangeId,
        /// Its listener.
        listener: ListenerId,
        /// [`StreamEnd::Done`]: it is whole, or the request has been answered before.
        reason: StreamEnd,
    },
    /// There is room for a piece of a stream that is pulled ([`StreamOptions`](crate::StreamRules)). Answered by
    /// [`Command::Chunk`], [`Command::EndStream`] or [`Command::AbortStream`]; not told again before that, nor while the application goes on by
    /// itself.
    Pull {
        /// The stream.
        stream: StreamId,
        /// Its listener.
        listener: ListenerId,
    },
    /// There is room again, after [`StreamFlow::admit`](crate::Flow::give) had said that there was not.
    Writable {
        /// The stream.
        stream: StreamId,
        /// Its listener.
        listener: ListenerId,
    },
    /// The stream has ended: told exactly once for each reply that has one.
    StreamEnded {
        /// The stream.
        stream: StreamId,
        /// Its listener.
        listener: ListenerId,
        /// How.
        reason: StreamEnd,
    },
}

impl Event {
    /// Whether it hands an exchange over: a request, a handshake, or the head of one.
    pub fn is_request(&self) -> bool {
        matches!(self, Event::Request(_) | Event::Head(_))
    }

    /// Whether it is a WebSocket's, behind its handshake.
    pub fn is_websocket_event(&self) -> bool {
        matches!(self, Event::Message { .. } | Event::Closed { .. } | Event::Drained { .. })
    }
}
