//! A worker whose R has been busy with one thing for longer than anybody wants: it is interrupted, and where that does not help, ended.

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
    /// To end it.
    End,
}

impl Stuck {
    /// What is to be done about an R that may be busy for `most`; `time` is the scoreboard's.
    pub(super) fn look(
        &mut self,
        most: Duration,
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
            return if now.duration_since(at) >= TO_COME_OUT { Step::End } else { Step::Nothing };
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
            stuck.look(MOST, &board, now, second * SECOND, || false)
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
        assert_eq!(look(board(R::Busy, 140), 205), Step::End);
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
            assert_eq!(Stuck::default().look(MOST, &r, start, 100 * SECOND, || false), expected, "{r:?}");
        }
    }

    #[test]
    fn the_time_in_which_somebody_had_stopped_it_does_not_count() {
        let start = Instant::now();
        let mut stuck = Stuck::default();
        let busy = board(R::Busy, 0);
        let mut look = |second: u64, is_stopped: bool| {
            let now = start + Duration::from_secs(second);
            stuck.look(MOST, &busy, now, second * SECOND, || is_stopped)
        };
        assert_eq!(look(500, true), Step::Nothing);
        assert_eq!(look(559, false), Step::Nothing);
        assert_eq!(look(560, false), Step::Interrupt(Duration::from_secs(560)));
    }
}
