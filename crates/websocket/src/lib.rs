//! The WebSocket protocol (RFC 6455) with permessage-deflate (RFC 7692), for servers and clients.
//! Reading or writing a frame allocates nothing at steady state.
//!
//! - [`protocol`] turns bytes into events, without I/O: it has no socket, clock, randomness or
//!   async runtime.
//! - [`endpoint`] is one side of a connection from the handshake to the close, also without I/O.
//!   This project's server drives an endpoint with its own sockets.
//! - [`Connection`] drives an endpoint over any `AsyncRead + AsyncWrite` of tokio (feature `tokio`,
//!   on by default), as a server ([`accept`]) or as a client ([`connect`]).

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
