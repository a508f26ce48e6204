//! An R that waits while requests wait for it: a wake-up was lost, which would be a fault of the server's own. Nothing is known that
//! brings it about; an operator would see a worker that hangs and uses no processor, and could not know why.

use std::time::{Duration, Instant};

use rookery_worker_protocol::{RState, Snapshot};

/// R comes for a request within a moment, or says that it is busy; this long is none.
const LONG: Duration = Duration::from_secs(15);

/// What is known of one worker.
#[derive(Debug, Default)]
pub(super) struct LostWakeup {
    /// How many requests R had come for when it was first seen to wait with others there.
    since: Option<(u64, Instant)>,
}

impl LostWakeup {
    /// Whether it stands still at this `time` of the scoreboard's: said once.
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
        // It has come for one.
        assert!(!look(scoreboard(RState::Idle, 5, 4, 15), 15));
        assert!(!look(scoreboard(RState::Idle, 9, 4, 29), 29));
        assert!(look(scoreboard(RState::Idle, 9, 4, 30), 30));
        // Busy, without anything to come for, or silent for itself.
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
