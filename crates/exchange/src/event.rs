//! The events that the server sends to the application (the code that responds to requests).

use rookery_fairness::{Load, Queued};

use crate::exchange::Exchange;
use crate::ids::{ExchangeId, ListenerId, StreamId, WebSocketId};
use crate::payload::Payload;
use crate::stream_flow_control::StreamEnd;

/// The kind of a WebSocket message: text or binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    /// A WebSocket message of text, which is valid UTF-8.
    Text,
    /// A WebSocket message of arbitrary bytes.
    Binary,
}

/// An event that the server reports to the application. The events of one peer arrive in the order
/// in which they occurred.
#[derive(Debug)]
pub enum Event {
    /// A complete request, or the opening handshake of a WebSocket ([`Exchange::is_upgrade`]). The
    /// application responds once, with [`Command::Respond`](crate::Command::Respond).
    Request(Box<Exchange>),
    /// The head of a request whose body the server has not read yet. Only an application that
    /// inspects heads first receives this event. It responds with
    /// [`Command::Respond`](crate::Command::Respond), or requests the body as a whole
    /// ([`Command::ReadBody`](crate::Command::ReadBody)) or in chunks
    /// ([`Command::StreamBody`](crate::Command::StreamBody)).
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
        /// The close code that the peer sent, 1005 if its close frame had none, or 1006 if the
        /// connection broke (RFC 6455, 7.4.1).
        code: u16,
        /// The reason in the peer's close frame, at most 123 bytes. It is empty if the peer gave no
        /// reason or sent no close frame.
        reason: Box<str>,
        /// Whether the WebSocket was closed cleanly, that is, both peers sent a close frame.
        is_clean: bool,
    },
    /// Reports that all data that was waiting to be sent to a WebSocket has been written. The
    /// server sends this event if [`SendBacklog::count_sent`](crate::SendBacklog::count_sent) has
    /// told the application to pause, or if more than 1 MiB was waiting.
    Drained {
        /// The id of the WebSocket whose waiting data has been written.
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
    /// Reports the end of a streamed request body. For each
    /// [`Command::StreamBody`](crate::Command::StreamBody), the server sends this event exactly
    /// once.
    BodyEnd {
        /// The id of the request whose body has ended.
        exchange: ExchangeId,
        /// The listener on which the request arrived.
        listener: ListenerId,
        /// The reason why the streamed request body ended. It is [`StreamEnd::Done`] if the body is
        /// complete or the application has already responded.
        reason: StreamEnd,
    },
    /// Asks the application for the next chunk of a streamed response, if the application produces
    /// chunks on demand ([`StreamOptions::is_pulled`](crate::StreamOptions::is_pulled)). The
    /// application responds with [`Command::Chunk`](crate::Command::Chunk),
    /// [`Command::EndStream`](crate::Command::EndStream) or
    /// [`Command::AbortStream`](crate::Command::AbortStream). Until then, the server does not ask
    /// again.
    Pull {
        /// The id of the streamed response whose next chunk is requested.
        stream: StreamId,
        /// The listener on which the request arrived.
        listener: ListenerId,
    },
    /// Reports that the client has caught up with a streamed response and that the application may
    /// send chunks again. The server sends this event after
    /// [`StreamFlow::admit`](crate::StreamFlow::admit) has returned
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

    /// Returns the exchange of a request or of its head, and `None` for all other events.
    pub fn into_exchange(self) -> Option<Box<Exchange>> {
        match self {
            Event::Request(exchange) | Event::Head(exchange) => Some(exchange),
            _ => None,
        }
    }

    /// Returns true if the event concerns a WebSocket after its opening handshake.
    pub fn is_websocket_event(&self) -> bool {
        matches!(self, Event::Message { .. } | Event::Closed { .. } | Event::Drained { .. })
    }
}

impl Queued for Event {
    fn load(&self) -> Load {
        match self {
            Event::Request(_) | Event::Head(_) => Load { requests: 1, ..Load::default() },
            Event::Message { payload, .. } => {
                Load { messages: 1, bytes: payload.held(), requests: 0 }
            }
            _ => Load::default(),
        }
    }
}
