//! The slow log, which reports when R is busy with one task for a long time. No action follows,
//! because long tasks are legitimate. The log explains to an operator why pages do not respond, as
//! the slow log of other servers does.

use std::time::Duration;

use rookery_worker_protocol::{RState, Snapshot};

/// The duration after which a task is logged. A waiting user begins to wonder after this time.
const LONG: Duration = Duration::from_secs(10);

/// The time before [`LONG`] at which the processor time of R's thread is first read, so that the
/// log can report whether R has used any since.
const BEFORE: Duration = Duration::from_secs(3);

/// The slow-log state of one worker.
#[derive(Debug, Default)]
pub(super) struct SlowLog {
    /// The scoreboard time at which R began the logged task, and the task's duration when last
    /// seen.
    told: Option<(u64, Duration)>,
    /// The scoreboard time at which R began its task, the scoreboard time of a measurement, and the
    /// processor time of R's thread at that measurement.
    used: Option<(u64, u64, Duration)>,
}

/// The message that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlowLogEntry {
    Nothing,
    /// R has been busy with one task for this time. The second value is true if R computes, false
    /// if R waits, and `None` if the system does not report the processor time.
    Long(Duration, Option<bool>),
    /// R has ended the logged task, which lasted at least for this time.
    Over(Duration),
}

impl SlowLog {
    /// Returns the message that is due. `time` is the current time of the scoreboard's clock, and
    /// `used` reads the processor time of R's thread.
    pub(super) fn look(
        &mut self,
        scoreboard: &Snapshot,
        time: u64,
        used: impl FnOnce() -> Option<Duration>,
    ) -> SlowLogEntry {
        let lasts = scoreboard.elapsed(time);
        let is_busy = scoreboard.r_state != RState::Starting && !scoreboard.is_idle(time);
        if let Some((since, seen)) = &mut self.told {
            if is_busy && *since == scoreboard.since {
                *seen = lasts;
                return SlowLogEntry::Nothing;
            }
            let seen = *seen;
            self.told = None;
            return SlowLogEntry::Over(seen);
        }
        if !is_busy || lasts < LONG.saturating_sub(BEFORE) {
            return SlowLogEntry::Nothing;
        }
        let earlier = self.used.filter(|(since, _, _)| *since == scoreboard.since);
        if lasts < LONG {
            if earlier.is_none() {
                self.used = used().map(|used| (scoreboard.since, time, used));
            }
            return SlowLogEntry::Nothing;
        }
        self.told = Some((scoreboard.since, lasts));
        let computes = earlier.and_then(|(_, at, before)| {
            let (used, of) =
                (used()?.saturating_sub(before), Duration::from_nanos(time.saturating_sub(at)));
            // On a busy machine, even a thread that computes all the time gets only part of a
            // processor.
            (!of.is_zero()).then(|| used >= of / 10)
        });
        SlowLogEntry::Long(lasts, computes)
    }
}

#[cfg(test)]
mod tests {
    use rookery_worker_protocol::SharedScoreboard;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn scoreboard(r: RState, since: u64) -> Snapshot {
        let (scoreboard, _) = SharedScoreboard::create().unwrap();
        Snapshot { r_state: r, since: since * SECOND, ..scoreboard.read() }
    }

    #[test]
    fn what_takes_long_is_told_once_and_when_it_is_over() {
        for (a_second, computes) in [(1000, true), (0, false), (50, false), (150, true)] {
            let mut slow = SlowLog::default();
            let mut look = |scoreboard: Snapshot, second: u64| {
                slow.look(&scoreboard, second * SECOND, || {
                    Some(Duration::from_millis(second * a_second))
                })
            };
            let busy = scoreboard(RState::Busy, 10);
            for second in [10, 16, 17, 19] {
                assert_eq!(look(busy, second), SlowLogEntry::Nothing);
            }
            assert_eq!(look(busy, 20), SlowLogEntry::Long(Duration::from_secs(10), Some(computes)));
            assert_eq!(
                (look(busy, 21), look(busy, 60)),
                (SlowLogEntry::Nothing, SlowLogEntry::Nothing)
            );
            assert_eq!(
                look(scoreboard(RState::Busy, 61), 61),
                SlowLogEntry::Over(Duration::from_secs(50))
            );
            assert_eq!(look(scoreboard(RState::Busy, 61), 62), SlowLogEntry::Nothing);
            // Without an earlier measurement, the log cannot report whether R computed.
            assert_eq!(
                look(scoreboard(RState::Busy, 70), 90),
                SlowLogEntry::Long(Duration::from_secs(20), None)
            );
            assert_eq!(
                look(scoreboard(RState::Idle, 91), 91),
                SlowLogEntry::Over(Duration::from_secs(20))
            );
            assert_eq!(look(scoreboard(RState::Idle, 91), 91), SlowLogEntry::Nothing);
        }
    }

    #[test]
    fn a_start_takes_what_it_takes_and_a_callback_of_laters_is_told() {
        let look =
            |scoreboard: &Snapshot| SlowLog::default().look(scoreboard, 100 * SECOND, || None);
        assert_eq!(look(&scoreboard(RState::Starting, 0)), SlowLogEntry::Nothing);
        assert_eq!(look(&scoreboard(RState::Idle, 100)), SlowLogEntry::Nothing);
        assert_eq!(
            look(&scoreboard(RState::Idle, 50)),
            SlowLogEntry::Long(Duration::from_secs(50), None)
        );
    }
}
