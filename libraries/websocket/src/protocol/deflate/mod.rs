//! The WebSocket extension permessage-deflate (RFC 7692): its negotiation, compression and
//! decompression.
//!
//! A compression state of zlib-rs takes 371 KiB, and a decompression state less than 48 KiB. By
//! default, a connection therefore does not keep these states from one message to the next (no
//! context takeover). It takes a state from a pool of the thread while a message is being
//! processed.

mod deflater;
mod inflater;
mod negotiation;

pub use deflater::{Deflater, Fin};
pub use inflater::Inflater;
pub use negotiation::{Agreed, DeflateConfig, Level, Offer, Refused, Takeover, WindowBits};

/// The bytes at the end of each compressed message, which are removed before sending (RFC 7692,
/// 7.2.1).
const TAIL: [u8; 4] = [0x00, 0x00, 0xFF, 0xFF];

/// The maximum number of compression states that a thread keeps for reuse. A connection holds a
/// state only while a message is incomplete, so a thread rarely needs more than one. The limit
/// bounds the memory that remains in use after a burst.
const POOLED_STATES: usize = 8;

#[cfg(test)]
mod tests;
