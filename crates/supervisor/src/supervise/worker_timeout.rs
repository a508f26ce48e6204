//! The worker timeout. A worker whose R process is busy with one task for too long is stopped. If
//! configured, R is interrupted first.

use std::time::{Duration, Instant};

use rookery_worker_protocol::{RState, Snapshot};

/// The time that R has to leave its task after an interrupt. Error handlers and `on.exit()` code of
/// the app may need some time.
const TO_COME_OUT: Duration = Duration::from_secs(5);

/// The time that the process has to exit after the request to stop, before it is killed. The time
/// is short because the task that delays the exit has already exceeded its timeout.
pub(super) const TO_END: Duration = Duration::from_secs(5);

/// The worker-timeout state of one worker.
#[derive(Debug, Default)]
pub(super) struct WorkerTimeout {
    /// The scoreboard time at which R began the interrupted task, and the time of the interrupt.
    interrupted: Option<(u64, Instant)>,
    /// The last time at which the process was found stopped by a signal or a debugger, which R
    /// cannot help.
    excused: Option<Instant>,
}

/// The action that the worker timeout requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeoutStep {
    Nothing,
    /// The supervisor interrupts R, which has been busy for this time.
    Interrupt(Duration),
    /// The supervisor assigns requests again, because R has left the interrupted task.
    GoesOn,
    /// The supervisor stops the worker, whose R process has been busy for this time.
    End(Duration),
    /// The supervisor stops the worker, whose R process is still busy after the interrupt.
    EndInterrupted,
}

impl WorkerTimeout {
    /// Returns the action for a worker. R may be busy with one task for `most`; after that the
    /// worker is stopped or, if `interrupts` is true, R is interrupted first. `time` is the current
    /// time of the scoreboard's clock.
    pub(super) fn look(
        &mut self,
        most: Duration,
        interrupts: bool,
        scoreboard: &Snapshot,
        now: Instant,
        time: u64,
        is_stopped: impl FnOnce() -> bool,
    ) -> TimeoutStep {
        let is_busy = scoreboard.r_state != RState::Starting && !scoreboard.is_idle(time);
        if let Some((since, at)) = self.interrupted {
            if !is_busy || scoreboard.since != since {
                self.interrupted = None;
                return TimeoutStep::GoesOn;
            }
            return if now.duration_since(at) >= TO_COME_OUT {
                TimeoutStep::EndInterrupted
            } else {
                TimeoutStep::Nothing
            };
        }
        let lasts = scoreboard.elapsed(time);
        if !is_busy || lasts < most {
            return TimeoutStep::Nothing;
        }
        // Checked last, because the check reads a file in `/proc`.
        if is_stopped() {
            self.excused = Some(now);
        }
        if self.excused.is_some_and(|at| now.duration_since(at) < most) {
            return TimeoutStep::Nothing;
        }
        if !interrupts {
            return TimeoutStep::End(lasts);
        }
        self.interrupted = Some((scoreboard.since, now));
        TimeoutStep::Interrupt(lasts)
    }

    /// Returns true if R has been interrupted and has not left its task.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.is_some()
    }
}

#[cfg(test)]
mod tests {
    use rookery_worker_protocol::SharedScoreboard;

    use super::*;

    const MOST: Duration = Duration::from_secs(60);
    const SECOND: u64 = 1_000_000_000;

    fn scoreboard(r: RState, since: u64) -> Snapshot {
        let (scoreboard, _) = SharedScoreboard::create().unwrap();
        Snapshot { r_state: r, since: since * SECOND, ..scoreboard.read() }
    }

    #[test]
    fn it_is_interrupted_then_ended_and_let_be_when_it_does_something_else() {
        let start = Instant::now();
        let mut stuck = WorkerTimeout::default();
        let mut look = |scoreboard: Snapshot, second: u64| {
            let now = start + Duration::from_secs(second);
            stuck.look(MOST, true, &scoreboard, now, second * SECOND, || false)
        };
        let busy = scoreboard(RState::Busy, 10);
        assert_eq!(look(busy, 69), TimeoutStep::Nothing);
        assert_eq!(look(busy, 70), TimeoutStep::Interrupt(MOST));
        assert_eq!(look(busy, 74), TimeoutStep::Nothing);
        assert_eq!(look(scoreboard(RState::Busy, 74), 74), TimeoutStep::GoesOn);
        // The next task has a timeout of its own.
        assert_eq!(look(scoreboard(RState::Busy, 74), 75), TimeoutStep::Nothing);
        assert_eq!(look(scoreboard(RState::Busy, 74), 134), TimeoutStep::Interrupt(MOST));
        assert_eq!(look(scoreboard(RState::Idle, 136), 136), TimeoutStep::GoesOn);
        assert_eq!(look(scoreboard(RState::Busy, 140), 200), TimeoutStep::Interrupt(MOST));
        assert_eq!(look(scoreboard(RState::Busy, 140), 205), TimeoutStep::EndInterrupted);
    }

    #[test]
    fn without_interrupts_it_is_ended_at_once() {
        let start = Instant::now();
        let mut stuck = WorkerTimeout::default();
        let mut look = |second: u64| {
            let now = start + Duration::from_secs(second);
            stuck.look(MOST, false, &scoreboard(RState::Busy, 10), now, second * SECOND, || false)
        };
        assert_eq!(look(69), TimeoutStep::Nothing);
        assert_eq!(look(70), TimeoutStep::End(MOST));
        assert!(!stuck.is_interrupted());
    }

    #[test]
    fn an_r_that_waits_or_starts_is_not_busy_and_one_in_a_callback_is() {
        let start = Instant::now();
        for (r, expected) in [
            (scoreboard(RState::Starting, 0), TimeoutStep::Nothing),
            (scoreboard(RState::Idle, 100), TimeoutStep::Nothing),
            // R has not renewed its idle state for 90 seconds, so it runs a callback of `later`.
            (scoreboard(RState::Idle, 10), TimeoutStep::Interrupt(Duration::from_secs(90))),
            (scoreboard(RState::Busy, 100), TimeoutStep::Nothing),
        ] {
            let step = WorkerTimeout::default().look(MOST, true, &r, start, 100 * SECOND, || false);
            assert_eq!(step, expected, "{r:?}");
        }
    }

    #[test]
    fn the_time_in_which_somebody_had_stopped_it_does_not_count() {
        let start = Instant::now();
        let mut stuck = WorkerTimeout::default();
        let busy = scoreboard(RState::Busy, 0);
        let mut look = |second: u64, is_stopped: bool| {
            let now = start + Duration::from_secs(second);
            stuck.look(MOST, true, &busy, now, second * SECOND, || is_stopped)
        };
        assert_eq!(look(500, true), TimeoutStep::Nothing);
        assert_eq!(look(559, false), TimeoutStep::Nothing);
        assert_eq!(look(560, false), TimeoutStep::Interrupt(Duration::from_secs(560)));
    }
}
