//! When a worker that serves is replaced by a new one.

use std::fmt;
use std::time::{Duration, Instant};

use rookery_status::own_memory_beyond;

use super::worker_process::{WorkerPhase, WorkerProcess};

/// So many looks in a row have to find too much memory, this far apart: R gives some back at its next collection.
const SAMPLES: u32 = 3;
const SAMPLE_EVERY: Duration = Duration::from_secs(10);

/// So many times what it may have is too much at the first look, and it is looked for that this often: half a minute of requests that
/// each leave 50 MB behind would take the machine's memory.
const FAR_TOO_MUCH: u64 = 2;
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// When a worker is replaced; each is up to a tenth less, by its start, so that workers that started together do not go together.
#[derive(Debug, Clone, Copy, Default)]
pub struct RecyclePolicy {
    /// Requests that it has answered.
    pub requests: Option<u64>,
    /// How long ago it was started.
    pub age: Option<Duration>,
    /// Memory that is its own.
    pub memory: Option<MemoryLimit>,
}

/// An R with its usual packages has that much when it has done nothing yet: less would have each new one replaced at once, for ever.
const LEAST_SHARE: u64 = 128 << 20;

/// For so long a worker is not replaced for its share: an app whose first request loads what takes more would be replaced for ever, and
/// its sessions with it.
const SHARE_AGE: Duration = Duration::from_secs(300);

/// How much memory of its own a worker may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryLimit {
    /// So many bytes.
    Each(u64),
    /// Its share of what all may have together, which is so many bytes. Nobody has asked for that, so it is for a worker that grows and
    /// not for an app that is large: half as much as it had when it was new is its own in any case, it is left alone for five minutes,
    /// and none is replaced where the share is less than 128 MiB.
    Shared(u64),
}

impl MemoryLimit {
    /// Of a control group that may have `limit`: a fifth of it is for this process, files and what comes suddenly.
    pub fn of_group(limit: u64) -> MemoryLimit {
        MemoryLimit::Shared(limit / 5 * 4)
    }

    /// For each of so many: those that serve, spares, and the one that is there while it takes the place of another.
    pub fn each(self, workers: u32) -> Option<u64> {
        match self {
            MemoryLimit::Each(bytes) => Some(bytes),
            MemoryLimit::Shared(bytes) => {
                Some(bytes / u64::from(workers)).filter(|share| *share >= LEAST_SHARE)
            }
        }
    }
}

/// Why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplaceReason {
    Reload,
    Requests(u64),
    Age(Duration),
    Memory(u64),
}

impl ReplaceReason {
    /// As machines are told.
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

/// What is known of a worker's memory.
#[derive(Debug, Default)]
pub(super) struct MemoryWatch {
    looked: Option<Instant>,
    sampled: Option<Instant>,
    too_much: u32,
    is_to_collect: bool,
    /// What it had at the first look.
    first: Option<u64>,
}

impl RecyclePolicy {
    /// Why a worker is to be replaced, if it is.
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
        // A share is raised to one and a half of what the first look has found, which must be exact then.
        let bytes =
            worker.age.look(most, is_share, now, || own_memory_beyond(worker.pid, most / 3 * 2));
        bytes.filter(|_| !is_share || age >= SHARE_AGE).map(ReplaceReason::Memory)
    }
}

/// Up to a tenth less, differently for each `start`.
fn less(most: u64, start: u64) -> u64 {
    let chance = start.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    (most - (u128::from(most) * u128::from(chance % 101) / 1000) as u64).max(1)
}

impl MemoryWatch {
    /// Whether its R is to be asked, once, to give back what it does not need: the next look judges.
    pub(super) fn asks_to_collect(&mut self) -> bool {
        std::mem::take(&mut self.is_to_collect)
    }

    /// The memory it has, if that has been too much for long, or is far too much. A share may be less than the app needs.
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
        // An app that has too much when it is new has it each second.
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
