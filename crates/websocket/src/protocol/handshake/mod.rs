//! The opening handshake (RFC 6455, 4), both sides, sans-IO.
//!
//! [`HeadReader`] finds the end of a head in what has come and bounds it; [`ServerConfig`] judges a request that was parsed
//! here or by somebody else's HTTP; [`ClientRequest`] writes a request and judges the response.

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

/// The elements of a comma-separated header line, without their spaces; empty ones are skipped.
fn elements(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

#[cfg(test)]
mod tests;
