//! The traits by which the server and the application wake each other.

use std::time::Duration;

/// The means by which the server wakes an application that waits outside the [`Link`](crate::Link).
/// The methods are called on the server's thread, unless stated otherwise.
pub trait AppWaker: Send + Sync {
    /// Makes the application look for events from the server soon. Must not block.
    fn wake(&self);

    /// Notifies the application that it may free some memory that it has lent to the server. The
    /// application should soon [collect](crate::Link::releases) the tokens that identify this
    /// memory. May be called on any thread, and must not block. The default implementation does
    /// nothing.
    fn released(&self) {}
}

/// The means by which the application wakes the server's thread. The methods are called on the
/// application's thread.
pub trait IoWaker: Send + Sync {
    /// Makes the server look for commands from the application soon. Must not block.
    fn wake(&self);

    /// Sets a timer after which the server looks for commands from the application. Must not block.
    /// Each call replaces the timer of the previous call.
    fn wake_within(&self, delay: Duration);
}
