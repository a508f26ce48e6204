//! Receives the signals to which the program responds, such as SIGTERM and SIGHUP.
//!
//! Signals that were ignored when the program was started, for example by `nohup` or in the
//! background of a script, stay ignored. On Linux there is one exception: a SIGHUP from another
//! process still requests a reload. `nohup` is meant only for the SIGHUP that the kernel sends when
//! a terminal is closed.

use std::mem::MaybeUninit;
use std::sync::mpsc;

use rookery_server::output;

use super::Signals;
use super::wait::{Arrival, KNOWS_SENDER, SignalWaiter, signal_set};
use crate::failure::Failure;
use crate::process::session::parent_session;
use crate::process::start_essential_thread;
#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
use crate::process::start_thread;
use crate::stderr::output_deadline;

/// The signals that stop the server or request an action, such as a reload.
const HANDLED_SIGNALS: [i32; 8] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGQUIT,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    // The kernel also sends these two signals to a background process that uses its terminal. While
    // the process waits for them, the kernel lets it write to the terminal and does not send them.
    libc::SIGTTIN,
    libc::SIGTTOU,
];

/// A signal that the process received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReceivedSignal {
    number: i32,
    is_sent: bool,
    /// The id of the process that sent the signal; 0 if the kernel sent it or if the sender is
    /// unknown.
    sender: libc::pid_t,
    /// Whether the sender used `sigqueue()`. An R session forwards signals in this way. Other
    /// signals from the session mean that the session has ended.
    is_queued: bool,
}

impl ReceivedSignal {
    /// Returns a signal that another process sent, for a test.
    #[cfg(test)]
    pub(crate) const fn for_test(number: i32) -> ReceivedSignal {
        ReceivedSignal { number, is_sent: true, sender: 0, is_queued: false }
    }

    /// Returns true if the signal is a SIGHUP that another process sent, which requests a reload. A
    /// SIGHUP that the kernel sends because the terminal was closed stops the server instead.
    pub(crate) fn is_reload(self) -> bool {
        self.number == libc::SIGHUP && self.is_sent
    }

    /// Returns true if the signal (SIGUSR1) requests that the log file is opened again, for log
    /// rotation.
    pub(crate) fn is_log_reopen(self) -> bool {
        self.number == libc::SIGUSR1
    }

    /// Returns true if the signal is SIGUSR2, which requests that all workers are replaced.
    pub(crate) fn is_worker_restart(self) -> bool {
        self.number == libc::SIGUSR2
    }

    /// Returns true if the signal (SIGTTIN) requests one more worker.
    pub(crate) fn is_worker_increase(self) -> bool {
        self.number == libc::SIGTTIN
    }

    /// Returns true if the signal (SIGTTOU) requests one worker fewer.
    pub(crate) fn is_worker_decrease(self) -> bool {
        self.number == libc::SIGTTOU
    }

    /// Returns true if only a server with workers responds to the signal.
    pub(crate) fn is_for_workers_only(self) -> bool {
        self.is_worker_restart() || self.is_worker_increase() || self.is_worker_decrease()
    }

    /// Returns true if the signal is a Ctrl-C that was typed at the terminal. Where the sender is
    /// unknown, any SIGINT counts as one.
    #[cfg_attr(
        any(not(target_os = "linux"), feature = "portable"),
        allow(dead_code, reason = "R has no prompt in a server without workers")
    )]
    pub(crate) fn is_ctrl_c(self) -> bool {
        self.number == libc::SIGINT && (!self.is_sent || !KNOWS_SENDER)
    }

    /// Returns true if the kernel sent the signal because this background process used its
    /// terminal.
    fn is_job_control(self) -> bool {
        (self.is_worker_increase() || self.is_worker_decrease()) && !self.is_sent
    }

    /// Returns true if the signal requests that the server stops.
    pub(crate) fn is_stop(self) -> bool {
        !self.is_log_reopen() && !self.is_reload() && !self.is_for_workers_only()
    }

    /// Terminates the process by this signal, so that the parent process sees that the signal ended
    /// it.
    pub(crate) fn terminate_process(self) -> ! {
        output::flush_until(output_deadline());
        // SAFETY: `number` is a valid signal. It is raised in this thread, which does not block it,
        // so it is delivered before `raise` returns.
        unsafe {
            libc::signal(self.number, libc::SIG_DFL);
            libc::pthread_sigmask(
                libc::SIG_UNBLOCK,
                &signal_set(&[self.number]),
                std::ptr::null_mut(),
            );
            libc::raise(self.number);
        }
        std::process::exit(128 + self.number)
    }
}

impl Signals {
    /// Starts to receive signals. From then on, signals no longer terminate the process. Must be
    /// called before other threads are started, because threads inherit the signal mask.
    ///
    /// # Errors
    /// Fails if the thread that waits for signals cannot be started.
    pub(crate) fn start() -> Result<Signals, Failure> {
        let ignores_hangup = is_ignored(libc::SIGHUP);
        let is_handled =
            |number: &i32| !is_ignored(*number) || (*number == libc::SIGHUP && KNOWS_SENDER);
        let handled: Vec<i32> = HANDLED_SIGNALS.into_iter().filter(is_handled).collect();
        // Linux keeps blocked signals pending, even if they are ignored.
        block(&handled);
        let (signals, receiver) = mpsc::channel();
        let waiter = SignalWaiter::new(&handled);
        start_essential_thread("rookery-signals", move || {
            while let Some(Arrival { number, is_sent, sender, is_queued }) = waiter.wait() {
                let is_ignored = number == libc::SIGHUP && ignores_hangup;
                let signal = ReceivedSignal { number, is_sent, sender, is_queued };
                if (is_ignored && !is_sent) || signal.is_job_control() {
                    continue;
                }
                if signals.send(signal).is_err() {
                    return;
                }
            }
        })?;
        Ok(Signals(receiver))
    }
}

/// Sends a signal to this process, as `kill` does.
pub(crate) fn raise(number: i32) {
    // SAFETY: the call passes no memory. The process id is that of this process.
    unsafe { libc::kill(libc::getpid(), number) };
}

/// Requests that the server stops, as SIGTERM does.
pub(crate) fn request_stop() {
    raise(libc::SIGTERM);
}

/// A counter of how often the server was requested to stop. A signal to stop that this program
/// receives twice, directly and forwarded by the R session that started it, counts as one request.
#[derive(Debug)]
pub(crate) struct StopCounter {
    parent: Option<libc::pid_t>,
    from_parent: u32,
    from_others: u32,
}

impl StopCounter {
    pub(crate) fn new() -> StopCounter {
        StopCounter { parent: parent_session(), from_parent: 0, from_others: 0 }
    }

    /// Records a signal, and returns how many times the server was requested to stop. A signal from
    /// the R session and one from elsewhere count as one request. When the session ends, Linux may
    /// send a signal for each of its threads. All of them count as one request, and as none if the
    /// session has already forwarded a signal.
    pub(crate) fn record(&mut self, signal: ReceivedSignal) -> u32 {
        if self.parent == Some(signal.sender) {
            let is_forwarded = signal.is_queued;
            self.from_parent =
                if is_forwarded { self.from_parent + 1 } else { self.from_parent.max(1) };
        } else {
            self.from_others += 1;
        }
        self.from_parent.max(self.from_others)
    }
}

/// Makes this process receive SIGTERM when the R session that started it exits.
pub(crate) fn stop_with_parent() {
    if let Some(parent) = parent_session() {
        follow(parent);
    }
}

/// Makes the kernel send SIGTERM to this process when its parent process exits.
#[cfg(all(target_os = "linux", not(feature = "portable")))]
fn follow(parent: libc::pid_t) {
    // SAFETY: the calls take no pointers. The parent is checked again afterwards, because the
    // session may exit between the two calls.
    unsafe {
        if libc::getppid() == parent {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            if libc::getppid() != parent {
                libc::raise(libc::SIGTERM);
            }
        }
    }
}

/// Starts a thread that sends SIGTERM to this process after its parent process has exited.
#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
fn follow(parent: libc::pid_t) {
    // SAFETY: the call takes no pointers. A process that is no child of the session has been
    // started by something else.
    let is_child = move || unsafe { libc::getppid() } == parent;
    if !is_child() {
        return;
    }
    // The signals that the program waits for must not reach this thread.
    let before = block(&HANDLED_SIGNALS);
    let started = start_thread("rookery-parent", move || {
        while is_child() {
            std::thread::sleep(PARENT_CHECK_INTERVAL);
        }
        raise(libc::SIGTERM);
    });
    // SAFETY: `before` is the mask that was in force.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    if let Err(failure) = started {
        crate::stderr::log_line(&failure.message());
    }
}

/// The interval at which the program checks whether the R session that started it has exited, on
/// systems that do not send a signal then.
#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
const PARENT_CHECK_INTERVAL: std::time::Duration = std::time::Duration::from_millis(500);

/// Returns true if this process was started to ignore the signal, for example by `nohup`.
pub(crate) fn is_ignored(number: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the call only reads the action, into memory that has space for it and is valid as
    // zeros.
    unsafe {
        libc::sigaction(number, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Blocks signals in this thread, in the threads that it starts, and in a program that replaces
/// this one. Returns the previous signal mask.
pub(crate) fn block(numbers: &[i32]) -> libc::sigset_t {
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the new set is valid, and `before` has space for a set, which is valid as zeros.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &signal_set(numbers), before.as_mut_ptr());
        before.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(sender: libc::pid_t) -> ReceivedSignal {
        ReceivedSignal { sender, ..ReceivedSignal::for_test(libc::SIGTERM) }
    }

    fn forwarded_term() -> ReceivedSignal {
        ReceivedSignal { is_queued: true, ..term(7) }
    }

    #[test]
    fn a_signal_forwarded_by_the_parent_counts_once() {
        let mut stops = StopCounter { parent: Some(7), from_parent: 0, from_others: 0 };
        assert_eq!([forwarded_term(), term(1)].map(|signal| stops.record(signal)), [1, 1]);
        assert_eq!([forwarded_term(), term(1)].map(|signal| stops.record(signal)), [2, 2]);
    }

    #[test]
    fn repeated_signals_of_the_end_of_the_parent_count_once() {
        let mut stops = StopCounter { parent: Some(7), from_parent: 0, from_others: 0 };
        assert_eq!([7, 7, 1, 7].map(|sender| stops.record(term(sender))), [1; 4]);
        let mut stops = StopCounter { parent: Some(7), from_parent: 0, from_others: 0 };
        assert_eq!([forwarded_term(), term(7), term(7)].map(|one| stops.record(one)), [1; 3]);
        assert_eq!(stops.record(forwarded_term()), 2);
    }

    #[test]
    fn job_control_signals_of_a_terminal_do_not_scale_workers() {
        for number in [libc::SIGTTIN, libc::SIGTTOU] {
            for is_sent in [true, false] {
                let signal = ReceivedSignal { is_sent, ..ReceivedSignal::for_test(number) };
                assert_eq!(signal.is_job_control(), !is_sent);
                assert!(!signal.is_stop() && !signal.is_ctrl_c());
            }
        }
        let ctrl_c = ReceivedSignal { is_sent: false, ..ReceivedSignal::for_test(libc::SIGINT) };
        assert!(ctrl_c.is_ctrl_c() && ctrl_c.is_stop() && !term(0).is_ctrl_c());
    }

    #[test]
    fn a_sent_sigint_is_a_ctrl_c_only_where_the_sender_is_unknown() {
        // This is the signal as a system reports it that does not know the sender.
        let sent = ReceivedSignal::for_test(libc::SIGINT);
        assert_eq!(sent.is_ctrl_c(), !KNOWS_SENDER);
    }

    #[test]
    fn signals_from_other_processes_all_count() {
        for parent in [None, Some(7)] {
            let mut stops = StopCounter { parent, from_parent: 0, from_others: 0 };
            assert_eq!([1, 2, 0].map(|sender| stops.record(term(sender))), [1, 2, 3]);
        }
    }
}
