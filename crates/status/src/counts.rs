//! What is counted for whoever asks from another thread. One thread writes each: plain loads and stores, nothing that locks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of histograms, in seconds: those that OpenTelemetry recommends for HTTP.
pub const BOUNDS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// A number that one thread writes.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds to it.
    pub fn add(&self, n: u64) {
        self.set(self.get().wrapping_add(n));
    }

    /// It is this now.
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// What it is.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many took how long.
#[derive(Debug, Default)]
pub struct Histogram {
    /// By [`BOUNDS`], and those above.
    counts: [Count; BOUNDS.len() + 1],
    nanoseconds: Count,
}

impl Histogram {
    /// One took so long.
    pub fn add(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.counts[BOUNDS.partition_point(|bound| *bound < seconds)].add(1);
        self.nanoseconds.add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// How many took no longer than each bound, how many there are, and the seconds of all.
    pub fn read(&self) -> ([u64; BOUNDS.len()], u64, f64) {
        let mut sum = 0;
        let cumulated = std::array::from_fn(|at| {
            sum += self.counts[at].get();
            sum
        });
        let all = sum + self.counts[BOUNDS.len()].get();
        (cumulated, all, Duration::from_nanos(self.nanoseconds.get()).as_secs_f64())
    }
}

/// What there is of [`Classes`], as metrics name them.
pub const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Replies by class of their status.
#[derive(Debug, Default)]
pub struct Classes([Count; 5]);

impl Classes {
    /// A reply of this status.
    pub fn add(&self, status: u16) {
        if let Some(class) = self.0.get(usize::from(status / 100).wrapping_sub(1)) {
            class.add(1);
        }
    }

    /// By [`CLASSES`].
    pub fn read(&self) -> [u64; 5] {
        std::array::from_fn(|at| self.0[at].get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_the_last_that_counts_for_it() {
        let histogram = Histogram::default();
        for milliseconds in [1, 5, 6, 10_000, 10_001] {
            histogram.add(Duration::from_millis(milliseconds));
        }
        let (counts, all, seconds) = histogram.read();
        assert_eq!((counts[0], counts[1], counts[13], all), (2, 3, 4, 5));
        assert!((seconds - 20.013).abs() < 1e-9, "{seconds}");
    }

    #[test]
    fn classes_are_those_of_http() {
        let counts = Classes::default();
        for status in [0, 99, 101, 200, 204, 503, 599, 600, 999, u16::MAX] {
            counts.add(status);
        }
        assert_eq!(counts.read(), [1, 2, 0, 0, 2]);
    }
}
