//! The numbers that identify exchanges (requests with their responses), listeners, WebSockets and
//! streamed responses.

/// The id of an exchange (a request with its response), which is unique for the life of the
/// process. A WebSocket keeps the id of its opening handshake.
pub type ExchangeId = u64;

/// The id of the listener on which a request arrived.
pub type ListenerId = u32;

/// The id of a WebSocket. It equals the id of the opening handshake's exchange.
pub type WebSocketId = ExchangeId;

/// The id of a streamed response. It equals the id of the exchange to which the response belongs.
pub type StreamId = ExchangeId;
