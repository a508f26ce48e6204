//! New ids of traces and spans.

use std::collections::hash_map::RandomState;
use std::fmt::Write as _;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// The step between two states of a generator: 2^64 divided by the golden ratio (`SplitMix64`).
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A generator of ids. It needs no system call and no lock. The ids are random enough to be unique
/// and to be sampled by their value, but they are no secrets.
#[derive(Debug)]
pub(crate) struct IdGenerator {
    seeds: [u64; 2],
    count: AtomicU64,
}

impl IdGenerator {
    pub(crate) fn new() -> IdGenerator {
        // The hash keys are random, but all children of one fork server share them; the process id
        // distinguishes the children.
        let seed = |salt: u8| RandomState::new().hash_one((std::process::id(), salt));
        IdGenerator { seeds: [seed(0), seed(1)], count: AtomicU64::new(0) }
    }

    pub(crate) fn trace_id(&self) -> [u8; 16] {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let halves = self.seeds.map(|seed| mix(seed.wrapping_add(count.wrapping_mul(STEP))));
        let mut id = [0; 16];
        id[..8].copy_from_slice(&halves[0].to_be_bytes());
        // Odd, so that no id is zero; the lowest bit does not take part in sampling.
        id[8..].copy_from_slice(&(halves[1] | 1).to_be_bytes());
        id
    }

    pub(crate) fn span_id(&self) -> [u8; 8] {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let state = self.seeds[0] ^ self.seeds[1].rotate_left(32);
        (mix(state.wrapping_add(count.wrapping_mul(STEP))) | 1).to_be_bytes()
    }
}

/// Returns a new id of a process for the attribute `service.instance.id`: a random UUID of version
/// 4 (RFC 9562, 5.4).
pub fn instance_id() -> String {
    let mut id = IdGenerator::new().trace_id();
    id[6] = id[6] & 0x0F | 0x40;
    id[8] = id[8] & 0x3F | 0x80;
    let mut text = String::with_capacity(36);
    for (at, byte) in id.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Maps 64 bits to 64 bits without collisions, so that equal steps become unrelated numbers
/// (`SplitMix64`).
fn mix(mut state: u64) -> u64 {
    state = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_unique_and_evenly_distributed() {
        let (ids, others) = (IdGenerator::new(), IdGenerator::new());
        let mut traces = HashSet::new();
        let mut spans = HashSet::new();
        let mut below = 0;
        for _ in 0..10_000 {
            let trace = ids.trace_id();
            below += usize::from(trace[8] < 64);
            assert!(traces.insert(trace) && traces.insert(others.trace_id()));
            assert!(spans.insert(ids.span_id()));
        }
        assert!((2000..3000).contains(&below), "a quarter expected: {below}");
    }
}
