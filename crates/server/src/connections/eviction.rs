//! Eviction of the slowest connection: when the connection table is full, and when the memory for
//! connections is used up.

use std::cmp::Reverse;
use std::rc::Rc;

use rookery_exchange::Share;

use super::eviction_candidates::Candidate;
use super::table::{ConnectionTable, TableEntry};

/// The maximum number of candidates for eviction (slow connections) that one search over all
/// connections returns. While the connection table is full, each new connection evicts one
/// candidate, so one search suffices for up to 64 new connections.
const CANDIDATES: usize = 64;

impl ConnectionTable {
    /// Evicts the slowest connection, so that a new one can be admitted. Returns false if every
    /// connection is being served, so that none can be evicted.
    pub(crate) fn free_slot(&self) -> bool {
        self.take_slowest(|_| true).inspect(|slowest| slowest.evict_for_slot()).is_some()
    }

    /// Evicts the slowest connection except the one with the number `serial`, so that this one can
    /// use its memory. Returns false if every other connection is being served.
    pub(super) fn evict_slowest_for_memory(&self, serial: u64) -> bool {
        let slowest = self.take_slowest(|entry| entry.serial() != serial);
        let share = Share::Connections;
        slowest.inspect(|it| it.evict_for_memory(share, it.held(share))).is_some()
    }

    /// Returns the slowest connection that may be evicted, or `None` if every connection is being
    /// served. The connection is no longer a candidate.
    fn take_slowest(
        &self,
        may_evict: impl Fn(&dyn TableEntry) -> bool,
    ) -> Option<Rc<dyn TableEntry>> {
        let now = self.clock.now();
        let mut candidates = self.eviction_candidates.0.borrow_mut();
        for is_search_needed in [false, true] {
            if is_search_needed {
                self.find_slowest(now, &mut candidates);
            }
            while let Some(candidate) = candidates.pop() {
                let Some(entry) = self.get(candidate.key) else { continue };
                // Since the search, the connection may have made progress, or its slot may belong
                // to another connection.
                let is_same = entry.serial() == candidate.age.0;
                let is_as_slow =
                    entry.slowness(now).is_some_and(|ticks| ticks >= candidate.slowness);
                if is_same && is_as_slow && may_evict(&*entry) {
                    return Some(entry);
                }
            }
        }
        None
    }

    fn find_slowest(&self, now: u32, candidates: &mut Vec<Candidate>) {
        self.for_each(|key, entry| {
            let slowness = if entry.is_substream() { None } else { entry.slowness(now) };
            if let Some(slowness) = slowness {
                candidates.push(Candidate { slowness, age: Reverse(entry.serial()), key });
            }
        });
        if candidates.len() > CANDIDATES {
            let rest = candidates.len() - CANDIDATES;
            candidates.select_nth_unstable(rest);
            candidates.drain(..rest);
            candidates.shrink_to(CANDIDATES);
        }
        candidates.sort_unstable();
    }
}
