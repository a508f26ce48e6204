//! A worker whose R has been busy with one task for too long: it is ended, or interrupted first where that is asked for.

use std::time::{Duration, Instant};

use rookery_worker_protocol::{RState, Snapshot};

/// What R has to come out of what it does, once it has been interrupted: a handler may have something to put in order.
const TO_COME_OUT: Duration = Duration::from_secs(5);

/// What the process has to end once it has been asked, before it is killed. What could take longer has been interrupted already.
pub(super) const TO_END: Duration = Duration::from_secs(5);

/// What is known of one worker.
#[derive(Debug, Default)]
pub(super) struct WorkerTimeout {
    /// What R was interrupted in, by when it began with it, and when that was.
    interrupted: Option<(u64, Instant)>,
    /// When the process was found stopped last: R cannot help that.
    excused: Option<Instant>,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeoutStep {
    Nothing,
    /// To interrupt R, which has been busy for so long.
    Interrupt(Duration),
    /// To give it work again: it does something else now.
    GoesOn,
    /// To end it, since R has been busy for so long.
    End(Duration),
    /// To end it, since R is still busy after it was interrupted.
    EndInterrupted,
}

impl WorkerTimeout {
    /// Returns what is to be done about a worker whose R process may be busy for `most`, and is
    /// interrupted before the worker is ended if `interrupts`; `time` is the scoreboard's.
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
        // Only now: it is a file to read.
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

    /// Whether R has been interrupted, and has not come out of what it does.
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
        // What it does now has a time of its own.
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
            // It has not said so anew: it runs a callback of later's.
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
