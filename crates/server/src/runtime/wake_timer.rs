//! A timer that the application's thread sets for the I/O thread without waking it.

use std::os::fd::OwnedFd;
#[cfg(target_os = "linux")]
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::unix::AsyncFd;

/// Set from any thread; when it goes off, the runtime that [`watch`](Self::watch)es it comes round once.
#[derive(Debug, Clone)]
pub(crate) struct WakeTimer(Option<Arc<OwnedFd>>);

impl WakeTimer {
    /// Makes a timer. Where the system has none to give, [`set`](Self::set) says so each time.
    pub(crate) fn new() -> WakeTimer {
        WakeTimer(timer().map(Arc::new))
    }

    /// One that is never set.
    pub(crate) fn none() -> WakeTimer {
        WakeTimer(None)
    }

    /// Looks after the timer, inside a runtime, for as long as the answer is kept. Nobody reads it: that it goes off
    /// ends the runtime's sleep, and before the next one the thread takes what was sent.
    pub(crate) fn register(&self) -> Option<AsyncFd<Arc<OwnedFd>>> {
        let timer = Arc::clone(self.0.as_ref()?);
        // SAFETY: the timer's descriptor is open as long as the answer holds it, and nobody closes it otherwise.
        unsafe { AsyncFd::register_with_interest(timer, tokio::io::Interest::READABLE) }.ok()
    }

    /// Goes off in `delay` (at least a nanosecond), instead of when it was set to before; whether it will.
    pub(crate) fn set(&self, delay: Duration) -> bool {
        self.0.as_ref().is_some_and(|timer| start(timer, delay))
    }
}

#[cfg(target_os = "linux")]
fn timer() -> Option<OwnedFd> {
    // SAFETY: makes a descriptor and touches no memory.
    let fd = unsafe {
        libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC)
    };
    // SAFETY: a descriptor that was just made and is owned by nobody else.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(target_os = "linux")]
fn start(timer: &OwnedFd, delay: Duration) -> bool {
    let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let once = libc::timespec {
        tv_sec: libc::time_t::try_from(delay.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(i32::try_from(delay.subsec_nanos()).unwrap_or(0)),
    };
    let setting = libc::itimerspec { it_interval: never, it_value: once };
    // SAFETY: `timer` is an open timer and `setting` is valid; the former setting is not asked for.
    unsafe {
        libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const setting, std::ptr::null_mut()) == 0
    }
}

#[cfg(not(target_os = "linux"))]
fn timer() -> Option<OwnedFd> {
    None
}

#[cfg(not(target_os = "linux"))]
fn start(_timer: &OwnedFd, _delay: Duration) -> bool {
    false
}
