//! Pings to a worker's I/O thread, which test whether the worker responds. They do not depend on R,
//! because R does not respond while it is busy.

use std::time::{Duration, Instant};

/// The time without a response to a ping after which a worker gets no new requests, if its process
/// has been stopped by a signal or a debugger.
const STOPPED_AFTER: Duration = Duration::from_secs(1);

/// The time without a response to a ping after which a worker gets no new requests, even though its
/// process has not been stopped.
const SILENT_AFTER: Duration = Duration::from_secs(5);

/// The time without a response to a ping after which a worker is killed.
const UNRESPONSIVE_AFTER: Duration = Duration::from_secs(60);

/// The pings to one worker, of which at most one is unanswered.
#[derive(Debug, Default)]
pub(super) struct Pings {
    /// The number of the last ping to the worker.
    last: u64,
    /// The number of the ping that has not been answered, and the time at which it was sent.
    unanswered: Option<(u64, Instant)>,
}

/// The result of a check whether a worker responds to pings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PingVerdict {
    /// The next ping to the worker is due and has this number.
    Ping(u64),
    /// The worker still has time to respond to the last ping.
    Wait,
    /// A signal or a debugger has stopped the worker's process.
    Stopped,
    /// The worker does not respond to pings and gets no new requests.
    Silent,
    /// The worker has not responded to pings for so long that it is killed.
    Unresponsive,
}

impl Pings {
    /// Checks whether the worker responds to pings. `is_stopped` queries whether its process is
    /// stopped by a signal or a debugger.
    pub(super) fn check(&mut self, now: Instant, is_stopped: impl FnOnce() -> bool) -> PingVerdict {
        let Some((_, since)) = self.unanswered else {
            self.last += 1;
            self.unanswered = Some((self.last, now));
            return PingVerdict::Ping(self.last);
        };
        match now.duration_since(since) {
            silence if silence < STOPPED_AFTER => PingVerdict::Wait,
            // A debugger may have stopped the process, so it is never killed in this state.
            _ if is_stopped() => PingVerdict::Stopped,
            silence if silence >= UNRESPONSIVE_AFTER => PingVerdict::Unresponsive,
            silence if silence >= SILENT_AFTER => PingVerdict::Silent,
            _ => PingVerdict::Wait,
        }
    }

    /// Handles a worker's response to the ping with this number. Returns true if it is the last
    /// ping and was unanswered.
    pub(super) fn on_pong(&mut self, ping: u64) -> bool {
        self.unanswered.take_if(|(number, _)| *number == ping).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_stopped_silent_and_unresponsive_after_growing_times() {
        let mut pings = Pings::default();
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(pings.check(now, || true), PingVerdict::Ping(1));
        assert_eq!(pings.check(now + STOPPED_AFTER / 2, || true), PingVerdict::Wait);
        assert_eq!(pings.check(at(1), || false), PingVerdict::Wait);
        assert_eq!(pings.check(at(1), || true), PingVerdict::Stopped);
        assert_eq!(pings.check(at(5), || false), PingVerdict::Silent);
        assert_eq!(pings.check(at(60), || false), PingVerdict::Unresponsive);
        assert_eq!(pings.check(at(6000), || true), PingVerdict::Stopped);
        assert!(!pings.on_pong(7));
        assert!(pings.on_pong(1) && !pings.on_pong(1));
        assert_eq!(pings.check(at(6001), || true), PingVerdict::Ping(2));
    }
}
