//! Waits for signals. Linux says who sent a signal. On other systems the sender is unknown, and a
//! SIGHUP counts as sent by a process unless the program has lost its terminal. The feature
//! `portable` makes Linux use what other systems use.

use std::mem::MaybeUninit;

pub(super) use system::{KNOWS_SENDER, SignalWaiter};

/// A signal that has arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub(super) number: i32,
    /// Whether a process, and not the kernel, has sent the signal.
    pub(super) is_sent: bool,
    /// The id of the process that sent the signal; 0 if the kernel sent it or if the sender is
    /// unknown.
    pub(super) sender: libc::pid_t,
    /// Whether the sender used `sigqueue()`.
    pub(super) is_queued: bool,
}

/// Converts a list of signal numbers to a signal set for the operating system.
pub(crate) fn signal_set(numbers: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `sigemptyset` initialises the set before signals are added.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for number in numbers {
            libc::sigaddset(set.as_mut_ptr(), *number);
        }
        set.assume_init()
    }
}

#[cfg(all(target_os = "linux", not(feature = "portable")))]
mod system {
    use std::io;
    use std::mem::MaybeUninit;

    use super::{Arrival, signal_set};

    /// Whether this operating system reports which process sent a signal, and lets a process wait
    /// for a signal that it ignores.
    pub(crate) const KNOWS_SENDER: bool = true;

    /// A set of signals that a thread waits for.
    pub(crate) struct SignalWaiter(libc::sigset_t);

    impl SignalWaiter {
        pub(crate) fn new(numbers: &[i32]) -> SignalWaiter {
            SignalWaiter(signal_set(numbers))
        }

        /// Waits for one of the signals. Returns `None` if waiting fails.
        pub(crate) fn wait(&self) -> Option<Arrival> {
            loop {
                let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
                // SAFETY: the set is valid, and `info` has space for the result.
                let number = unsafe { libc::sigwaitinfo(&raw const self.0, info.as_mut_ptr()) };
                if number > 0 {
                    // SAFETY: `sigwaitinfo` has filled `info`.
                    let info = unsafe { info.assume_init() };
                    let is_sent = info.si_code == libc::SI_USER || info.si_code == libc::SI_QUEUE;
                    // SAFETY: the field is valid for signals that a process sent.
                    let sender = if is_sent { unsafe { info.si_pid() } } else { 0 };
                    let is_queued = info.si_code == libc::SI_QUEUE;
                    return Some(Arrival { number, is_sent, sender, is_queued });
                }
                if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                    return None;
                }
            }
        }
    }
}

#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
mod system {
    use std::fs::File;

    use super::{Arrival, signal_set};

    /// Whether this operating system reports which process sent a signal, and lets a process wait
    /// for a signal that it ignores.
    pub(crate) const KNOWS_SENDER: bool = false;

    /// A set of signals that a thread waits for.
    pub(crate) struct SignalWaiter {
        set: libc::sigset_t,
        /// Whether the program had a terminal when it was started.
        had_terminal: bool,
    }

    impl SignalWaiter {
        pub(crate) fn new(numbers: &[i32]) -> SignalWaiter {
            SignalWaiter { set: signal_set(numbers), had_terminal: has_terminal() }
        }

        /// Waits for one of the signals. Returns `None` if waiting fails.
        pub(crate) fn wait(&self) -> Option<Arrival> {
            let mut number = 0;
            // SAFETY: the set is valid, and `number` has space for the result.
            let waited = unsafe { libc::sigwait(&raw const self.set, &raw mut number) };
            // The kernel sends a SIGHUP when the terminal of the program is closed.
            let is_sent = number != libc::SIGHUP || !self.had_terminal || has_terminal();
            (waited == 0).then_some(Arrival { number, is_sent, sender: 0, is_queued: false })
        }
    }

    /// Returns true if the process has a controlling terminal.
    fn has_terminal() -> bool {
        File::open("/dev/tty").is_ok()
    }
}
