//! What the application has the server do.

use crate::event::MessageKind;
use crate::exchange::Exchange;
use crate::ids::{ExchangeId, ListenerId, StreamId, WebSocketId};
use crate::payload::Payload;
use crate::streamed_body::StreamEnd;

/// Down: what the application wants done. Commands for a WebSocket or a stream that has ended are ignored.
#[derive(Debug)]
pub enum Command {
    /// The exchange has its reply. Status 101 accepts a WebSocket.
    Respond(Box<Exchange>),
    /// The body may be read.
    ReadBody(Box<Exchange>),
    /// The body of a request that was shown as [`Event::Head`] is to come in pieces. The application keeps the exchange, and may
    /// answer at any time.
    StreamBody {
        /// The request.
        exchange: ExchangeId,
        /// Its listener.
        listener: ListenerId,
        /// Its exchange's [slot](Exchange::slot).
        slot: u32,
    },
    /// A piece of such a body ([`Event::Body`]) has been dealt with: as much more may come.
    BodyConsumed {
        /// The request.
        exchange: ExchangeId,
        /// How many bytes it had.
        bytes: usize,
    },
    /// Sends a message.
    Send {
        /// The WebSocket.
        socket: WebSocketId,
        /// Text or binary.
        kind: MessageKind,
        /// Its bytes; text is valid UTF-8.
        payload: Payload,
    },
    /// Sends a ping, unless the peer does not read what it was sent before.
    Ping {
        /// The WebSocket.
        socket: WebSocketId,
    },
    /// Starts the closing handshake.
    Close {
        /// The WebSocket.
        socket: WebSocketId,
        /// The close code.
        code: u16,
        /// The reason, UTF-8, at most 123 bytes.
        reason: Vec<u8>,
    },
    /// Drops the connection without a close frame.
    Abort {
        /// The WebSocket.
        socket: WebSocketId,
    },
    /// The next piece of a stream, which [`StreamFlow::admit`](crate::Flow::give) has counted in. An empty one answers
    /// [`Event::Pull`] with "nothing yet".
    Chunk {
        /// The stream.
        stream: StreamId,
        /// Its bytes.
        payload: Payload,
        /// The application gives another one without being asked: [`Event::Pull`] does not come until it has given one that is the
        /// last, or [`Command::ResumePulls`].
        is_pushing: bool,
    },
    /// The application goes on by itself no more: it is to be asked when there is room.
    ResumePulls {
        /// The stream.
        stream: StreamId,
    },
    /// Sends the head of a stream's reply now, if it still waits for the first piece.
    SendHead {
        /// The stream.
        stream: StreamId,
    },
    /// The stream is whole.
    EndStream {
        /// The stream.
        stream: StreamId,
    },
    /// The stream cannot be completed: what came before is sent, and then its client sees that it was cut. If nothing has
    /// been sent, 500 is answered instead.
    AbortStream {
        /// The stream.
        stream: StreamId,
        /// [`StreamEnd::Error`], or [`StreamEnd::Slow`], with which what came before is not waited for.
        reason: StreamEnd,
        /// The text of the 500, UTF-8; empty: the server's own.
        page: Vec<u8>,
    },
}
