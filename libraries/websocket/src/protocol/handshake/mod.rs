//! The opening handshake of WebSocket clients and servers (RFC 6455, 4), without I/O.
//!
//! - [`HeadReader`] finds the end of an HTTP head and limits the head's size.
//! - [`ServerConfig`] checks a client's request, which this crate or another HTTP server has
//!   parsed.
//! - [`ClientRequest`] writes a request and checks the response.

mod client;
mod head;
mod key;
mod origin;
mod server;

pub use client::{BadRequest, ClientRequest, Established, HandshakeError};
pub use head::{BadHead, HEAD_MAX, HEADERS_MAX, HeadReader};
pub use key::{AcceptKey, accept_key};
pub use origin::OriginPolicy;
pub use server::{Accepted, Refusal, ServerConfig};

/// Returns the elements of a comma-separated header line, without surrounding spaces and without
/// empty elements.
fn elements(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

#[cfg(test)]
mod tests;
