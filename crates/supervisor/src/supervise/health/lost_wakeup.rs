//! Detects lost wake-ups: R keeps waiting although requests are queued for it. A lost wake-up would
//! be a bug of the server. No such bug is known, but without this check an operator could not find
//! the reason for it.

use std::time::{Duration, Instant};

use rookery_worker_protocol::{RState, Snapshot};

/// The time after which R counts as having missed a wake-up, if it stays idle although requests are
/// queued for it. Normally R takes a request within milliseconds, or reports that it is busy.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The state of the check whether one worker's R process has missed a wake-up.
#[derive(Debug, Default)]
pub(super) struct LostWakeup {
    /// The number of requests that R had taken, and the time, when R was first seen idle although
    /// requests were queued for it.
    idle_since: Option<(u64, Instant)>,
}

impl LostWakeup {
    /// Returns true if R has missed a wake-up. This is detected only if the function is called
    /// repeatedly for [`TIMEOUT`]. `scoreboard` is the state that the worker publishes in shared
    /// memory, and `time` is the current time on the scoreboard's clock.
    pub(super) fn check(&mut self, scoreboard: &Snapshot, now: Instant, time: u64) -> bool {
        if scoreboard.r_state != RState::Idle
            || !scoreboard.is_idle(time)
            || scoreboard.queued() == 0
        {
            self.idle_since = None;
            return false;
        }
        match self.idle_since {
            Some((taken, at)) if taken == scoreboard.taken => now.duration_since(at) >= TIMEOUT,
            _ => {
                self.idle_since = Some((scoreboard.taken, now));
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
    fn an_idle_r_that_takes_no_queued_request_has_missed_a_wake_up() {
        let start = Instant::now();
        let empty = SharedScoreboard::private();
        let scoreboard = |r, handed, taken, second: u64| Snapshot {
            r_state: r,
            since: second * 1_000_000_000,
            handed,
            taken,
            ..empty.read()
        };
        let mut lost_wakeup = LostWakeup::default();
        let mut check = |scoreboard: Snapshot, second: u64| {
            lost_wakeup.check(
                &scoreboard,
                start + Duration::from_secs(second),
                second * 1_000_000_000,
            )
        };
        assert!(!check(scoreboard(RState::Idle, 5, 3, 0), 0));
        assert!(!check(scoreboard(RState::Idle, 5, 3, 14), 14));
        // R has taken a request.
        assert!(!check(scoreboard(RState::Idle, 5, 4, 15), 15));
        assert!(!check(scoreboard(RState::Idle, 9, 4, 29), 29));
        assert!(check(scoreboard(RState::Idle, 9, 4, 30), 30));
        // R is busy, has no queued request, or has not updated its idle state.
        for other in [
            scoreboard(RState::Busy, 9, 4, 31),
            scoreboard(RState::Idle, 4, 4, 31),
            scoreboard(RState::Idle, 9, 4, 20),
        ] {
            assert!(!check(other, 31));
            assert!(!check(scoreboard(RState::Idle, 9, 4, 32), 32));
            assert!(!check(other, 60));
        }
    }
}
