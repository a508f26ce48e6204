//! The clock of the supervisor. It leaves out the time for which this process and its workers were
//! frozen, for example by `docker pause`, by the freezer of control groups, or by SIGSTOP for all
//! of them. No worker could work in this time, so the time must not count against any time limit.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rookery_worker_protocol::now as scoreboard_time;

/// The minimum time by which an iteration of the main loop must be late to count as frozen. An
/// overloaded machine delays iterations for shorter times.
const MIN_FREEZE: Duration = Duration::from_secs(1);

/// The maximum number of freezes whose times are known. Only these freezes shorten a task of R that
/// has lasted since before the oldest of them.
const MAX_KNOWN: usize = 100;

thread_local! {
    /// The freezes of the supervisor that runs on this thread.
    static FREEZES: RefCell<Freezes> = RefCell::default();
}

/// Returns the time of the supervisor's clock. All deadlines of the supervisor are times of this
/// clock.
pub(crate) fn now() -> Instant {
    let now = Instant::now();
    FREEZES.with_borrow(|freezes| now.checked_sub(freezes.total).unwrap_or(now))
}

/// Converts a time of the supervisor's clock, such as a deadline, to the system's clock.
pub(crate) fn to_system(time: Instant) -> Instant {
    FREEZES.with_borrow(|freezes| time + freezes.total)
}

/// Returns the current time of the scoreboard's clock, in nanoseconds, without the freezes since
/// the time `since` of that clock.
pub(crate) fn scoreboard_time_after(since: u64) -> u64 {
    let frozen = FREEZES.with_borrow(|freezes| freezes.after(since));
    scoreboard_time().saturating_sub(frozen).max(since)
}

/// Detects freezes by late iterations of the main loop.
#[derive(Debug)]
pub(super) struct FreezeDetector {
    last: Instant,
}

impl FreezeDetector {
    pub(super) fn new() -> FreezeDetector {
        FREEZES.take();
        FreezeDetector { last: Instant::now() }
    }

    /// Begins an iteration of the main loop, which was due `pause` after the last one at the
    /// latest. If the iteration is so late that the process must have been frozen, the supervisor's
    /// clock leaves out the delay, and this function returns it.
    pub(super) fn begin_iteration(&mut self, pause: Duration) -> Option<Duration> {
        let now = Instant::now();
        let late = now.duration_since(std::mem::replace(&mut self.last, now)).checked_sub(pause)?;
        (late >= MIN_FREEZE).then(|| {
            FREEZES.with_borrow_mut(|freezes| freezes.add(late, scoreboard_time()));
            late
        })
    }
}

#[derive(Debug, Default)]
struct Freezes {
    total: Duration,
    /// The ends of the last freezes on the scoreboard's clock, and their lengths, in nanoseconds.
    known: VecDeque<(u64, u64)>,
}

impl Freezes {
    fn add(&mut self, length: Duration, end: u64) {
        self.total += length;
        if self.known.len() == MAX_KNOWN {
            self.known.pop_front();
        }
        self.known.push_back((end, u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)));
    }

    /// Returns the nanoseconds of the known freezes that were after a time of the scoreboard's
    /// clock.
    fn after(&self, since: u64) -> u64 {
        let overlaps =
            self.known.iter().map(|(end, length)| end.saturating_sub(since).min(*length));
        overlaps.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_shortened_by_the_freezes_during_it() {
        let mut freezes = Freezes::default();
        for (end, length) in [(100, 20), (200, 50)] {
            freezes.add(Duration::from_nanos(length), end);
        }
        // The freezes since these times: both, both, half of the first and the second, the second,
        // the end of the second, none.
        for (since, expected) in [(0, 70), (80, 70), (90, 60), (100, 50), (199, 1), (250, 0)] {
            assert_eq!(freezes.after(since), expected, "{since}");
        }
        assert_eq!(freezes.total, Duration::from_nanos(70));
    }

    #[test]
    fn only_the_last_freezes_are_kept() {
        let mut freezes = Freezes::default();
        (0..1000).for_each(|end| freezes.add(Duration::from_nanos(1), 10 + end));
        assert_eq!(freezes.known.len(), MAX_KNOWN);
        assert_eq!(freezes.after(0), MAX_KNOWN as u64);
    }

    #[test]
    fn a_late_iteration_stops_the_clock() {
        let mut detector = FreezeDetector::new();
        let pause = Duration::from_secs(1);
        assert_eq!(detector.begin_iteration(pause), None);
        let (before, since) = (now(), scoreboard_time());
        // This stands for a process that was frozen for ten seconds.
        detector.last -= Duration::from_secs(10);
        let frozen = detector.begin_iteration(pause).unwrap();
        assert!(frozen >= Duration::from_secs(9));
        assert!(now() < before && to_system(now()) > before);
        let long_before = since - Duration::from_secs(12).as_nanos() as u64;
        assert!((long_before..since).contains(&scoreboard_time_after(long_before)));
        assert!(scoreboard_time_after(since + 60) >= since + 60);
        assert_eq!(detector.begin_iteration(pause), None);
        FreezeDetector::new();
        assert!(now() > before);
    }
}
