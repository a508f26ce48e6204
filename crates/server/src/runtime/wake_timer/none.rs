//! A substitute for the timer that wakes the I/O thread, on systems that have none.

use std::time::Duration;

/// A timer that cannot be set.
#[derive(Debug, Clone)]
pub(crate) struct WakeTimer;

/// The registration of a timer with the async runtime, which no timer of this system gets.
#[derive(Debug)]
pub(crate) enum Registration {}

/// Exists because callers drop the registration of a timer to end it, as on Linux.
impl Drop for Registration {
    fn drop(&mut self) {
        match *self {}
    }
}

impl WakeTimer {
    /// Makes a timer that cannot be set.
    pub(crate) fn new() -> WakeTimer {
        WakeTimer
    }

    /// Makes a timer that cannot be set.
    pub(crate) fn none() -> WakeTimer {
        WakeTimer
    }

    /// Returns `None`, because there is no timer to register.
    #[expect(clippy::unused_self, reason = "the timer of Linux is registered")]
    pub(crate) fn register(&self) -> Option<Registration> {
        None
    }

    /// Returns false, because the timer cannot be set.
    #[expect(clippy::unused_self, reason = "the timer of Linux is set")]
    pub(crate) fn set(&self, _: Duration) -> bool {
        false
    }
}
