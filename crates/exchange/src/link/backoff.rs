//! Exponential backoff for attempts that are cheap when they succeed.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The duration from which a yield of the processor counts as useless. Another program has then
/// probably used a whole time slice (1.5 to 4 ms). The threshold is above 1 ms, because with 100
/// busy connections the other thread of this process may use the processor for that long.
pub const LONG_YIELD: Duration = Duration::from_micros(1500);

/// The maximum number of yields that are skipped in a row. A useless yield takes about 3 ms, so
/// even if there are 5,000 occasions to yield per second, the useless yields that are still made
/// take less than 2 % of the time.
pub const MAX_SKIPPED_YIELDS: u32 = 1024;

/// A counter that decides which attempts of something are skipped. After each useless attempt,
/// twice as many are skipped as before, up to a maximum. After each useful one, half as many are
/// skipped.
// A useful attempt does not reset the number to 0: beside a program that computes without pause,
// half of the yields are short.
#[derive(Debug)]
pub struct Backoff {
    max: u32,
    /// The number of attempts that are still to be skipped.
    left: AtomicU32,
    /// The number of attempts that the last recorded result has caused to be skipped.
    penalty: AtomicU32,
}

impl Backoff {
    /// Creates a counter by which at most `max` attempts in a row are skipped.
    pub const fn new(max: u32) -> Backoff {
        Backoff { max, left: AtomicU32::new(0), penalty: AtomicU32::new(0) }
    }

    /// Counts an attempt that is due. Returns true if it is to be made, and false if it is to be
    /// skipped.
    pub fn admit(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        left == 0
    }

    /// Records whether the last attempt was useful.
    pub fn record_result(&self, was_useful: bool) {
        let penalty = self.penalty.load(Ordering::Relaxed);
        let penalty = if was_useful { penalty / 2 } else { (penalty * 2).clamp(1, self.max) };
        self.penalty.store(penalty, Ordering::Relaxed);
        self.left.store(penalty, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes one attempt for each element of `useful`, and records the element as the result of the
    /// attempt. Returns the number of skipped attempts before each of them.
    fn skipped_before(backoff: &Backoff, useful: &[bool]) -> Vec<u32> {
        let skipped = |was_useful: &bool| {
            let mut skipped = 0;
            while !backoff.admit() {
                skipped += 1;
            }
            backoff.record_result(*was_useful);
            skipped
        };
        useful.iter().map(skipped).collect()
    }

    #[test]
    fn useless_attempts_double_the_number_of_skipped_ones_and_useful_attempts_halve_it() {
        let backoff = Backoff::new(64);
        assert_eq!(skipped_before(&backoff, &[true, true, false, true, true]), [0, 0, 0, 1, 0]);
        assert_eq!(skipped_before(&backoff, &[false; 10]), [0, 1, 2, 4, 8, 16, 32, 64, 64, 64]);
        // The attempts have become useful again.
        assert_eq!(skipped_before(&backoff, &[true; 9]), [64, 32, 16, 8, 4, 2, 1, 0, 0]);
        // Every second attempt is useless.
        assert_eq!(skipped_before(&backoff, &[false, false, true, false, true]), [0, 1, 2, 1, 2]);
    }
}
