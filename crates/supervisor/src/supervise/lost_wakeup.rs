//! Detection of a lost wake-up, which leaves R waiting although requests are queued for it. A lost
//! wake-up would be a bug of the server. No cause of one is known. Without this check, an operator
//! would see a worker that hangs without using the processor, and could not find the reason.

use std::time::{Duration, Instant};

use rookery_worker_protocol::{RState, Snapshot};

/// The time after which an idle R that has taken no queued request must have missed a wake-up.
/// Normally R takes a request within milliseconds, or reports that it is busy.
const LONG: Duration = Duration::from_secs(15);

/// The lost-wake-up detection of one worker.
#[derive(Debug, Default)]
pub(super) struct LostWakeup {
    /// The number of requests that R had taken when it was first seen idle with requests queued,
    /// and the time of that.
    since: Option<(u64, Instant)>,
}

impl LostWakeup {
    /// Returns true if R has missed a wake-up. `time` is the current time of the scoreboard's
    /// clock. Each call records what it has seen, so the first true result comes only after
    /// [`LONG`].
    pub(super) fn look(&mut self, scoreboard: &Snapshot, now: Instant, time: u64) -> bool {
        if scoreboard.r_state != RState::Idle
            || !scoreboard.is_idle(time)
            || scoreboard.queued() == 0
        {
            self.since = None;
            return false;
        }
        match self.since {
            Some((taken, at)) if taken == scoreboard.taken => now.duration_since(at) >= LONG,
            _ => {
                self.since = Some((scoreboard.taken, now));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rookery_worker_protocol::SharedScoreboard;

    use super::*;

    #[test]
    fn one_that_waits_with_requests_before_it_stands_still_and_others_do_not() {
        let start = Instant::now();
        let (empty, _) = SharedScoreboard::create().unwrap();
        let scoreboard = |r, handed, taken, second: u64| Snapshot {
            r_state: r,
            since: second * 1_000_000_000,
            handed,
            taken,
            ..empty.read()
        };
        let mut stalled = LostWakeup::default();
        let mut look = |scoreboard: Snapshot, second: u64| {
            stalled.look(&scoreboard, start + Duration::from_secs(second), second * 1_000_000_000)
        };
        assert!(!look(scoreboard(RState::Idle, 5, 3, 0), 0));
        assert!(!look(scoreboard(RState::Idle, 5, 3, 14), 14));
        // R has taken a request.
        assert!(!look(scoreboard(RState::Idle, 5, 4, 15), 15));
        assert!(!look(scoreboard(RState::Idle, 9, 4, 29), 29));
        assert!(look(scoreboard(RState::Idle, 9, 4, 30), 30));
        // R is busy, has no queued request, or has not updated its idle state.
        for other in [
            scoreboard(RState::Busy, 9, 4, 31),
            scoreboard(RState::Idle, 4, 4, 31),
            scoreboard(RState::Idle, 9, 4, 20),
        ] {
            assert!(!look(other, 31));
            assert!(!look(scoreboard(RState::Idle, 9, 4, 32), 32));
            assert!(!look(other, 60));
        }
    }
}
