//! Timers that make a descriptor readable, and so wake whoever waits for it.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// Creates a timer. It is closed when the process executes another program.
///
/// # Errors
/// Returns the system's error if no more descriptors are available.
pub fn create() -> io::Result<OwnedFd> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    Ok(timerfd_create(TimerfdClockId::Monotonic, flags)?)
}

/// Sets a timer to expire in `delay` (at least a nanosecond), replacing any earlier setting.
/// Returns false if the timer could not be set.
pub fn start(timer: &OwnedFd, delay: Duration) -> bool {
    let Ok(it_value) = delay.try_into() else { return false };
    let setting = Itimerspec { it_interval: Timespec::default(), it_value };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &setting).is_ok()
}
