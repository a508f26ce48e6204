//! Yielding the processor, with exponential backoff: yields become rarer while they take long.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A yield of the processor that takes at least this long counts as useless: another program has
/// then probably used a whole time slice (1.5 to 4 ms). The threshold is above 1 ms, because with
/// 100 busy connections the I/O thread or the application's thread may run for that long while the
/// other of these two threads yields.
const LONG_YIELD: Duration = Duration::from_micros(1500);

/// The maximum number of opportunities to yield that are skipped in a row. A useless yield takes
/// about 3 ms, so even with 5,000 opportunities per second, the useless yields that are still made
/// take less than 2 % of the time.
const MAX_SKIPPED: u32 = 1024;

/// Yields the processor, with exponential backoff. A yield that takes 1.5 ms or longer is useless.
/// After a useless yield, the number of opportunities to yield that are skipped is doubled, up to
/// 1,024. After yields that were all shorter, the number is halved.
// A shorter yield does not reset the number to 0: beside a program that computes without pause,
// half of the yields are short, so the number would stay near 0.
#[derive(Debug, Default)]
pub struct AdaptiveYield {
    /// The number of opportunities that are still to be skipped.
    left: AtomicU32,
    /// The number of opportunities to skip after the last recorded result, from which `left` counts
    /// down.
    penalty: AtomicU32,
}

impl AdaptiveYield {
    /// Decides whether the caller yields at this opportunity. Returns true if the caller may yield,
    /// and false if the caller must skip this opportunity. Must be called once per opportunity.
    pub fn admit(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        left == 0
    }

    /// Yields the processor once.
    pub fn yield_once(&self) {
        let mut has_yielded = false;
        self.yield_until(|_| std::mem::replace(&mut has_yielded, true));
    }

    /// Yields the processor until a yield is useless or `is_over` returns true. `is_over` is called
    /// with the current time before each yield.
    pub fn yield_until(&self, mut is_over: impl FnMut(Instant) -> bool) {
        let mut now = Instant::now();
        let mut was_useful = None;
        while was_useful != Some(false) && !is_over(now) {
            std::thread::yield_now();
            let since = std::mem::replace(&mut now, Instant::now());
            was_useful = Some(now - since < LONG_YIELD);
        }
        if let Some(was_useful) = was_useful {
            self.record_result(was_useful);
        }
    }

    fn record_result(&self, was_useful: bool) {
        let penalty = self.penalty.load(Ordering::Relaxed);
        let penalty = if was_useful { penalty / 2 } else { (penalty * 2).clamp(1, MAX_SKIPPED) };
        self.penalty.store(penalty, Ordering::Relaxed);
        self.left.store(penalty, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records each element of `useful` as the result of a yield. Returns the number of
    /// opportunities that were skipped before each of these yields.
    fn skipped_before(yields: &AdaptiveYield, useful: &[bool]) -> Vec<u32> {
        let skipped = |was_useful: &bool| {
            let mut skipped = 0;
            while !yields.admit() {
                skipped += 1;
            }
            yields.record_result(*was_useful);
            skipped
        };
        useful.iter().map(skipped).collect()
    }

    #[test]
    fn useless_yields_double_the_number_of_skipped_opportunities_and_useful_yields_halve_it() {
        let yields = AdaptiveYield::default();
        assert_eq!(skipped_before(&yields, &[true, true, false, true, true]), [0, 0, 0, 1, 0]);
        let doubled = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024];
        assert_eq!(skipped_before(&yields, &[false; 13]), doubled);
        // The yields have become useful again.
        let halved = [1024, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1, 0, 0];
        assert_eq!(skipped_before(&yields, &[true; 13]), halved);
        // Useless and useful yields alternate after two useless ones.
        assert_eq!(skipped_before(&yields, &[false, false, true, false, true]), [0, 1, 2, 1, 2]);
    }
}
