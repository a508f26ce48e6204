//! The list of slow connections from which the next connection to be evicted is taken.

use std::cell::RefCell;
use std::cmp::Reverse;

/// The slowest connections that the last search over all connections found, with the slowest at the
/// end.
#[derive(Debug, Default)]
pub(in crate::connections) struct EvictionCandidates(pub(super) RefCell<Vec<Candidate>>);

/// A slow connection that may be evicted. Candidates are ordered by the time for which they have
/// made no progress and, if it is equal, by their age. The greatest is evicted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    pub(super) slowness: u32,
    pub(super) age: Reverse<u64>,
    pub(super) key: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_sorted_by_slowness_and_then_by_age() {
        let candidate = |slowness, serial| Candidate { slowness, age: Reverse(serial), key: 0 };
        let mut all = [candidate(5, 9), candidate(7, 3), candidate(7, 2), candidate(0, 1)];
        all.sort_unstable();
        assert_eq!(all.map(|candidate| candidate.age.0), [1, 9, 3, 2]);
    }
}
