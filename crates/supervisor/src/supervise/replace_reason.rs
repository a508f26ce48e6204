//! The reason for which a worker is replaced by a new one.

use std::fmt;
use std::time::Duration;

use rookery_status::ExitReason;

/// The reason why a worker is replaced by a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplaceReason {
    /// The worker is replaced by a reload, which replaces all workers.
    Reload,
    /// The worker has answered this number of requests, which exceeds its limit.
    Requests(u64),
    /// The worker has reached this age, which exceeds its limit.
    Age(Duration),
    /// The worker uses this number of bytes of memory, which exceeds its limit.
    Memory(u64),
}

impl ReplaceReason {
    /// Returns the exit reason of a worker that is replaced for this reason.
    pub(crate) fn exit_reason(self) -> ExitReason {
        match self {
            ReplaceReason::Reload => ExitReason::Reload,
            ReplaceReason::Requests(_) => ExitReason::MaxRequests,
            ReplaceReason::Age(_) => ExitReason::MaxAge,
            ReplaceReason::Memory(_) => ExitReason::MaxMemory,
        }
    }
}

impl fmt::Display for ReplaceReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplaceReason::Reload => f.write_str("it is reloaded"),
            ReplaceReason::Requests(requests) => write!(f, "it has answered {requests} requests"),
            ReplaceReason::Age(age) => write!(f, "it is {} s old", age.as_secs()),
            ReplaceReason::Memory(bytes) => write!(f, "it has {} MB of memory", bytes / 1_000_000),
        }
    }
}
