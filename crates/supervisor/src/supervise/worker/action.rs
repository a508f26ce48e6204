//! The actions that health checks and time limits require for a worker.

use std::time::{Duration, Instant};

use rookery_status::ExitReason;
use rookery_worker_protocol::Message;

/// An action that the supervisor takes for a worker, as a health check or a time limit requires it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WorkerAction {
    /// Sends this message to the worker.
    Send(Message),
    /// Logs this line for the operator.
    Log(String),
    /// Suspends the worker, so that it gets no new requests.
    Suspend,
    /// Ends the suspension of the worker, so that it gets requests again.
    Resume,
    /// Suspends the worker. The requests that its R process has begun get 504.
    TimeOutRequests,
    /// Closes the worker's WebSockets one after the other within this time.
    CloseSessions(Duration),
    /// Makes the worker exit when R has finished its current task. R is interrupted at the given
    /// time, if there is one, and the worker is killed if it has not exited within the duration.
    Finish(Option<ExitReason>, Duration, Option<Instant>),
    /// Makes the worker exit, and kills it if it has not exited within this time.
    Stop(Option<ExitReason>, Duration),
    /// Interrupts R in a worker that is to exit, because the time for its task is over.
    Interrupt,
    /// Kills the worker.
    Kill(Option<ExitReason>),
}
