//! The lists of connections from which the next connection to be evicted is taken. A search over
//! all connections fills a list, which suffices for up to [`CANDIDATES`] evictions.

use std::cell::RefCell;
use std::cmp::Reverse;

use super::cost::EvictionCost;

/// The maximum number of candidates for eviction that one search over all connections returns.
/// While the connection table is full, each new connection evicts one candidate.
pub(super) const CANDIDATES: usize = 64;

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

/// The connections that one search found as the cheapest of a network. All of them cost the same.
/// The one that is evicted next is at the end.
#[derive(Debug, Default)]
pub(in crate::connections) struct CheapestConnections(pub(super) RefCell<Cheapest>);

#[derive(Debug, Default)]
pub(super) struct Cheapest {
    /// The number of the network.
    pub(super) network: u64,
    /// The connections with their keys.
    pub(super) found: Vec<(Rank, usize)>,
}

/// The order in which connections of a network are evicted: those that cost the least, and of these
/// the slowest, and of those that are being served the newest. The greatest is evicted first.
pub(super) type Rank = (Reverse<EvictionCost>, Option<u32>, u64);

/// Keeps the [`CANDIDATES`] greatest of a list, in ascending order.
pub(super) fn keep_greatest<T: Ord>(list: &mut Vec<T>) {
    if list.len() > CANDIDATES {
        let rest = list.len() - CANDIDATES;
        list.select_nth_unstable(rest);
        list.drain(..rest);
        list.shrink_to(CANDIDATES);
    }
    list.sort_unstable();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_of_a_long_list_are_kept() {
        let mut list: Vec<usize> = (0..500).map(|at| at * 7 % 500).collect();
        keep_greatest(&mut list);
        assert_eq!(list, (500 - CANDIDATES..500).collect::<Vec<_>>());
    }

    #[test]
    fn candidates_are_sorted_by_slowness_and_then_by_age() {
        let candidate = |slowness, serial| Candidate { slowness, age: Reverse(serial), key: 0 };
        let mut all = [candidate(5, 9), candidate(7, 3), candidate(7, 2), candidate(0, 1)];
        all.sort_unstable();
        assert_eq!(all.map(|candidate| candidate.age.0), [1, 9, 3, 2]);
    }
}
