//! Health checks of a worker's I/O thread. Checks do not depend on R, because R does not respond
//! while it is busy.

use std::time::{Duration, Instant};

/// The time without a response after which a worker gets no new requests if its process has been
/// stopped by a signal or a debugger.
const LATE: Duration = Duration::from_secs(1);

/// The time without a response after which a worker gets no new requests even though its process
/// has not been stopped.
const SILENT: Duration = Duration::from_secs(5);

/// The time without a response after which a worker is killed.
const STUCK: Duration = Duration::from_secs(60);

/// The state of the health checks of a worker.
#[derive(Debug, Default)]
pub(super) struct Health {
    pings: u64,
    /// The ping that has not been answered, and the time when it was sent.
    asked: Option<(u64, Instant)>,
    pub(super) is_suspended: bool,
}

/// The action that a health check requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HealthVerdict {
    /// The supervisor sends a ping with this number.
    Ping(u64),
    /// The supervisor does nothing.
    Wait,
    /// The supervisor suspends the worker, because a signal or a debugger has stopped the process.
    Stopped,
    /// The supervisor suspends the worker, because the worker does not respond.
    Silent,
    /// The supervisor kills the worker.
    Unresponsive,
}

impl Health {
    /// Returns the action that is due now. `is_stopped` queries whether the process is stopped.
    pub(super) fn look(
        &mut self,
        now: Instant,
        is_stopped: impl FnOnce() -> bool,
    ) -> HealthVerdict {
        let Some((_, since)) = self.asked else {
            self.pings += 1;
            self.asked = Some((self.pings, now));
            return HealthVerdict::Ping(self.pings);
        };
        match now.duration_since(since) {
            silence if silence < LATE => HealthVerdict::Wait,
            // A debugger may have stopped the process, so it is never killed in this state.
            _ if is_stopped() => HealthVerdict::Stopped,
            silence if silence >= STUCK => HealthVerdict::Unresponsive,
            silence if silence >= SILENT => HealthVerdict::Silent,
            _ => HealthVerdict::Wait,
        }
    }

    /// Handles the response to a ping. Returns true if the worker was suspended and can get
    /// requests again.
    pub(super) fn answered(&mut self, ping: u64) -> bool {
        if self.asked.is_some_and(|(asked, _)| asked == ping) {
            self.asked = None;
            return std::mem::take(&mut self.is_suspended);
        }
        false
    }
}

/// Returns true if a process is stopped by SIGSTOP or a debugger.
pub(super) fn is_stopped(pid: libc::pid_t) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The process name, in parentheses, may contain any character, including parentheses.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('T' | 't'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_has_its_steps() {
        let mut health = Health::default();
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(health.look(now, || true), HealthVerdict::Ping(1));
        assert_eq!(health.look(now + LATE / 2, || true), HealthVerdict::Wait);
        assert_eq!(health.look(at(1), || false), HealthVerdict::Wait);
        assert_eq!(health.look(at(1), || true), HealthVerdict::Stopped);
        assert_eq!(health.look(at(5), || false), HealthVerdict::Silent);
        assert_eq!(health.look(at(60), || false), HealthVerdict::Unresponsive);
        assert_eq!(health.look(at(6000), || true), HealthVerdict::Stopped);
        health.is_suspended = true;
        assert!(!health.answered(7));
        assert!(health.answered(1) && !health.is_suspended && !health.answered(1));
        assert_eq!(health.look(at(6001), || true), HealthVerdict::Ping(2));
    }

    #[test]
    fn a_process_is_stopped_or_not() {
        let mut child = std::process::Command::new("/bin/sleep").arg("100").spawn().unwrap();
        let pid = libc::pid_t::try_from(child.id()).unwrap();
        assert!(!is_stopped(pid));
        // SAFETY: our own child, which has not been waited for.
        unsafe { libc::kill(pid, libc::SIGSTOP) };
        let until = Instant::now() + Duration::from_secs(20);
        while !is_stopped(pid) {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_stopped(0));
    }
}
