//! The slow log, which reports when R is busy with one task for a long time, so that an operator
//! can see why pages do not respond. The task is not interrupted, because long tasks are
//! legitimate.

use std::time::Duration;

use rookery_worker_protocol::{RState, Snapshot};

/// The time before the limit of the slow log at which the processor time of R's thread is first
/// read, at most half of the limit, so that the slow log can report whether R has used any
/// processor time since.
const SAMPLE_BEFORE: Duration = Duration::from_secs(3);

/// The slow log of one worker, which reports long tasks of R.
#[derive(Debug, Default)]
pub(super) struct SlowLog {
    /// The time at which R began the task that was logged last, and the task's duration at the last
    /// check.
    logged: Option<(u64, Duration)>,
    /// A measurement of the processor time of R's thread: the time at which R began its task, the
    /// time of the measurement, and the processor time.
    sample: Option<(u64, u64, Duration)>,
}

/// An entry of the slow log, which reports long tasks of R.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlowLogEntry {
    /// The slow log has nothing to report.
    Nothing,
    /// R has been busy with one task for this time. The second value is true if R computes, false
    /// if R waits, and `None` if the system does not report the processor time.
    Busy(Duration, Option<bool>),
    /// R has ended the long task that was logged, which lasted at least for this time.
    Finished(Duration),
}

impl SlowLog {
    /// Returns the slow-log entry that is due. A task is logged after the time `limit`.
    /// `scoreboard` is the state that the worker publishes in shared memory, `time` is the current
    /// time on the scoreboard's clock, and `r_time` reads the processor time of R's thread.
    pub(super) fn check(
        &mut self,
        limit: Duration,
        scoreboard: &Snapshot,
        time: u64,
        r_time: impl FnOnce() -> Option<Duration>,
    ) -> SlowLogEntry {
        let busy = scoreboard.elapsed(time);
        let is_busy = scoreboard.r_state != RState::Starting && !scoreboard.is_idle(time);
        if let Some((since, seen)) = &mut self.logged {
            if is_busy && *since == scoreboard.since {
                *seen = busy;
                return SlowLogEntry::Nothing;
            }
            let seen = *seen;
            self.logged = None;
            return SlowLogEntry::Finished(seen);
        }
        if !is_busy || busy < limit.saturating_sub(SAMPLE_BEFORE.min(limit / 2)) {
            return SlowLogEntry::Nothing;
        }
        let earlier = self.sample.filter(|(since, _, _)| *since == scoreboard.since);
        if busy < limit {
            if earlier.is_none() {
                self.sample = r_time().map(|used| (scoreboard.since, time, used));
            }
            return SlowLogEntry::Nothing;
        }
        self.logged = Some((scoreboard.since, busy));
        let computes = earlier.and_then(|(_, at, before)| {
            let (used, of) =
                (r_time()?.saturating_sub(before), Duration::from_nanos(time.saturating_sub(at)));
            // On a busy machine, even a thread that computes all the time gets only part of a
            // processor.
            (!of.is_zero()).then(|| used >= of / 10)
        });
        SlowLogEntry::Busy(busy, computes)
    }
}

#[cfg(test)]
mod tests {
    use rookery_worker_protocol::SharedScoreboard;

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const LIMIT: Duration = Duration::from_secs(10);

    fn scoreboard(r: RState, since: u64) -> Snapshot {
        let scoreboard = SharedScoreboard::private();
        Snapshot { r_state: r, since: since * SECOND, ..scoreboard.read() }
    }

    #[test]
    fn logs_a_long_task_once_and_its_end() {
        for (a_second, computes) in [(1000, true), (0, false), (50, false), (150, true)] {
            let mut slow = SlowLog::default();
            let mut check = |scoreboard: Snapshot, second: u64| {
                slow.check(LIMIT, &scoreboard, second * SECOND, || {
                    Some(Duration::from_millis(second * a_second))
                })
            };
            let busy = scoreboard(RState::Busy, 10);
            for second in [10, 16, 17, 19] {
                assert_eq!(check(busy, second), SlowLogEntry::Nothing);
            }
            assert_eq!(
                check(busy, 20),
                SlowLogEntry::Busy(Duration::from_secs(10), Some(computes))
            );
            assert_eq!(
                (check(busy, 21), check(busy, 60)),
                (SlowLogEntry::Nothing, SlowLogEntry::Nothing)
            );
            assert_eq!(
                check(scoreboard(RState::Busy, 61), 61),
                SlowLogEntry::Finished(Duration::from_secs(50))
            );
            assert_eq!(check(scoreboard(RState::Busy, 61), 62), SlowLogEntry::Nothing);
            // Without an earlier measurement, the log cannot report whether R computed.
            assert_eq!(
                check(scoreboard(RState::Busy, 70), 90),
                SlowLogEntry::Busy(Duration::from_secs(20), None)
            );
            assert_eq!(
                check(scoreboard(RState::Idle, 91), 91),
                SlowLogEntry::Finished(Duration::from_secs(20))
            );
            assert_eq!(check(scoreboard(RState::Idle, 91), 91), SlowLogEntry::Nothing);
        }
    }

    #[test]
    fn a_short_limit_leaves_time_for_a_measurement() {
        let (mut slow, busy) = (SlowLog::default(), scoreboard(RState::Busy, 10));
        let mut check = |time: u64| {
            let used = Some(Duration::from_nanos(time));
            slow.check(Duration::from_secs(2), &busy, time, || used)
        };
        assert_eq!(check(10 * SECOND + SECOND / 2), SlowLogEntry::Nothing);
        assert_eq!(check(11 * SECOND + SECOND / 2), SlowLogEntry::Nothing);
        assert_eq!(check(12 * SECOND), SlowLogEntry::Busy(Duration::from_secs(2), Some(true)));
    }

    #[test]
    fn logs_long_callbacks_and_no_long_start() {
        let check = |scoreboard: &Snapshot| {
            SlowLog::default().check(LIMIT, scoreboard, 100 * SECOND, || None)
        };
        assert_eq!(check(&scoreboard(RState::Starting, 0)), SlowLogEntry::Nothing);
        assert_eq!(check(&scoreboard(RState::Idle, 100)), SlowLogEntry::Nothing);
        assert_eq!(
            check(&scoreboard(RState::Idle, 50)),
            SlowLogEntry::Busy(Duration::from_secs(50), None)
        );
    }
}
