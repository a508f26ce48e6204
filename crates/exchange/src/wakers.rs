//! The traits by which the server and the application wake each other.

use std::time::Duration;

/// Wakes an application that waits outside the link or does not look into it. (The link contains
/// the queue of events from the server.) The methods are called on the server's thread.
pub trait AppWaker: Send + Sync {
    /// Makes the application look for events from the server soon. Must not block.
    fn wake(&self);

    /// Tells the application that the server no longer needs some memory that the application has
    /// lent. The application should [collect](crate::Link::releases) it soon. Called on any thread;
    /// must not block. The default does nothing, which suits an application that lends no memory or
    /// collects with each event.
    fn released(&self) {}
}

/// Wakes the server's thread. The methods are called on the application's thread.
pub trait IoWaker: Send + Sync {
    /// Makes the server look for commands from the application soon. Must not block.
    fn wake(&self);

    /// Makes the server look for commands from the application after `delay`, at no cost until
    /// then. Must not block. Each call replaces the delay of the previous call.
    fn wake_within(&self, delay: Duration);
}
