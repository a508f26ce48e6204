//! permessage-deflate (RFC 7692): negotiation, compression and decompression.
//!
//! A compression state is large: zlib-rs allocates 371 KiB for compression and less than 48 KiB for
//! decompression. The default is therefore no context takeover in either direction. Then a state is
//! needed only while a message is being processed, and comes from a pool of the thread.

mod deflater;
mod inflater;
mod negotiation;

pub use deflater::{Deflater, Fin};
pub use inflater::Inflater;
pub use negotiation::{Agreed, DeflateConfig, Level, Offer, Refused, Takeover, WindowBits};

/// The bytes that end each compressed message and are not sent (RFC 7692, 7.2.1).
const TAIL: [u8; 4] = [0x00, 0x00, 0xFF, 0xFF];

/// The number of states that a thread keeps. A connection holds a state only while a message is
/// incomplete, so a thread rarely needs more than one. Eight states of 371 KiB limit the memory
/// that remains after a burst.
const POOLED_STATES: usize = 8;

#[cfg(test)]
mod tests;
