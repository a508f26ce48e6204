//! How the two sides of a link wake each other.

use std::time::Duration;

/// Wakes an application that is parked outside the link, or that went away. Called on the server's thread.
pub trait AppWaker: Send + Sync {
    /// Makes the application look into the link soon. Must not block.
    fn wake(&self);

    /// Makes the application [collect](Link::releases) what it has lent, soon. Called on any
    /// thread. Must not block. An application that lends nothing, or collects with each event and
    /// is content with that, leaves it as it is.
    fn released(&self) {}
}

/// Wakes the server's thread. Called on the application's thread.
pub trait IoWaker: Send + Sync {
    /// Makes the server look into the link soon. Must not block.
    fn wake(&self);

    /// Makes the server look into the link when `delay` is over, and costs it nothing until then. Must not block. A call
    /// replaces the one before.
    fn wake_within(&self, delay: Duration);
}
