//! What is counted for whoever asks from another thread. One thread writes each: plain loads and stores, nothing that locks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of histograms, in seconds: those that OpenTelemetry recommends for HTTP.
pub const HISTOGRAM_BOUNDS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// A number that one thread writes.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Counter(AtomicU64);

impl Counter {
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
#[repr(C)]
pub struct Histogram {
    /// By [`HISTOGRAM_BOUNDS`], and those above.
    counts: [Counter; HISTOGRAM_BOUNDS.len() + 1],
    nanoseconds: Counter,
}

impl Histogram {
    /// One took so long.
    pub fn add(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.counts[HISTOGRAM_BOUNDS.partition_point(|bound| *bound < seconds)].add(1);
        self.nanoseconds.add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds all of another.
    pub fn add_all(&self, other: &Histogram) {
        for (count, more) in self.counts.iter().zip(&other.counts) {
            count.add(more.get());
        }
        self.nanoseconds.add(other.nanoseconds.get());
    }

    /// How many took no longer than each bound, how many there are, and the seconds of all.
    pub fn read(&self) -> ([u64; HISTOGRAM_BOUNDS.len()], u64, f64) {
        let mut sum = 0;
        let cumulated = std::array::from_fn(|at| {
            sum += self.counts[at].get();
            sum
        });
        let all = sum + self.counts[HISTOGRAM_BOUNDS.len()].get();
        (cumulated, all, Duration::from_nanos(self.nanoseconds.get()).as_secs_f64())
    }
}

/// What there is of [`StatusClassCounters`], as metrics name them.
pub const STATUS_CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Replies by class of their status.
#[derive(Debug, Default)]
#[repr(C)]
pub struct StatusClassCounters([Counter; 5]);

impl StatusClassCounters {
    /// A reply of this status.
    pub fn add(&self, status: u16) {
        if let Some(class) = self.0.get(usize::from(status / 100).wrapping_sub(1)) {
            class.add(1);
        }
    }

    /// Adds all of another.
    pub fn add_all(&self, other: &StatusClassCounters) {
        for (count, more) in self.0.iter().zip(&other.0) {
            count.add(more.get());
        }
    }

    /// By [`STATUS_CLASSES`].
    pub fn read(&self) -> [u64; 5] {
        std::array::from_fn(|at| self.0[at].get())
    }
}

/// The requests that an application has answered, by class of status and by how long they took.
#[derive(Debug, Default)]
#[repr(C)]
pub struct RequestCounters {
    /// By class of status.
    pub responses: StatusClassCounters,
    /// From a request's coming to its being begun.
    pub queue_time: Histogram,
    /// From there to its answer.
    pub upstream_time: Histogram,
    /// Both together.
    pub request_time: Histogram,
}

impl RequestCounters {
    /// The application begins with a request that was handed over at a time, or at 0 if that is not known. Times are those of
    /// [`now`](crate::now).
    pub fn record_begin(&self, handed: u64, now: u64) {
        if handed > 0 {
            self.queue_time.add(Duration::from_nanos(now.saturating_sub(handed)));
        }
    }

    /// The application has answered a request with a status, which it has begun at a time, or at 0 if it has not.
    pub fn record_response(&self, status: u16, handed: u64, begun: u64, now: u64) {
        self.responses.add(status);
        if begun > 0 {
            self.upstream_time.add(Duration::from_nanos(now.saturating_sub(begun)));
        }
        if handed > 0 {
            self.request_time.add(Duration::from_nanos(now.saturating_sub(handed)));
        }
    }

    /// Adds all of another.
    pub fn add_all(&self, other: &RequestCounters) {
        self.responses.add_all(&other.responses);
        self.queue_time.add_all(&other.queue_time);
        self.upstream_time.add_all(&other.upstream_time);
        self.request_time.add_all(&other.request_time);
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
        let counts = StatusClassCounters::default();
        for status in [0, 99, 101, 200, 204, 503, 599, 600, 999, u16::MAX] {
            counts.add(status);
        }
        assert_eq!(counts.read(), [1, 2, 0, 0, 2]);
    }

    #[test]
    fn a_tally_is_the_sum_of_others() {
        let (sum, one) = (RequestCounters::default(), RequestCounters::default());
        one.record_begin(1_000, 2_000);
        one.record_response(200, 1_000, 2_000, 5_000);
        // Never begun, and of an unknown time.
        one.record_response(503, 0, 0, 9_000);
        sum.add_all(&one);
        sum.add_all(&one);
        assert_eq!(sum.responses.read(), [0, 2, 0, 0, 2]);
        assert_eq!(
            [sum.queue_time.read().1, sum.upstream_time.read().1, sum.request_time.read().1],
            [2, 2, 2]
        );
        assert!((sum.upstream_time.read().2 - 6e-6).abs() < 1e-12);
    }
}
