//! A timer that wakes the I/O thread after a short delay, by a descriptor of Linux.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rookery_system::linux::timer;
use tokio::io::unix::AsyncFd;

/// A timer that any thread can set to wake the I/O thread later. When it expires, the async runtime
/// with which it is [registered](Self::register) stops sleeping.
#[derive(Debug, Clone)]
pub(crate) struct WakeTimer(Option<Arc<OwnedFd>>);

impl WakeTimer {
    /// Makes a timer that wakes the I/O thread. If the system provides no timer, [`set`](Self::set)
    /// returns false.
    pub(crate) fn new() -> WakeTimer {
        WakeTimer(timer::create().ok().map(Arc::new))
    }

    /// Makes a timer that cannot be set, so that [`set`](Self::set) returns false.
    pub(crate) fn none() -> WakeTimer {
        WakeTimer(None)
    }

    /// Registers the timer with the current async runtime, until the returned value is dropped.
    /// When the timer expires, the runtime stops sleeping, and the thread executes the
    /// application's commands before it sleeps again.
    pub(crate) fn register(&self) -> Option<AsyncFd<Arc<OwnedFd>>> {
        let timer = Arc::clone(self.0.as_ref()?);
        // SAFETY: the returned value owns the timer's descriptor, so the descriptor stays open, and
        // no other code closes it.
        unsafe { AsyncFd::register_with_interest(timer, tokio::io::Interest::READABLE) }.ok()
    }

    /// Sets the timer to expire in `delay` (at least a nanosecond), replacing any earlier setting.
    /// Returns false if the timer could not be set.
    pub(crate) fn set(&self, delay: Duration) -> bool {
        self.0.as_ref().is_some_and(|timer| timer::start(timer, delay))
    }
}
