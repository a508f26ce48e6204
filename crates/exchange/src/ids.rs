//! The numbers that identify exchanges, listeners, WebSockets and streams.

/// The id of an exchange, which is unique for the life of the process. A WebSocket keeps the id of
/// its opening handshake.
pub type ExchangeId = u64;

/// The id of the listener on which a request arrived.
pub type ListenerId = u32;

/// The id of a WebSocket, which is that of the exchange that opened it.
pub type WebSocketId = ExchangeId;

/// The id of a streamed response, which is that of its exchange.
pub type StreamId = ExchangeId;
