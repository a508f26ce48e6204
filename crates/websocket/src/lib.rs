//! The WebSocket protocol (RFC 6455) with permessage-deflate (RFC 7692), and nothing allocated per frame.
//!
//! [`protocol`] is sans-IO: bytes in, events out, no socket, no clock, no randomness and no async
//! runtime; and so is [`endpoint`], one end of a connection from the handshake to its end. This
//! project's server drives it with its own sockets; [`Connection`] drives it over any
//! `AsyncRead + AsyncWrite` of tokio (feature `tokio`, on by default), as a server ([`accept`]) or a
//! client ([`connect`]).

#[cfg(feature = "tokio")]
mod connection;
pub mod endpoint;
pub mod protocol;

#[cfg(feature = "tokio")]
pub use connection::{
    Canceller, Chunk, ClientConfig, Config, Connection, Error, KeepAlive, Kind, Message,
    MessageWriter, Outgoing, Parts, Prepared, Reader, SendStatus, Sender, Writer, accept, client,
    connect, connect_any,
};
#[cfg(feature = "tokio")]
pub use endpoint::Statistics;
