//! The name of a worker process in log lines.

use std::fmt;

/// The name of a worker process in log lines: its slot and its process id, as in `worker 1 (123)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkerName {
    pub(crate) slot: u32,
    pub(crate) pid: libc::pid_t,
}

impl fmt::Display for WorkerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {} ({})", self.slot, self.pid)
    }
}

/// Returns a count with its noun, such as `3 requests`. The noun is in the plural unless the count
/// is 1.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
