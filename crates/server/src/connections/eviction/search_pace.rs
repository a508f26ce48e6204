//! The pace of the searches over all entries of the connection table that a network may cause.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use rookery_exchange::ById;

/// The number of entries below which a search is not limited, because it takes less than 0.1 ms.
pub(super) const SHORT_SEARCH: usize = 1024;

/// The pause of a network after a search, for each entry. An entry takes 0.02 to 0.08 us, so the
/// searches for a network take at most a twenty-fifth of the I/O thread's time. Tests, which may
/// run slowly beside others, have longer pauses.
const PAUSE: Duration = Duration::from_micros(if cfg!(test) { 1000 } else { 2 });

/// The number of networks beyond which those are forgotten whose pauses are over.
const MANY_NETWORKS: usize = 256;

/// The networks for which no search of one kind is made for some time, because no other network was
/// larger when they caused the last one. What needs a search meanwhile is refused, as if the search
/// had found nothing.
#[derive(Debug, Default)]
pub(in crate::connections) struct SearchPace(RefCell<ById<Instant>>);

impl SearchPace {
    /// Returns true if no search may be made for `network` now.
    pub(super) fn is_paused(&self, network: u64) -> bool {
        let until = self.0.borrow().get(&network).copied();
        until.is_some_and(|until| until > Instant::now())
    }

    /// Makes no search for `network` for some time, because one over `entries` entries has just
    /// been made.
    pub(super) fn pause(&self, network: u64, entries: usize) {
        if entries >= SHORT_SEARCH {
            self.pause_at(Instant::now(), network, entries);
        }
    }

    fn pause_at(&self, now: Instant, network: u64, entries: usize) {
        let mut pauses = self.0.borrow_mut();
        if pauses.len() >= MANY_NETWORKS {
            pauses.retain(|_, until| *until > now);
        }
        pauses.insert(network, now + PAUSE * u32::try_from(entries).unwrap_or(u32::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_pauses_after_a_long_search() {
        let pace = SearchPace::default();
        pace.pause(1, 100_000_000);
        assert!(pace.is_paused(1) && !pace.is_paused(2));
        pace.pause(2, SHORT_SEARCH - 1);
        assert!(!pace.is_paused(2), "a short search needs no pause");
        // Networks whose pauses are over are forgotten.
        let start = Instant::now();
        for network in 0..1000_u32 {
            pace.pause_at(start + (10_001 * PAUSE) * network, u64::from(network), 10_000);
        }
        assert!(pace.0.borrow().len() <= MANY_NETWORKS);
    }
}
