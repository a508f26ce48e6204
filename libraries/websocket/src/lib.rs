#![cfg_attr(feature = "tokio", doc = include_str!("../README.md"))]
//!
//! # Layers
//! - [`protocol`] turns bytes into events, without I/O: it has no socket, clock, randomness or
//!   async runtime.
//! - [`endpoint`] is one side of a connection from the handshake to the close, also without I/O.
//!   This project's server drives an endpoint with its own sockets.
//! - `Connection` (feature `tokio`, on by default) drives an endpoint over any
//!   `AsyncRead + AsyncWrite` of tokio, as a server (`accept`) or as a client (`connect`).

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "tokio")]
mod connection;
pub mod endpoint;
#[cfg(feature = "tokio")]
mod interop;
pub mod protocol;

#[cfg(feature = "tokio")]
pub use connection::{
    Canceller, Chunk, ClientConfig, Config, Connection, Error, KeepAlive, Kind, Message,
    MessageWriter, Outgoing, OwnedMessage, Parts, Reader, SendStatus, Sender, Writer, accept,
    client, connect, connect_any,
};
#[cfg(feature = "tokio")]
pub use endpoint::Statistics;
#[cfg(feature = "tokio")]
pub use interop::ByteStream;
#[cfg(feature = "stream")]
pub use interop::MessageStream;
#[cfg(feature = "tls")]
pub use interop::{connect_tls, rustls};
