//! The conditions under which a serving worker is replaced by a new one.

use std::fmt;
use std::time::{Duration, Instant};

use rookery_status::own_memory_beyond;

use super::worker_process::{WorkerPhase, WorkerProcess};

/// The number of consecutive samples, [`SAMPLE_EVERY`] apart, that must exceed the memory limit
/// before a worker is replaced. R returns some memory at its next garbage collection.
const SAMPLES: u32 = 3;
/// The interval of the memory samples that count towards [`SAMPLES`].
const SAMPLE_EVERY: Duration = Duration::from_secs(10);

/// The factor of the memory limit above which a worker is replaced at the first measurement, which
/// is taken every [`LOOK_EVERY`]. Half a minute of requests that each leave 50 MB behind could
/// otherwise use up the machine's memory.
const FAR_TOO_MUCH: u64 = 2;
/// The interval of memory measurements.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The limits at which a worker is replaced. Each worker's limits are up to a tenth lower,
/// depending on its epoch, so that workers that started together are not replaced together.
#[derive(Debug, Clone, Copy, Default)]
pub struct RecyclePolicy {
    /// The maximum number of requests that a worker answers.
    pub requests: Option<u64>,
    /// The maximum time since a worker's start.
    pub age: Option<Duration>,
    /// The maximum memory of a worker, without pages that it shares with other processes.
    pub memory: Option<MemoryLimit>,
}

/// The minimum share of memory for which workers are replaced. An idle R process with its usual
/// packages needs this much, so with a lower limit each new worker would be replaced at once,
/// forever.
const LEAST_SHARE: u64 = 128 << 20;

/// The minimum age at which a worker is replaced for exceeding its share of memory. An app whose
/// first request loads more than the share would otherwise be replaced forever, which ends its
/// sessions.
const SHARE_AGE: Duration = Duration::from_secs(300);

/// The memory limit of a worker, without pages that the worker shares with other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryLimit {
    /// The limit of each worker in bytes.
    Each(u64),
    /// The limit of all workers together in bytes, of which each worker gets an equal share. This
    /// limit applies by default and not on request, so it replaces a worker that grows but not an
    /// app that is large. The share of a worker is therefore at least one and a half times the
    /// memory that the worker had when it was new, a worker is replaced after five minutes at the
    /// earliest, and no worker is replaced if the share is less than 128 MiB.
    Shared(u64),
}

impl MemoryLimit {
    /// Returns the limit for workers in a control group that is limited to `limit` bytes. A fifth
    /// of `limit` is reserved for this process, the page cache and sudden peaks.
    pub fn of_group(limit: u64) -> MemoryLimit {
        MemoryLimit::Shared(limit / 5 * 4)
    }

    /// Returns the limit of each of `workers` workers, in bytes. The number includes spares, and
    /// the additional worker that exists during a replacement. Returns `None` if the share would be
    /// too small to be enforced.
    pub fn each(self, workers: u32) -> Option<u64> {
        match self {
            MemoryLimit::Each(bytes) => Some(bytes),
            MemoryLimit::Shared(bytes) => {
                Some(bytes / u64::from(workers)).filter(|share| *share >= LEAST_SHARE)
            }
        }
    }
}

/// The reason for which a worker is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplaceReason {
    Reload,
    Requests(u64),
    Age(Duration),
    Memory(u64),
}

impl ReplaceReason {
    /// Returns the name of the reason in metrics and reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            ReplaceReason::Reload => "reload",
            ReplaceReason::Requests(_) => "requests",
            ReplaceReason::Age(_) => "age",
            ReplaceReason::Memory(_) => "memory",
        }
    }
}

impl fmt::Display for ReplaceReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplaceReason::Reload => f.write_str("it is reloaded"),
            ReplaceReason::Requests(requests) => write!(f, "it has answered {requests} requests"),
            ReplaceReason::Age(age) => write!(f, "it is {} s old", age.as_secs()),
            ReplaceReason::Memory(bytes) => write!(f, "it has {} MB of memory", bytes / 1_000_000),
        }
    }
}

/// The record of a worker's memory measurements.
#[derive(Debug, Default)]
pub(super) struct MemoryWatch {
    /// The time of the last measurement.
    looked: Option<Instant>,
    /// The time of the last sample.
    sampled: Option<Instant>,
    /// The number of consecutive samples above the limit.
    too_much: u32,
    /// Whether R should collect garbage before the next sample.
    is_to_collect: bool,
    /// The memory in bytes at the first measurement.
    first: Option<u64>,
}

impl RecyclePolicy {
    /// Returns the reason for which a worker should be replaced, or `None`.
    pub(super) fn reason(
        &self,
        worker: &mut WorkerProcess,
        workers: u32,
        now: Instant,
    ) -> Option<ReplaceReason> {
        if worker.phase != WorkerPhase::Ready {
            return None;
        }
        let spread = |most: u64| less(most, worker.start.epoch);
        let answered = worker.backend.responses();
        if self.requests.is_some_and(|most| answered >= spread(most)) {
            return Some(ReplaceReason::Requests(answered));
        }
        let age = now.duration_since(worker.began);
        if self.age.is_some_and(|most| age.as_millis() >= spread(most.as_millis() as u64).into()) {
            return Some(ReplaceReason::Age(age));
        }
        let limit = self.memory?;
        let is_share = matches!(limit, MemoryLimit::Shared(_));
        let most = limit.each(workers)?;
        // A share is raised to one and a half times the first measurement, so the measurement must
        // be exact from two thirds of the share on.
        let bytes =
            worker.age.look(most, is_share, now, || own_memory_beyond(worker.pid, most / 3 * 2));
        bytes.filter(|_| !is_share || age >= SHARE_AGE).map(ReplaceReason::Memory)
    }
}

/// Returns `most` reduced by up to a tenth, by an amount that depends on `start`.
fn less(most: u64, start: u64) -> u64 {
    let chance = start.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    (most - (u128::from(most) * u128::from(chance % 101) / 1000) as u64).max(1)
}

impl MemoryWatch {
    /// Returns true once when R should collect garbage and return free memory, which is before the
    /// sample that decides on the replacement.
    pub(super) fn asks_to_collect(&mut self) -> bool {
        std::mem::take(&mut self.is_to_collect)
    }

    /// Measures the memory, and returns it in bytes if it has exceeded the limit `most` for several
    /// samples or exceeds it by far. With `is_share`, `most` may be less than the app needs, and is
    /// raised to one and a half times the first measurement.
    fn look(
        &mut self,
        most: u64,
        is_share: bool,
        now: Instant,
        memory: impl FnOnce() -> Option<u64>,
    ) -> Option<u64> {
        let is_within = |since: Option<Instant>, time| {
            since.is_some_and(|since| now.duration_since(since) < time)
        };
        if is_within(self.looked, LOOK_EVERY) {
            return None;
        }
        self.looked = Some(now);
        let bytes = memory();
        let first = *self.first.get_or_insert(bytes.unwrap_or(0));
        let most = if is_share { most.max(first + first / 2) } else { most };
        let bytes = bytes.filter(|bytes| *bytes > most);
        // A worker that exceeds the limit when it is new would do so every second, so the immediate
        // replacement does not apply to it.
        if first <= most && bytes.is_some_and(|bytes| bytes / FAR_TOO_MUCH >= most) {
            return bytes;
        }
        if is_within(self.sampled, SAMPLE_EVERY) {
            return None;
        }
        self.sampled = Some(now);
        self.too_much = bytes.map_or(0, |_| self.too_much + 1);
        self.is_to_collect = self.too_much == SAMPLES - 1;
        bytes.filter(|_| self.too_much >= SAMPLES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_less_with_each_worker_and_none_where_it_would_be_too_little() {
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
    fn starts_differ_by_up_to_a_tenth() {
        let all: Vec<u64> = (0..100).map(|start| less(1000, start)).collect();
        assert!(all.iter().all(|most| (900..=1000).contains(most)), "{all:?}");
        assert!(all.iter().collect::<std::collections::HashSet<_>>().len() > 20);
        assert_eq!((less(1, 5), less(0, 5)), (1, 1));
        assert!(less(u64::MAX, 3) > u64::MAX / 10 * 8);
    }

    #[test]
    fn memory_has_to_be_too_much_for_a_while() {
        let mut age = MemoryWatch::default();
        let now = Instant::now();
        let mut look =
            |seconds, bytes| age.look(100, false, now + Duration::from_secs(seconds), || bytes);
        assert_eq!(look(0, Some(101)), None);
        assert_eq!(look(9, Some(199)), None);
        assert_eq!(look(10, Some(101)), None);
        assert_eq!(look(20, Some(99)), None);
        assert_eq!(look(30, Some(150)), None);
        assert!(!age.asks_to_collect());
        let mut look =
            |seconds, bytes| age.look(100, false, now + Duration::from_secs(seconds), || bytes);
        assert_eq!(look(40, Some(150)), None);
        assert!(age.asks_to_collect() && !age.asks_to_collect());
        let mut look =
            |seconds, bytes| age.look(100, false, now + Duration::from_secs(seconds), || bytes);
        assert_eq!(look(50, Some(130)), Some(130));
        assert_eq!(look(60, None), None);
        assert!(!age.asks_to_collect());
    }

    #[test]
    fn an_app_that_has_more_than_its_share_when_it_is_new_may_grow_by_half() {
        let mut age = MemoryWatch::default();
        let now = Instant::now();
        let mut look = |seconds, bytes| {
            age.look(100, true, now + Duration::from_secs(seconds), || Some(bytes))
        };
        for seconds in [0, 10, 20, 30] {
            assert_eq!(look(seconds, 200), None);
        }
        for seconds in [40, 50] {
            assert_eq!(look(seconds, 301), None);
        }
        assert_eq!(look(60, 301), Some(301));
        assert_eq!(look(61, 600), Some(600));
    }

    #[test]
    fn far_too_much_memory_is_not_waited_with() {
        let mut age = MemoryWatch::default();
        let now = Instant::now();
        let mut look = |milliseconds, bytes| {
            age.look(100, false, now + Duration::from_millis(milliseconds), || Some(bytes))
        };
        assert_eq!(look(0, 100), None);
        assert_eq!(look(999, 900), None);
        assert_eq!(look(1000, 199), None);
        assert_eq!(look(2000, 200), Some(200));
    }

    #[test]
    fn an_app_that_has_far_too_much_when_it_is_new_is_not_replaced_each_second() {
        let mut age = MemoryWatch::default();
        let now = Instant::now();
        let mut look = |seconds, bytes| {
            age.look(100, false, now + Duration::from_secs(seconds), || Some(bytes))
        };
        assert_eq!([0, 1, 9, 10, 19].map(|seconds| look(seconds, 300)), [None; 5]);
        assert_eq!(look(20, 300), Some(300));
    }
}
