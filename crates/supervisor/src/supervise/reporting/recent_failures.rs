//! The number of workers that failed within the last minute.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The period for which failures of workers are counted.
const PERIOD: Duration = Duration::from_secs(60);

/// The maximum number of failures of workers that are remembered for the count.
const MAX_FAILURES: usize = 1000;

/// The times at which workers failed within the last minute.
#[derive(Debug, Default)]
pub(in crate::supervise) struct RecentFailures(VecDeque<Instant>);

impl RecentFailures {
    /// Counts a failure of a worker at the time `now`.
    pub(in crate::supervise) fn add(&mut self, now: Instant) {
        if self.0.len() == MAX_FAILURES {
            self.0.pop_front();
        }
        self.0.push_back(now);
    }

    /// Forgets the failures of workers that are older than a minute, and returns the number of the
    /// newer ones.
    pub(in crate::supervise) fn expire(&mut self, now: Instant) -> usize {
        while self.0.front().is_some_and(|at| now.duration_since(*at) > PERIOD) {
            self.0.pop_front();
        }
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_the_failures_of_the_last_minute_up_to_a_maximum() {
        let (mut failures, start) = (RecentFailures::default(), Instant::now());
        failures.add(start);
        failures.add(start + PERIOD);
        assert_eq!(failures.expire(start + PERIOD), 2);
        assert_eq!(failures.expire(start + PERIOD + Duration::from_millis(1)), 1);
        (0..2000).for_each(|_| failures.add(start + PERIOD));
        assert_eq!(failures.expire(start + PERIOD), MAX_FAILURES);
    }
}
