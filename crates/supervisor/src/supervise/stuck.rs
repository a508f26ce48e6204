//! A worker whose R has been busy with one task for too long: it is ended, or interrupted first where that is asked for.

use std::time::{Duration, Instant};

use rookery_worker::{R, Snapshot};

/// What R has to come out of what it does, once it has been interrupted: a handler may have something to put in order.
const TO_COME_OUT: Duration = Duration::from_secs(5);

/// What the process has to end once it has been asked, before it is killed. What could take longer has been interrupted already.
pub(super) const TO_END: Duration = Duration::from_secs(5);

/// What is known of one worker.
#[derive(Debug, Default)]
pub(super) struct Stuck {
    /// What R was interrupted in, by when it began with it, and when that was.
    interrupted: Option<(u64, Instant)>,
    /// When the process was found stopped last: R cannot help that.
    excused: Option<Instant>,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
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

impl Stuck {
    /// Returns what is to be done about a worker whose R process may be busy for `most`, and is
    /// interrupted before the worker is ended if `interrupts`; `time` is the scoreboard's.
    pub(super) fn look(
        &mut self,
        most: Duration,
        interrupts: bool,
        board: &Snapshot,
        now: Instant,
        time: u64,
        is_stopped: impl FnOnce() -> bool,
    ) -> Step {
        let is_busy = board.r != R::Starting && !board.is_idle(time);
        if let Some((since, at)) = self.interrupted {
            if !is_busy || board.since != since {
                self.interrupted = None;
                return Step::GoesOn;
            }
            return if now.duration_since(at) >= TO_COME_OUT {
                Step::EndInterrupted
            } else {
                Step::Nothing
            };
        }
        let lasts = board.lasts(time);
        if !is_busy || lasts < most {
            return Step::Nothing;
        }
        // Only now: it is a file to read.
        if is_stopped() {
            self.excused = Some(now);
        }
        if self.excused.is_some_and(|at| now.duration_since(at) < most) {
            return Step::Nothing;
        }
        if !interrupts {
            return Step::End(lasts);
        }
        self.interrupted = Some((board.since, now));
        Step::Interrupt(lasts)
    }

    /// Whether R has been interrupted, and has not come out of what it does.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.is_some()
    }
}

#[cfg(test)]
mod tests {
    use rookery_worker::Scoreboard;

    use super::*;

    const MOST: Duration = Duration::from_secs(60);
    const SECOND: u64 = 1_000_000_000;

    fn board(r: R, since: u64) -> Snapshot {
        let (board, _) = Scoreboard::create().unwrap();
        Snapshot { r, since: since * SECOND, ..board.read() }
    }

    #[test]
    fn it_is_interrupted_then_ended_and_let_be_when_it_does_something_else() {
        let start = Instant::now();
        let mut stuck = Stuck::default();
        let mut look = |board: Snapshot, second: u64| {
            let now = start + Duration::from_secs(second);
            stuck.look(MOST, true, &board, now, second * SECOND, || false)
        };
        let busy = board(R::Busy, 10);
        assert_eq!(look(busy, 69), Step::Nothing);
        assert_eq!(look(busy, 70), Step::Interrupt(MOST));
        assert_eq!(look(busy, 74), Step::Nothing);
        assert_eq!(look(board(R::Busy, 74), 74), Step::GoesOn);
        // What it does now has a time of its own.
        assert_eq!(look(board(R::Busy, 74), 75), Step::Nothing);
        assert_eq!(look(board(R::Busy, 74), 134), Step::Interrupt(MOST));
        assert_eq!(look(board(R::Idle, 136), 136), Step::GoesOn);
        assert_eq!(look(board(R::Busy, 140), 200), Step::Interrupt(MOST));
        assert_eq!(look(board(R::Busy, 140), 205), Step::EndInterrupted);
    }

    #[test]
    fn without_interrupts_it_is_ended_at_once() {
        let start = Instant::now();
        let mut stuck = Stuck::default();
        let mut look = |second: u64| {
            let now = start + Duration::from_secs(second);
            stuck.look(MOST, false, &board(R::Busy, 10), now, second * SECOND, || false)
        };
        assert_eq!(look(69), Step::Nothing);
        assert_eq!(look(70), Step::End(MOST));
        assert!(!stuck.is_interrupted());
    }

    #[test]
    fn an_r_that_waits_or_starts_is_not_busy_and_one_in_a_callback_is() {
        let start = Instant::now();
        for (r, expected) in [
            (board(R::Starting, 0), Step::Nothing),
            (board(R::Idle, 100), Step::Nothing),
            // It has not said so anew: it runs a callback of later's.
            (board(R::Idle, 10), Step::Interrupt(Duration::from_secs(90))),
            (board(R::Busy, 100), Step::Nothing),
        ] {
            let step = Stuck::default().look(MOST, true, &r, start, 100 * SECOND, || false);
            assert_eq!(step, expected, "{r:?}");
        }
    }

    #[test]
    fn the_time_in_which_somebody_had_stopped_it_does_not_count() {
        let start = Instant::now();
        let mut stuck = Stuck::default();
        let busy = board(R::Busy, 0);
        let mut look = |second: u64, is_stopped: bool| {
            let now = start + Duration::from_secs(second);
            stuck.look(MOST, true, &busy, now, second * SECOND, || is_stopped)
        };
        assert_eq!(look(500, true), Step::Nothing);
        assert_eq!(look(559, false), Step::Nothing);
        assert_eq!(look(560, false), Step::Interrupt(Duration::from_secs(560)));
    }
}
