//! The requests of a supervisor to the application of its worker, and the results of the
//! application's announcements.

/// A request of the supervisor that the application must act on. The I/O thread acts on the
/// supervisor's other messages itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SupervisorRequest {
    /// Asks the worker to shut down gracefully.
    Drain,
    /// Asks the worker to shut down within
    /// [`EXIT_TIMEOUT`](rookery_worker_protocol::EXIT_TIMEOUT), and to interrupt its requests,
    /// because their time is over.
    Stop,
    /// Asks the worker to interrupt the code that the application is running.
    Interrupt,
    /// Asks the worker to run the garbage collector when the application is idle.
    Collect,
    /// Records have arrived in the rings while the application waits elsewhere.
    RecordsArrived,
    /// The supervisor has disconnected, so the worker must shut down. The clients were connected to
    /// the supervisor, and nothing can respond to them any more.
    Disconnected,
}

/// The result of waiting for the supervisor's confirmation of the last announcement of static
/// paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Confirmation {
    /// The supervisor has applied the last announcement of static paths.
    Applied,
    /// The supervisor did not confirm the announcement in time. Until it confirms one,
    /// [`Supervision::wait_until_applied`](crate::Supervision::wait_until_applied) does not
    /// wait again.
    TimedOut,
    /// [`Supervision::wait_until_applied`](crate::Supervision::wait_until_applied) did not wait,
    /// because an earlier wait has timed out or the supervisor has disconnected.
    NotAwaited,
}
