//! A timer that wakes the I/O thread after a short delay, by a descriptor of Linux.

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::unix::AsyncFd;

/// A timer that any thread can set to wake the I/O thread later. When it expires, the async runtime
/// with which it is [registered](Self::register) stops sleeping.
#[derive(Debug, Clone)]
pub(crate) struct WakeTimer(Option<Arc<OwnedFd>>);

impl WakeTimer {
    /// Makes a timer that wakes the I/O thread. If the system provides no timer, [`set`](Self::set)
    /// returns false.
    pub(crate) fn new() -> WakeTimer {
        WakeTimer(timer().map(Arc::new))
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
        self.0.as_ref().is_some_and(|timer| start(timer, delay))
    }
}

fn timer() -> Option<OwnedFd> {
    // SAFETY: creates a descriptor and accesses no memory.
    let fd = unsafe {
        libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC)
    };
    // SAFETY: the descriptor was just created and has no other owner.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn start(timer: &OwnedFd, delay: Duration) -> bool {
    let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let once = libc::timespec {
        // `libc::time_t` is deprecated for musl, and has no other name.
        tv_sec: i32::try_from(delay.as_secs()).unwrap_or(i32::MAX).into(),
        tv_nsec: libc::c_long::from(i32::try_from(delay.subsec_nanos()).unwrap_or(0)),
    };
    let setting = libc::itimerspec { it_interval: never, it_value: once };
    // SAFETY: `timer` is an open timer, `setting` is valid, and the null pointer means that the
    // previous setting is not returned.
    unsafe {
        libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const setting, std::ptr::null_mut()) == 0
    }
}
