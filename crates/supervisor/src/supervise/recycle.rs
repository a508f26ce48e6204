//! The conditions under which a serving worker is replaced by a new one.

use std::time::{Duration, Instant};

use rookery_status::own_memory_beyond;

use super::replace_reason::ReplaceReason;

/// The number of consecutive samples, [`SAMPLE_EVERY`] apart, that must exceed the memory limit
/// before a worker is replaced. One sample does not suffice, because R may still return memory at
/// its next garbage collection.
const SAMPLES: u32 = 3;
/// The interval at which a measurement of a worker's memory counts as one of the [`SAMPLES`].
const SAMPLE_EVERY: Duration = Duration::from_secs(10);

/// The multiple of its memory limit at which a worker is replaced after a single measurement,
/// because its memory may grow so fast that the machine's memory is used up before several samples
/// have been taken.
const IMMEDIATE_FACTOR: u64 = 2;
/// The interval at which a worker's memory is measured.
const MEASURE_EVERY: Duration = Duration::from_secs(1);

/// The limits at which a worker is replaced. Each worker's limits are up to a tenth lower, by an
/// amount that varies with its start, so that workers that started together are not replaced
/// together.
#[derive(Debug, Clone, Copy, Default)]
pub struct RecyclePolicy {
    /// The maximum number of requests that a worker answers.
    pub requests: Option<u64>,
    /// The maximum time since a worker's start.
    pub age: Option<Duration>,
    /// The maximum memory of a worker, without pages that it shares with other processes.
    pub memory: Option<MemoryLimit>,
}

/// The smallest share of a common memory limit, in bytes, that is enforced for a worker. An idle R
/// process with its usual packages needs this much memory, so with a smaller limit each new worker
/// would be replaced at once.
const MIN_SHARE: u64 = 128 << 20;

/// The minimum age of a worker that is replaced because it exceeds its share of the common memory
/// limit. If an app's first request alone loads more than the share, each new worker would
/// otherwise be replaced soon after its start, and its sessions would end.
const SHARE_AGE: Duration = Duration::from_secs(300);

/// The memory limit of a worker, without pages that the worker shares with other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryLimit {
    /// The limit of each worker in bytes.
    Each(u64),
    /// The limit of all workers together in bytes, of which each worker gets an equal share. This
    /// limit applies by default, so it must replace workers whose memory grows, but not workers of
    /// an app that always needs much memory. Three exceptions serve this purpose:
    ///
    /// - The limit of a worker is at least one and a half times the memory that it had when it was
    ///   new.
    /// - A worker is not replaced in its first five minutes.
    /// - No worker is replaced if the share is less than 128 MiB.
    Shared(u64),
}

impl MemoryLimit {
    /// Returns the memory limit for the workers in a control group that may use `limit` bytes. A
    /// fifth of `limit` is reserved for this process, the page cache and sudden peaks.
    pub fn of_group(limit: u64) -> MemoryLimit {
        MemoryLimit::Shared(limit / 5 * 4)
    }

    /// Returns the memory limit of each worker in bytes, or `None` if each worker's share of a
    /// common limit would be too small to be enforced. `workers` is the maximum number of workers,
    /// including spares and the additional worker that exists during a replacement.
    pub fn each(self, workers: u32) -> Option<u64> {
        match self {
            MemoryLimit::Each(bytes) => Some(bytes),
            MemoryLimit::Shared(bytes) => {
                Some(bytes / u64::from(workers)).filter(|share| *share >= MIN_SHARE)
            }
        }
    }
}

/// The measurements of one worker's memory.
#[derive(Debug, Default)]
pub(crate) struct MemoryWatch {
    /// The time of the last measurement of the worker's memory.
    measured: Option<Instant>,
    /// The time of the last measurement that counts as a sample.
    sampled: Option<Instant>,
    /// The number of consecutive samples above the worker's memory limit.
    exceeded: u32,
    /// Whether the worker's R process should collect garbage before the next sample.
    needs_collection: bool,
    /// The worker's memory in bytes at the first measurement.
    first: Option<u64>,
}

/// The age and the number of requests of a worker, which a [`RecyclePolicy`] limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkerUsage {
    /// The worker's process id.
    pub(crate) pid: libc::pid_t,
    /// The worker's epoch: the number of its start among all starts of workers.
    pub(crate) epoch: u64,
    /// The number of requests that the worker has answered.
    pub(crate) requests: u64,
    /// The time since the worker's start.
    pub(crate) age: Duration,
}

impl RecyclePolicy {
    /// Returns the reason for which a ready worker should be replaced, or `None`. `memory` contains
    /// the worker's earlier memory measurements. `workers` is the maximum number of workers that
    /// run at the same time.
    pub(crate) fn reason(
        &self,
        worker: WorkerUsage,
        memory: &mut MemoryWatch,
        workers: u32,
        now: Instant,
    ) -> Option<ReplaceReason> {
        let WorkerUsage { pid, epoch, requests, age } = worker;
        let spread = |most: u64| less(most, epoch);
        if self.requests.is_some_and(|most| requests >= spread(most)) {
            return Some(ReplaceReason::Requests(requests));
        }
        if self.age.is_some_and(|most| age.as_millis() >= spread(most.as_millis() as u64).into()) {
            return Some(ReplaceReason::Age(age));
        }
        let limit = self.memory?;
        let is_share = matches!(limit, MemoryLimit::Shared(_));
        let most = limit.each(workers)?;
        // A share is raised to one and a half times the first measurement, so the measurement must
        // be exact from two thirds of the share on.
        let bytes = memory.check(most, is_share, now, || own_memory_beyond(pid, most / 3 * 2));
        bytes.filter(|_| !is_share || age >= SHARE_AGE).map(ReplaceReason::Memory)
    }
}

/// Returns the limit `most`, reduced by up to a tenth. The reduction depends on `start`, the number
/// of the worker's start, so that workers do not all reach their limits at the same time.
fn less(most: u64, start: u64) -> u64 {
    let chance = start.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    (most - (u128::from(most) * u128::from(chance % 101) / 1000) as u64).max(1)
}

impl MemoryWatch {
    /// Returns true if the worker's R process should collect garbage now, because the next
    /// measurement decides whether the worker is replaced. Further calls return false.
    pub(crate) fn take_collection_request(&mut self) -> bool {
        std::mem::take(&mut self.needs_collection)
    }

    /// Measures the worker's memory in bytes with the function `memory`, at most once in
    /// [`MEASURE_EVERY`]. Returns the result if the worker must be replaced: either several
    /// consecutive samples have exceeded the limit `most`, or this measurement exceeds it by far.
    /// If `is_share` is true, `most` is the worker's share of a common limit. The app may need more
    /// than this share, so the limit is then at least one and a half times the first measurement.
    fn check(
        &mut self,
        most: u64,
        is_share: bool,
        now: Instant,
        memory: impl FnOnce() -> Option<u64>,
    ) -> Option<u64> {
        let is_within = |since: Option<Instant>, time| {
            since.is_some_and(|since| now.duration_since(since) < time)
        };
        if is_within(self.measured, MEASURE_EVERY) {
            return None;
        }
        self.measured = Some(now);
        let bytes = memory();
        let first = *self.first.get_or_insert(bytes.unwrap_or(0));
        let most = if is_share { most.max(first + first / 2) } else { most };
        let bytes = bytes.filter(|bytes| *bytes > most);
        // A worker that exceeds the limit when it is new would do so every second, so the immediate
        // replacement does not apply to it.
        if first <= most && bytes.is_some_and(|bytes| bytes / IMMEDIATE_FACTOR >= most) {
            return bytes;
        }
        if is_within(self.sampled, SAMPLE_EVERY) {
            return None;
        }
        self.sampled = Some(now);
        self.exceeded = bytes.map_or(0, |_| self.exceeded + 1);
        self.needs_collection = self.exceeded == SAMPLES - 1;
        bytes.filter(|_| self.exceeded >= SAMPLES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_memory_shrinks_with_the_workers_and_has_a_minimum() {
        let group = MemoryLimit::of_group(5_000_000_000);
        assert_eq!(group, MemoryLimit::Shared(4_000_000_000));
        assert_eq!(group.each(4), Some(1_000_000_000));
        assert_eq!(group.each(5), Some(800_000_000));
        assert_eq!(group.each(101), None);
        assert_eq!(MemoryLimit::of_group(512 << 20).each(3), Some((512 << 20) / 5 * 4 / 3));
        assert_eq!(MemoryLimit::of_group(479 << 20).each(3), None);
        assert_eq!(MemoryLimit::Each(5).each(2000), Some(5));
    }

    #[test]
    fn limits_of_workers_differ_by_up_to_a_tenth() {
        let all: Vec<u64> = (0..100).map(|start| less(1000, start)).collect();
        assert!(all.iter().all(|most| (900..=1000).contains(most)), "{all:?}");
        assert!(all.iter().collect::<std::collections::HashSet<_>>().len() > 20);
        assert_eq!((less(1, 5), less(0, 5)), (1, 1));
        assert!(less(u64::MAX, 3) > u64::MAX / 10 * 8);
    }

    #[test]
    fn replaces_a_worker_that_exceeds_its_memory_limit_three_times() {
        let mut watch = MemoryWatch::default();
        let now = Instant::now();
        let mut check =
            |seconds, bytes| watch.check(100, false, now + Duration::from_secs(seconds), || bytes);
        assert_eq!(check(0, Some(101)), None);
        assert_eq!(check(9, Some(199)), None);
        assert_eq!(check(10, Some(101)), None);
        assert_eq!(check(20, Some(99)), None);
        assert_eq!(check(30, Some(150)), None);
        assert!(!watch.take_collection_request());
        let mut check =
            |seconds, bytes| watch.check(100, false, now + Duration::from_secs(seconds), || bytes);
        assert_eq!(check(40, Some(150)), None);
        assert!(watch.take_collection_request() && !watch.take_collection_request());
        let mut check =
            |seconds, bytes| watch.check(100, false, now + Duration::from_secs(seconds), || bytes);
        assert_eq!(check(50, Some(130)), Some(130));
        assert_eq!(check(60, None), None);
        assert!(!watch.take_collection_request());
    }

    #[test]
    fn an_app_that_starts_above_its_share_may_grow_by_half() {
        let mut watch = MemoryWatch::default();
        let now = Instant::now();
        let mut check = |seconds, bytes| {
            watch.check(100, true, now + Duration::from_secs(seconds), || Some(bytes))
        };
        for seconds in [0, 10, 20, 30] {
            assert_eq!(check(seconds, 200), None);
        }
        for seconds in [40, 50] {
            assert_eq!(check(seconds, 301), None);
        }
        assert_eq!(check(60, 301), Some(301));
        assert_eq!(check(61, 600), Some(600));
    }

    #[test]
    fn replaces_a_worker_at_twice_its_memory_limit_at_once() {
        let mut watch = MemoryWatch::default();
        let now = Instant::now();
        let mut check = |milliseconds, bytes| {
            watch.check(100, false, now + Duration::from_millis(milliseconds), || Some(bytes))
        };
        assert_eq!(check(0, 100), None);
        assert_eq!(check(999, 900), None);
        assert_eq!(check(1000, 199), None);
        assert_eq!(check(2000, 200), Some(200));
    }

    #[test]
    fn a_worker_that_starts_far_above_its_limit_is_not_replaced_each_second() {
        let mut watch = MemoryWatch::default();
        let now = Instant::now();
        let mut check = |seconds, bytes| {
            watch.check(100, false, now + Duration::from_secs(seconds), || Some(bytes))
        };
        assert_eq!([0, 1, 9, 10, 19].map(|seconds| check(seconds, 300)), [None; 5]);
        assert_eq!(check(20, 300), Some(300));
    }
}
