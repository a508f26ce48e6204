//! The run state of the supervisor: whether the server serves, stops or has stopped.

use std::time::Instant;

use super::Outcome;
use rookery_status::Lifecycle;

/// The run state of the supervisor.
///
/// ```text
///    Serving --Stop--> Leaving --delay over--> Draining --no connections left--> Ending
/// ```
///
/// Without a delay, `Leaving` is skipped. A second `Stop`, a crash loop, or the failure of all
/// first starts leads to `Ending` at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunState {
    /// The server runs normally: it accepts connections and responds to requests.
    Serving,
    /// The server has been requested to stop. It still serves until this time, and reports itself
    /// as not ready, so that load balancers stop sending requests.
    Leaving { until: Instant },
    /// The server finishes its requests and connections, until this time at the latest.
    Draining { until: Instant },
    /// The workers are stopped. The supervisor ends with this outcome when no worker is left.
    Ending(Outcome),
}

impl RunState {
    /// Returns the run state as status reports name it. `was_ready` is true if any worker has been
    /// ready.
    pub(super) fn lifecycle(self, was_ready: bool) -> Lifecycle {
        match self {
            RunState::Serving if was_ready => Lifecycle::Serving,
            RunState::Serving => Lifecycle::Starting,
            RunState::Leaving { .. } | RunState::Draining { .. } => Lifecycle::Draining,
            RunState::Ending(_) => Lifecycle::Stopping,
        }
    }

    /// Returns true while the server accepts connections.
    pub(super) fn is_serving(self) -> bool {
        matches!(self, RunState::Serving | RunState::Leaving { .. })
    }
}
