//! A timer that limits how often a log line is repeated.

use std::time::{Duration, Instant};

/// A timer that limits how often a log line is repeated, for example about the drain of a worker.
#[derive(Debug, Default)]
pub(crate) struct LogTimer {
    /// The time of the next log line and the interval after it.
    next: Option<(Instant, Duration)>,
}

impl LogTimer {
    /// Returns true if the log line is due now. It is due at once for the first time, and then
    /// after each `interval`.
    pub(crate) fn tick(&mut self, now: Instant, interval: Duration) -> bool {
        let is_due = self.next.is_none_or(|(at, _)| now >= at);
        if is_due {
            self.next = Some((now + interval, interval));
        }
        is_due
    }

    /// Returns true if the log line is due now. It is first due when `first` has passed since the
    /// first call, and then after intervals that double each time.
    pub(crate) fn tick_doubling(&mut self, now: Instant, first: Duration) -> bool {
        let (at, interval) = *self.next.get_or_insert((now + first, first));
        let is_due = now >= at;
        if is_due {
            self.next = Some((now + interval, interval * 2));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn logs_at_once_and_then_in_equal_intervals() {
        let (mut timer, start) = (LogTimer::default(), Instant::now());
        let due = (0..12).filter(|at| timer.tick(start + SECOND * *at, SECOND * 5));
        assert_eq!(due.collect::<Vec<_>>(), [0, 5, 10]);
    }

    #[test]
    fn logs_in_doubling_intervals_after_the_first() {
        let (mut timer, start) = (LogTimer::default(), Instant::now());
        let due = (0..45).filter(|at| timer.tick_doubling(start + SECOND * *at, SECOND * 5));
        assert_eq!(due.collect::<Vec<_>>(), [5, 10, 20, 40]);
    }
}
