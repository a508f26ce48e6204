//! Counters and histograms that one thread writes and other threads read. Each counter has a single
//! writer, so plain loads and stores suffice, without locked instructions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the buckets of a histogram of durations, in seconds, as OpenTelemetry
/// recommends them for HTTP.
pub const HISTOGRAM_BOUNDS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// A counter in memory that only one thread writes and any thread may read.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Creates a counter with the value 0.
    pub const fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }

    /// Adds `n` to the counter, wrapping around on overflow.
    pub fn add(&self, n: u64) {
        self.set(self.get().wrapping_add(n));
    }

    /// Sets the counter to `n`.
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// Returns the current value of the counter.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A histogram of durations, with the buckets of [`HISTOGRAM_BOUNDS`].
#[derive(Debug, Default)]
#[repr(C)]
pub struct Histogram {
    /// The number of durations in each bucket of [`HISTOGRAM_BOUNDS`]. The last element counts the
    /// durations above the highest bound.
    counts: [Counter; HISTOGRAM_BOUNDS.len() + 1],
    nanoseconds: Counter,
}

impl Histogram {
    /// Creates an empty histogram.
    pub const fn new() -> Histogram {
        Histogram {
            counts: [const { Counter::new() }; HISTOGRAM_BOUNDS.len() + 1],
            nanoseconds: Counter::new(),
        }
    }

    /// Adds a duration to the histogram.
    pub fn add(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.counts[HISTOGRAM_BOUNDS.partition_point(|bound| *bound < seconds)].add(1);
        self.nanoseconds.add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds all counts of another histogram to this one.
    pub fn add_all(&self, other: &Histogram) {
        for (count, more) in self.counts.iter().zip(&other.counts) {
            count.add(more.get());
        }
        self.nanoseconds.add(other.nanoseconds.get());
    }

    /// Returns three values. The first contains, for each bound of [`HISTOGRAM_BOUNDS`], the number
    /// of durations that are at most as long as the bound. The others are the number of all
    /// durations and their sum in seconds.
    pub fn read(&self) -> ([u64; HISTOGRAM_BOUNDS.len()], u64, f64) {
        // Another process may have written any values.
        let mut sum = 0_u64;
        let cumulated = std::array::from_fn(|at| {
            sum = sum.wrapping_add(self.counts[at].get());
            sum
        });
        let all = sum.wrapping_add(self.counts[HISTOGRAM_BOUNDS.len()].get());
        (cumulated, all, Duration::from_nanos(self.nanoseconds.get()).as_secs_f64())
    }
}

/// The names of the classes of status codes in metrics, in the order of [`StatusClassCounters`].
pub const STATUS_CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The number of responses in each class of status codes (1xx to 5xx).
#[derive(Debug, Default)]
#[repr(C)]
pub struct StatusClassCounters([Counter; 5]);

impl StatusClassCounters {
    /// Counts a response with the status code `status`. A status code outside 100 to 599 is not
    /// counted.
    pub fn add(&self, status: u16) {
        if let Some(class) = self.0.get(usize::from(status / 100).wrapping_sub(1)) {
            class.add(1);
        }
    }

    /// Adds the counts of another set of counters to this one.
    pub fn add_all(&self, other: &StatusClassCounters) {
        for (count, more) in self.0.iter().zip(&other.0) {
            count.add(more.get());
        }
    }

    /// Returns the number of responses in each class of status codes, in the order of
    /// [`STATUS_CLASSES`].
    pub fn read(&self) -> [u64; 5] {
        std::array::from_fn(|at| self.0[at].get())
    }
}

/// The numbers of spans that a process has exported, dropped, and not been able to export.
#[derive(Debug, Default)]
#[repr(C)]
pub struct SpanCounters([Counter; 3]);

/// The names of the results of the export of spans in metrics, in the order of [`SpanCounters`].
pub const SPAN_RESULTS: [&str; 3] = ["exported", "dropped", "failed"];

impl SpanCounters {
    /// Sets the numbers, in the order of [`SPAN_RESULTS`].
    pub fn set(&self, counts: [u64; 3]) {
        self.0.iter().zip(counts).for_each(|(counter, count)| counter.set(count));
    }

    /// Adds the counts of another set of counters to this one.
    pub fn add_all(&self, other: &SpanCounters) {
        self.0.iter().zip(&other.0).for_each(|(count, more)| count.add(more.get()));
    }

    /// Returns the numbers, in the order of [`SPAN_RESULTS`].
    pub fn read(&self) -> [u64; 3] {
        std::array::from_fn(|at| self.0[at].get())
    }
}

/// The maximum number of reasons for which a server rejects requests and connections.
pub const MAX_REJECTIONS: usize = 32;

/// The number of rejections by a server for each reason. The reasons are numbered from 0.
#[derive(Debug, Default)]
#[repr(C)]
pub struct RejectionCounters([Counter; MAX_REJECTIONS]);

impl RejectionCounters {
    /// Counts `n` rejections. A reason of [`MAX_REJECTIONS`] or higher is not counted.
    pub fn add(&self, reason: usize, n: u64) {
        if let Some(counter) = self.0.get(reason) {
            counter.add(n);
        }
    }

    /// Adds the counts of another set of counters to this one.
    pub fn add_all(&self, other: &RejectionCounters) {
        self.0.iter().zip(&other.0).for_each(|(count, more)| count.add(more.get()));
    }

    /// Returns the number of rejections for each reason.
    pub fn read(&self) -> [u64; MAX_REJECTIONS] {
        std::array::from_fn(|at| self.0[at].get())
    }
}

/// Metrics of the requests that an application has responded to: the number of responses by class
/// of status code, and histograms of the times in the queue, in the application and in total.
#[derive(Debug, Default)]
pub struct RequestCounters {
    /// The number of responses in each class of status codes.
    pub responses: StatusClassCounters,
    /// A histogram of the time from the arrival of a request until the application began to process
    /// it.
    pub queue_time: Histogram,
    /// A histogram of the time that the application took to respond to a request, from the moment
    /// when it began to process the request.
    pub upstream_time: Histogram,
    /// A histogram of the time from the arrival of a request until the application's response.
    pub request_time: Histogram,
    /// The spans of the process, most of which belong to requests.
    pub spans: SpanCounters,
}

impl RequestCounters {
    /// Records that the application begins to process a request at the time `now`. The request was
    /// passed to the application at the time `handed`, which is 0 if unknown. Both times are in
    /// nanoseconds of the clock [`now`](crate::now).
    pub fn record_begin(&self, handed: u64, now: u64) {
        if handed > 0 {
            self.queue_time.add(Duration::from_nanos(now.saturating_sub(handed)));
        }
    }

    /// Records that the application has responded to a request at the time `now`. `handed` is the
    /// time at which the request was passed to the application, and `begun` the time at which the
    /// application began to process it. Each of these two is 0 if the time is unknown.
    pub fn record_response(&self, status: u16, handed: u64, begun: u64, now: u64) {
        self.responses.add(status);
        if begun > 0 {
            self.upstream_time.add(Duration::from_nanos(now.saturating_sub(begun)));
        }
        if handed > 0 {
            self.request_time.add(Duration::from_nanos(now.saturating_sub(handed)));
        }
    }

    /// Adds the counts of another set of request metrics to this one.
    pub fn add_all(&self, other: &RequestCounters) {
        self.responses.add_all(&other.responses);
        self.spans.add_all(&other.spans);
        self.queue_time.add_all(&other.queue_time);
        self.upstream_time.add_all(&other.upstream_time);
        self.request_time.add_all(&other.request_time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_equal_to_a_bound_counts_in_its_bucket() {
        let histogram = Histogram::default();
        for milliseconds in [1, 5, 6, 10_000, 10_001] {
            histogram.add(Duration::from_millis(milliseconds));
        }
        let (counts, all, seconds) = histogram.read();
        assert_eq!((counts[0], counts[1], counts[13], all), (2, 3, 4, 5));
        assert!((seconds - 20.013).abs() < 1e-9, "{seconds}");
    }

    #[test]
    fn statuses_are_counted_by_class() {
        let counts = StatusClassCounters::default();
        for status in [0, 99, 101, 200, 204, 503, 599, 600, 999, u16::MAX] {
            counts.add(status);
        }
        assert_eq!(counts.read(), [1, 2, 0, 0, 2]);
    }

    #[test]
    fn unknown_times_are_not_recorded() {
        let one = RequestCounters::default();
        one.record_begin(1_000, 2_000);
        one.record_response(200, 1_000, 2_000, 5_000);
        // A request that never began, with an unknown time of arrival.
        one.record_response(503, 0, 0, 9_000);
        assert_eq!(one.responses.read(), [0, 1, 0, 0, 1]);
        assert_eq!(
            [one.queue_time.read().1, one.upstream_time.read().1, one.request_time.read().1],
            [1, 1, 1]
        );
        assert!((one.upstream_time.read().2 - 3e-6).abs() < 1e-12);
    }
}
