//! The interfaces by which the two sides of a link wake each other.

use std::time::Duration;

/// Wakes an application that waits outside the link or that does not look into the link. Methods
/// are called on the server's thread.
pub trait AppWaker: Send + Sync {
    /// Makes the application look into the link soon. Must not block.
    fn wake(&self);

    /// Makes the application [collect](crate::Link::releases) the memory that it has lent and that
    /// the server has released. Called on any thread. Must not block. The default does nothing,
    /// which suits an application that lends no memory or collects with each event.
    fn released(&self) {}
}

/// Wakes the server's thread. Methods are called on the application's thread.
pub trait IoWaker: Send + Sync {
    /// Makes the server look into the link soon. Must not block.
    fn wake(&self);

    /// Makes the server look into the link after `delay`, without any cost until then. Must not
    /// block. Each call replaces the delay of the previous call.
    fn wake_within(&self, delay: Duration);
}
