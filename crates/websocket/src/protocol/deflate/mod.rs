//! permessage-deflate (RFC 7692): what is agreed on, and the two directions.
//!
//! A compressor's state is large: zlib-rs takes 371 KiB for one, and less than 48 KiB for the other
//! direction. So the default is no context takeover either way: then a state is needed only while a
//! message is being read or written, and comes from a pool of the thread.

mod deflater;
mod inflater;
mod negotiation;

pub use deflater::{Deflater, Fin};
pub use inflater::Inflater;
pub use negotiation::{Agreed, DeflateConfig, Level, Offer, Refused, Takeover, WindowBits};

/// What ends every message on the wire and is left out (RFC 7692, 7.2.1).
const TAIL: [u8; 4] = [0x00, 0x00, 0xFF, 0xFF];

/// States kept by a thread for its next message. A connection holds one only while a message is half read or half
/// written, so a thread rarely needs more than one; eight states of 371 KiB bound what a burst
/// leaves behind.
const POOLED_STATES: usize = 8;

#[cfg(test)]
mod tests;
