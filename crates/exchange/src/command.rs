//! The commands that the application (the code that responds to requests) sends to the server.

use crate::event::MessageKind;
use crate::exchange::Exchange;
use crate::ids::{ExchangeId, ListenerId, StreamId, WebSocketId};
use crate::payload::Payload;
use crate::stream_flow_control::StreamEnd;

/// A command from the application to the server. The server ignores a command for a WebSocket or a
/// streamed response that has already ended.
#[derive(Debug)]
pub enum Command {
    /// Sends the response in this [`Exchange`] (a request with its response) to the client. For an
    /// opening handshake, a response with status 101 accepts the WebSocket.
    Respond(Box<Exchange>),
    /// Makes the server read the whole body of a request of which the application has received only
    /// the head ([`Event::Head`](crate::Event::Head)). The server then sends the complete request
    /// as [`Event::Request`](crate::Event::Request).
    ReadBody(Box<Exchange>),
    /// Makes the server send the body of a request in chunks to the application, which has received
    /// only the request's head ([`Event::Head`](crate::Event::Head)). The application keeps the
    /// [`Exchange`] of the request and may respond at any time.
    StreamBody {
        /// The id of the request whose body is to be streamed.
        exchange: ExchangeId,
        /// The listener on which the request arrived.
        listener: ListenerId,
        /// The [slot](Exchange::slot) of the request: its index in the server's table of requests
        /// in flight.
        slot: u32,
    },
    /// Reports that the application has processed a chunk of a streamed request body
    /// ([`Event::Body`](crate::Event::Body)). The server may then send as many further bytes of the
    /// body as the chunk contained.
    BodyConsumed {
        /// The id of the request whose body is streamed.
        exchange: ExchangeId,
        /// The length in bytes of the chunk that the application has processed.
        bytes: usize,
    },
    /// Sends a message to a WebSocket.
    Send {
        /// The id of the WebSocket to which the message is sent.
        socket: WebSocketId,
        /// Whether the WebSocket message is text or binary.
        kind: MessageKind,
        /// The content of the WebSocket message. It is valid UTF-8 if the message is text.
        payload: Payload,
    },
    /// Sends a ping to the peer of a WebSocket, unless earlier data for that peer is still waiting
    /// to be sent.
    Ping {
        /// The id of the WebSocket to which the ping is sent.
        socket: WebSocketId,
    },
    /// Starts the closing handshake of a WebSocket.
    Close {
        /// The id of the WebSocket to close.
        socket: WebSocketId,
        /// The close code for the close frame (RFC 6455, 7.4).
        code: u16,
        /// The reason in the close frame, in UTF-8 and at most 123 bytes long.
        reason: Vec<u8>,
    },
    /// Closes the connection of a WebSocket at once, without sending a close frame.
    Abort {
        /// The id of the WebSocket whose connection is closed.
        socket: WebSocketId,
    },
    /// Sends the next chunk of a streamed response. Before sending this command, the application
    /// must count the chunk with [`StreamFlow::admit`](crate::StreamFlow::admit). If the server has
    /// asked for a chunk with [`Event::Pull`](crate::Event::Pull) and no data is available yet, the
    /// application sends an empty chunk.
    Chunk {
        /// The id of the streamed response to which the chunk belongs.
        stream: StreamId,
        /// The bytes of this chunk of a streamed response.
        payload: Payload,
        /// Whether the application will send further chunks of this streamed response without being
        /// asked. If so, the server stops asking for chunks with
        /// [`Event::Pull`](crate::Event::Pull). It begins to ask again after a chunk for which this
        /// field is false, or after [`Command::ResumePulls`].
        is_pushing: bool,
    },
    /// Makes the server request chunks of a streamed response with
    /// [`Event::Pull`](crate::Event::Pull) again, because the application no longer sends them by
    /// itself.
    ResumePulls {
        /// The id of the streamed response whose chunks the server is to request.
        stream: StreamId,
    },
    /// Sends the head of a streamed response now. Without this command, the server may send the
    /// head together with the first chunk.
    SendHead {
        /// The id of the streamed response whose head is sent.
        stream: StreamId,
    },
    /// Marks a streamed response as complete.
    EndStream {
        /// The id of the streamed response that is complete.
        stream: StreamId,
    },
    /// Ends a streamed response that cannot be completed. The server sends the earlier chunks and
    /// then closes the stream in a way that shows the client that the response is incomplete. If
    /// nothing has been sent yet, the server responds with status 500 instead.
    AbortStream {
        /// The id of the streamed response that cannot be completed.
        stream: StreamId,
        /// The reason why the streamed response is aborted: [`StreamEnd::Error`] or
        /// [`StreamEnd::Slow`]. With `Slow`, the server discards the chunks that are still waiting
        /// to be sent.
        reason: StreamEnd,
        /// The body of the response with status 500 that replaces the failed streamed response, in
        /// UTF-8. If it is empty, the server sends its default error page.
        page: Vec<u8>,
    },
}

impl Command {
    /// Returns the id of the exchange, the WebSocket or the stream that the command concerns.
    pub fn id(&self) -> ExchangeId {
        match self {
            Command::Respond(exchange) | Command::ReadBody(exchange) => exchange.id(),
            Command::StreamBody { exchange, .. } | Command::BodyConsumed { exchange, .. } => {
                *exchange
            }
            Command::Send { socket, .. }
            | Command::Ping { socket }
            | Command::Close { socket, .. }
            | Command::Abort { socket } => *socket,
            Command::Chunk { stream, .. }
            | Command::ResumePulls { stream }
            | Command::SendHead { stream }
            | Command::EndStream { stream }
            | Command::AbortStream { stream, .. } => *stream,
        }
    }
}
