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
    /// Each call replaces the timer of the previous call. Returns false if the timer could not be
    /// set.
    fn wake_within(&self, delay: Duration) -> bool;
}

/// A second queue of events for the application, which waits for it together with the
/// [`Link`](crate::Link). A worker's requests arrive in it directly from the supervisor.
pub trait SideQueue: Send + Sync {
    /// Returns true if an event has arrived that the application has not taken.
    fn has_events(&self) -> bool;

    /// Sleeps until [`wake`](Self::wake) is called or an event arrives, but at most for `timeout`.
    /// Returns at once if `has_others`, called after other threads can see that the application
    /// sleeps, returns true. Called on the application's thread.
    fn sleep(&self, timeout: Duration, has_others: &dyn Fn() -> bool);

    /// Ends [`sleep`](Self::sleep). Called on any thread.
    fn wake(&self);

    /// Announces that the application waits outside the link, or no longer does. An event that
    /// arrives meanwhile calls the application's [`AppWaker`].
    fn set_parked(&self, is_parked: bool);
}
