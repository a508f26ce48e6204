//! The numbers that identify exchanges (requests with their responses), listeners, WebSockets and
//! streamed responses, and maps whose keys are such numbers.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// The id of an exchange (a request with its response), which is unique for the life of the
/// process. A WebSocket keeps the id of its opening handshake.
pub type ExchangeId = u64;

/// The id of the listener on which a request arrived.
pub type ListenerId = u32;

/// The id of a WebSocket. It equals the id of the opening handshake's exchange.
pub type WebSocketId = ExchangeId;

/// The id of a streamed response. It equals the id of the exchange to which the response belongs.
pub type StreamId = ExchangeId;

/// A map whose keys are ids of exchanges. Its hash function is fast and not protected against
/// chosen keys. That is safe, because clients cannot choose the ids.
pub type ById<T> = HashMap<ExchangeId, T, BuildHasherDefault<IdHasher>>;

/// The hasher of [`ById`]. It multiplies an id by an odd constant, so that both the lowest and the
/// highest bits of the hash are well distributed, as the map requires.
#[derive(Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("ids are numbers")
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = id.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}
