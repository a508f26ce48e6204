//! The signals to which the program responds: those of Unix, and on Windows the events of the
//! console.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
mod wait;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(target_os = "linux")]
pub(crate) use wait::signal_set;
#[cfg(windows)]
pub(crate) use windows::*;
