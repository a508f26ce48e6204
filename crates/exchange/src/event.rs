//! What goes up to the application and what comes down from it.

use crate::exchange::{Exchange, ExchangeId, ListenerId};
use crate::payload::Payload;
use crate::stream::Departure;

/// Names a WebSocket: the id of the exchange that opened it.
pub type SocketId = ExchangeId;

/// Names a reply that comes in pieces: the id of its exchange.
pub type StreamId = ExchangeId;

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
    /// [`Command::Proceed`], after which it comes again as [`Event::Request`], or by [`Command::Respond`], before which
    /// [`Command::Receive`] may ask for its body in pieces.
    Head(Box<Exchange>),
    /// A whole message.
    Message {
        /// The WebSocket.
        socket: SocketId,
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
        socket: SocketId,
        /// Its listener.
        listener: ListenerId,
        /// The peer's close code, 1005 without one, 1006 when the connection broke (RFC 6455, 7.4.1).
        code: u16,
        /// What the peer's close frame says for a person, at most 123 bytes. Empty in all other cases; then it is not on the heap.
        reason: Box<str>,
        /// Whether both sides sent a close frame.
        is_clean: bool,
    },
    /// What waited for this WebSocket has been written out, after [`Backlog::give`](crate::Backlog::give) had said that much does,
    /// or a megabyte waited.
    Drained {
        /// The WebSocket.
        socket: SocketId,
        /// Its listener.
        listener: ListenerId,
    },
    /// A piece of a request's body, after [`Command::Receive`].
    Body {
        /// The request.
        call: ExchangeId,
        /// Its listener.
        listener: ListenerId,
        /// The bytes.
        payload: Payload,
    },
    /// No more of it comes: told exactly once for each [`Command::Receive`].
    BodyEnd {
        /// The request.
        call: ExchangeId,
        /// Its listener.
        listener: ListenerId,
        /// [`Departure::Done`]: it is whole, or the request has been answered before.
        reason: Departure,
    },
    /// There is room for a piece of a stream that is pulled ([`StreamRules`](crate::StreamRules)). Answered by
    /// [`Command::Piece`], [`Command::End`] or [`Command::Cut`]; not told again before that, nor while the application goes on by
    /// itself.
    Want {
        /// The stream.
        stream: StreamId,
        /// Its listener.
        listener: ListenerId,
    },
    /// There is room again, after [`Flow::give`](crate::Flow::give) had said that there was not.
    Room {
        /// The stream.
        stream: StreamId,
        /// Its listener.
        listener: ListenerId,
    },
    /// The stream has ended: told exactly once for each reply that has one.
    Departed {
        /// The stream.
        stream: StreamId,
        /// Its listener.
        listener: ListenerId,
        /// How.
        reason: Departure,
    },
}

impl Event {
    /// Whether it hands an exchange over: a request, a handshake, or the head of one.
    pub fn is_call(&self) -> bool {
        matches!(self, Event::Request(_) | Event::Head(_))
    }

    /// Whether it is a WebSocket's, behind its handshake.
    pub fn is_of_websocket(&self) -> bool {
        matches!(self, Event::Message { .. } | Event::Closed { .. } | Event::Drained { .. })
    }
}

/// Down: what the application wants done. Commands for a WebSocket or a stream that has ended are ignored.
#[derive(Debug)]
pub enum Command {
    /// The exchange has its reply. Status 101 accepts a WebSocket.
    Respond(Box<Exchange>),
    /// The body may be read.
    Proceed(Box<Exchange>),
    /// The body of a request that was shown as [`Event::Head`] is to come in pieces. The application keeps the exchange, and may
    /// answer at any time.
    Receive {
        /// The request.
        call: ExchangeId,
        /// Its listener.
        listener: ListenerId,
        /// Its exchange's [slot](Exchange::slot).
        slot: u32,
    },
    /// A piece of such a body ([`Event::Body`]) has been dealt with: as much more may come.
    Taken {
        /// The request.
        call: ExchangeId,
        /// How many bytes it had.
        bytes: usize,
    },
    /// Sends a message.
    Send {
        /// The WebSocket.
        socket: SocketId,
        /// Text or binary.
        kind: MessageKind,
        /// Its bytes; text is valid UTF-8.
        payload: Payload,
    },
    /// Sends a ping, unless the peer does not read what it was sent before.
    Ping {
        /// The WebSocket.
        socket: SocketId,
    },
    /// Starts the closing handshake.
    Close {
        /// The WebSocket.
        socket: SocketId,
        /// The close code.
        code: u16,
        /// The reason, UTF-8, at most 123 bytes.
        reason: Vec<u8>,
    },
    /// Drops the connection without a close frame.
    Abort {
        /// The WebSocket.
        socket: SocketId,
    },
    /// The next piece of a stream, which [`Flow::give`](crate::Flow::give) has counted in. An empty one answers
    /// [`Event::Want`] with "nothing yet".
    Piece {
        /// The stream.
        stream: StreamId,
        /// Its bytes.
        payload: Payload,
        /// The application gives another one without being asked: [`Event::Want`] does not come until it has given one that is the
        /// last, or [`Command::Ask`].
        goes_on: bool,
    },
    /// The application goes on by itself no more: it is to be asked when there is room.
    Ask {
        /// The stream.
        stream: StreamId,
    },
    /// Sends the head of a stream's reply now, if it still waits for the first piece.
    SendHead {
        /// The stream.
        stream: StreamId,
    },
    /// The stream is whole.
    End {
        /// The stream.
        stream: StreamId,
    },
    /// The stream cannot be completed: what came before is sent, and then its client sees that it was cut. If nothing has
    /// been sent, 500 is answered instead.
    Cut {
        /// The stream.
        stream: StreamId,
        /// [`Departure::Error`], or [`Departure::Slow`], with which what came before is not waited for.
        reason: Departure,
        /// The text of the 500, UTF-8; empty: the server's own.
        page: Vec<u8>,
    },
}
