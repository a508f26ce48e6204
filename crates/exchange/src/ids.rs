//! The numbers that identify exchanges, listeners, WebSockets and streams.

/// Names an exchange for the life of the process. A WebSocket keeps the id of its opening handshake.
pub type ExchangeId = u64;

/// Names the listener an exchange came in on.
pub type ListenerId = u32;

/// Names a WebSocket: the id of the exchange that opened it.
pub type WebSocketId = ExchangeId;

/// Names a reply that comes in pieces: the id of its exchange.
pub type StreamId = ExchangeId;
