//! The signals to which the program responds: those of Unix, and on Windows the events of the
//! console.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

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

/// A queue of the signals that the process has received, in order.
#[derive(Debug)]
pub(crate) struct Signals(Receiver<ReceivedSignal>);

impl Signals {
    /// Waits for the next signal to this process. Returns `None` if no further signal can be
    /// received.
    #[cfg(all(target_os = "linux", not(feature = "portable")))]
    pub(crate) fn recv(&self) -> Option<ReceivedSignal> {
        self.0.recv().ok()
    }

    /// Waits at most `time` for the next signal to this process. Returns `None` if none has
    /// arrived.
    pub(crate) fn recv_timeout(&self, time: Duration) -> Option<ReceivedSignal> {
        match self.0.recv_timeout(time) {
            Ok(signal) => Some(signal),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(time);
                None
            }
        }
    }
}
