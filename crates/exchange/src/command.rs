//! The commands that the application sends to the server.

use crate::event::MessageKind;
use crate::exchange::Exchange;
use crate::ids::{ExchangeId, ListenerId, StreamId, WebSocketId};
use crate::payload::Payload;
use crate::streamed_body::StreamEnd;

/// A command from the application to the server. Commands for a WebSocket or a stream that has
/// ended are ignored.
#[derive(Debug)]
pub enum Command {
    /// Sends the response that the exchange contains. Status 101 accepts a WebSocket.
    Respond(Box<Exchange>),
    /// Makes the server read the body of a request that was passed on as
    /// [`Event::Head`](crate::Event::Head).
    ReadBody(Box<Exchange>),
    /// Streams the body of a request that was passed on as [`Event::Head`](crate::Event::Head) to
    /// the application in chunks. The application keeps the exchange and may respond at any time.
    StreamBody {
        /// The request.
        exchange: ExchangeId,
        /// The listener on which the request arrived.
        listener: ListenerId,
        /// The [slot](Exchange::slot) of the request's exchange.
        slot: u32,
    },
    /// Reports that the application has processed a chunk of a streamed request body
    /// ([`Event::Body`](crate::Event::Body)), so that the server may send the same
    /// number of bytes again.
    BodyConsumed {
        /// The request.
        exchange: ExchangeId,
        /// The length of the chunk in bytes.
        bytes: usize,
    },
    /// Sends a message to a WebSocket.
    Send {
        /// The WebSocket.
        socket: WebSocketId,
        /// Whether the message is text or binary.
        kind: MessageKind,
        /// The message, which is valid UTF-8 if it is text.
        payload: Payload,
    },
    /// Sends a ping to a WebSocket, unless earlier data for its peer is still waiting to be sent.
    Ping {
        /// The WebSocket.
        socket: WebSocketId,
    },
    /// Starts the closing handshake of a WebSocket.
    Close {
        /// The WebSocket.
        socket: WebSocketId,
        /// The close code.
        code: u16,
        /// The reason in UTF-8, at most 123 bytes.
        reason: Vec<u8>,
    },
    /// Closes the connection of a WebSocket without a close frame.
    Abort {
        /// The WebSocket.
        socket: WebSocketId,
    },
    /// Sends the next chunk of a streamed response, which
    /// [`StreamFlow::admit`](crate::StreamFlow::admit) has counted. An empty chunk in response to
    /// [`Event::Pull`](crate::Event::Pull) means that no data is available yet.
    Chunk {
        /// The streamed response.
        stream: StreamId,
        /// The bytes of the chunk.
        payload: Payload,
        /// Whether the application will push further chunks by itself. The server then sends no
        /// [`Event::Pull`](crate::Event::Pull) until it has received a chunk for which this
        /// field is false, or [`Command::ResumePulls`].
        is_pushing: bool,
    },
    /// Makes the server pull chunks with [`Event::Pull`](crate::Event::Pull) again, because the
    /// application no longer pushes them by itself.
    ResumePulls {
        /// The streamed response.
        stream: StreamId,
    },
    /// Sends the head of a streamed response now, if the head is still waiting for the first chunk.
    SendHead {
        /// The streamed response.
        stream: StreamId,
    },
    /// Marks a streamed response as complete.
    EndStream {
        /// The streamed response.
        stream: StreamId,
    },
    /// Ends a streamed response that cannot be completed. The server sends the earlier chunks and
    /// then closes the stream in a way that shows the client that the response is incomplete. If
    /// nothing has been sent yet, the server responds with status 500 instead.
    AbortStream {
        /// The streamed response.
        stream: StreamId,
        /// [`StreamEnd::Error`], or [`StreamEnd::Slow`], after which the server does not wait until
        /// the earlier chunks have been sent.
        reason: StreamEnd,
        /// The body of the response with status 500, in UTF-8. If it is empty, the server sends its
        /// default page.
        page: Vec<u8>,
    },
}
