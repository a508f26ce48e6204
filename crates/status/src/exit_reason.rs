//! The reason for which a worker process ends.

/// The reason for which a worker process ends, as metrics and status reports name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReason {
    /// The worker process is stopped because the server stops.
    ServerStop,
    /// The app has stopped its server. The worker process then exits, unless the app starts
    /// another server.
    AppStop,
    /// The worker process did not become ready within the start timeout.
    StartTimeout,
    /// A warm-up request failed, so the worker process is not put into service.
    Warmup,
    /// The I/O thread of the worker process did not respond to health checks, or its R process
    /// exceeded the worker timeout.
    Unresponsive,
    /// The R process of the worker has missed a wake-up and does not take its requests.
    LostWakeup,
    /// The worker has written invalid data into the memory that it shares with the front end.
    Violation,
    /// The number of workers was reduced.
    ScaleDown,
    /// A reload has replaced the worker process.
    Reload,
    /// The worker process was replaced because it has answered the maximum number of requests.
    MaxRequests,
    /// The worker process was replaced because it has reached the maximum age.
    MaxAge,
    /// The worker process was replaced because it has exceeded its memory limit.
    MaxMemory,
    /// The worker process ended by itself, although nothing had requested its end.
    Crash,
    /// Another process has killed the worker process with SIGKILL.
    Killed,
    /// The system has killed the worker process because its control group had no memory left.
    OutOfMemory,
}

impl ExitReason {
    /// The names of all exit reasons in metrics and status reports, in the order of the variants.
    pub(crate) const NAMES: [&str; 15] = [
        "stopped", "asked", "start", "warmup", "stuck", "stalled", "invalid", "fewer", "reload",
        "requests", "age", "memory", "crash", "killed", "oom",
    ];

    /// Returns the name of the exit reason in metrics and status reports.
    pub fn name(self) -> &'static str {
        ExitReason::NAMES[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_in_the_order_of_the_variants() {
        assert_eq!(ExitReason::ServerStop.name(), "stopped");
        assert_eq!(ExitReason::Warmup.name(), "warmup");
        assert_eq!(ExitReason::Reload.name(), "reload");
        assert_eq!(ExitReason::MaxMemory.name(), "memory");
        assert_eq!(ExitReason::OutOfMemory.name(), "oom");
        assert_eq!(ExitReason::OutOfMemory as usize, ExitReason::NAMES.len() - 1);
    }
}
