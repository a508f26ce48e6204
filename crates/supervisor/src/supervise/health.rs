//! Whether a worker's I/O thread answers. R's silence is no failure: it is busy.

use std::time::{Duration, Instant};

/// An answer is late: new work goes elsewhere if somebody has stopped the process.
const LATE: Duration = Duration::from_secs(1);

/// Nobody has, and it does not answer all the same.
const SILENT: Duration = Duration::from_secs(5);

/// It will not.
const STUCK: Duration = Duration::from_secs(60);

/// What is known.
#[derive(Debug, Default)]
pub(super) struct Health {
    pings: u64,
    /// The ping that is not answered, and since when.
    asked: Option<(u64, Instant)>,
    pub(super) is_suspended: bool,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HealthVerdict {
    /// To send this ping.
    Ping(u64),
    /// Nothing.
    Wait,
    /// To give it nothing, because somebody has stopped it.
    Stopped,
    /// To give it nothing, because it does not answer.
    Silent,
    /// To end it.
    Unresponsive,
}

impl Health {
    /// What is to be done now; `is_stopped` asks the system whether the process is.
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
            // Whoever stopped it may be looking at it with a debugger.
            _ if is_stopped() => HealthVerdict::Stopped,
            silence if silence >= STUCK => HealthVerdict::Unresponsive,
            silence if silence >= SILENT => HealthVerdict::Silent,
            _ => HealthVerdict::Wait,
        }
    }

    /// It has answered a ping. Says whether it had been given nothing meanwhile.
    pub(super) fn answered(&mut self, ping: u64) -> bool {
        if self.asked.is_some_and(|(asked, _)| asked == ping) {
            self.asked = None;
            return std::mem::take(&mut self.is_suspended);
        }
        false
    }
}

/// Whether a process is stopped, by SIGSTOP or a debugger.
pub(super) fn is_stopped(pid: libc::pid_t) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in parentheses, may have any character.
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
