//! A timer that wakes the I/O thread after a short delay. The application's thread sets it after
//! sending a command, so that one wake-up suffices for several commands. Only Linux has such timers
//! (`timerfd`). On other systems, the application wakes the I/O thread for each command that finds
//! it asleep.

#[cfg_attr(all(target_os = "linux", not(feature = "portable")), path = "wake_timer/timerfd.rs")]
#[cfg_attr(any(not(target_os = "linux"), feature = "portable"), path = "wake_timer/none.rs")]
mod system;

pub(crate) use self::system::WakeTimer;
