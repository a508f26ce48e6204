//! The lists of connections from which the next connection to be evicted is taken. A search over
//! all connections fills a list, which suffices for up to [`CANDIDATES`] evictions.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;

use rookery_exchange::ById;

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

/// The connections that searches found as the cheapest of networks. They are used only within the
/// tick of the clock in which they were found, so that few connections are found too late that cost
/// less.
#[derive(Debug, Default)]
pub(in crate::connections) struct CheapestConnections {
    /// The tick of the searches.
    tick: Cell<u32>,
    /// The connections of each network with their keys. All of one network cost the same, and the
    /// one that is evicted next is at the end.
    found: RefCell<ById<Vec<(Rank, usize)>>>,
}

/// The maximum number of networks whose cheapest connections are kept.
const MAX_NETWORKS: usize = 16;

impl CheapestConnections {
    /// Removes and returns the connection of a network that is evicted next, if one is left of a
    /// search in this tick of the clock.
    pub(super) fn pop(&self, now: u32, network: u64) -> Option<(Rank, usize)> {
        self.forget_before(now);
        self.found.borrow_mut().get_mut(&network)?.pop()
    }

    /// Keeps the connections that a search in this tick of the clock has found.
    pub(super) fn keep(&self, now: u32, network: u64, mut connections: Vec<(Rank, usize)>) {
        self.forget_before(now);
        keep_greatest(&mut connections);
        let mut found = self.found.borrow_mut();
        if found.len() >= MAX_NETWORKS {
            found.clear();
        }
        found.insert(network, connections);
    }

    fn forget_before(&self, now: u32) {
        if self.tick.replace(now) != now {
            self.found.take();
        }
    }
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
    fn what_a_search_has_found_is_used_in_the_same_tick_only() {
        let cheapest = CheapestConnections::default();
        let found = || (0..2).map(|at| ((Reverse(EvictionCost::Idle), None, at), 7)).collect();
        for now in [5, 6] {
            cheapest.keep(now, 1, found());
            assert_eq!(cheapest.pop(now, 1).map(|((.., serial), _)| serial), Some(1));
            assert_eq!(cheapest.pop(now, 2), None, "another network");
        }
        assert_eq!(cheapest.pop(7, 1), None);
    }

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
