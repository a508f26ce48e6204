//! The signals of the program: SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGTTIN and
//! SIGTTOU. What is ignored stays ignored, as `nohup` and the background
//! of a script ask. A SIGHUP that a process sends is obeyed all the same, since it requests a
//! reload: `nohup` is meant for the SIGHUP of a terminal that is closed.

use std::io;
use std::mem::MaybeUninit;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use rookery_server::output;

use crate::stderr::output_deadline;

/// Those that end it, and those that ask for something. The system sends SIGTTIN and SIGTTOU as well, to
/// who uses a terminal in the background; while they are waited for it does not, and lets a program
/// write there.
const HANDLED_SIGNALS: [i32; 8] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGQUIT,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTTIN,
    libc::SIGTTOU,
];

/// Whether who has sent a signal is known, and one that is ignored can be waited for.
const KNOWS_SENDER: bool = cfg!(target_os = "linux");

/// One that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReceivedSignal {
    number: i32,
    is_sent: bool,
    /// The process that has sent it; 0 for the system, and where that is not known.
    sender: libc::pid_t,
    /// Whether the process was started to ignore it.
    is_ignored: bool,
}

impl ReceivedSignal {
    /// Whether it is a SIGHUP that somebody has sent. The one that the system sends when the terminal has gone ends what
    /// runs in it.
    pub(crate) fn is_reload(self) -> bool {
        self.number == libc::SIGHUP && self.is_sent
    }

    /// Whether it asks for the file of the log to be opened anew.
    pub(crate) fn is_log_reopen(self) -> bool {
        self.number == libc::SIGUSR1
    }

    /// Returns whether it asks for a reload and for nothing where nothing can be reloaded: the
    /// process was started to ignore it.
    pub(crate) fn is_ignored_reload(self) -> bool {
        self.is_reload() && self.is_ignored
    }

    /// Returns whether it asks for workers to be replaced, as SIGHUP does; where there are none it
    /// asks for nothing.
    pub(crate) fn is_worker_restart(self) -> bool {
        self.number == libc::SIGUSR2
    }

    /// Whether it asks for a worker more.
    pub(crate) fn is_worker_increase(self) -> bool {
        self.number == libc::SIGTTIN
    }

    /// Whether it asks for a worker less.
    pub(crate) fn is_worker_decrease(self) -> bool {
        self.number == libc::SIGTTOU
    }

    /// Whether it asks for something that only a server with workers does.
    pub(crate) fn is_for_workers_only(self) -> bool {
        self.is_worker_restart() || self.is_worker_increase() || self.is_worker_decrease()
    }

    /// Whether it is the Ctrl-C of a terminal.
    #[cfg(target_os = "linux")]
    pub(crate) fn is_ctrl_c(self) -> bool {
        self.number == libc::SIGINT && !self.is_sent
    }

    /// Whether the system has sent it to a process that uses its terminal in the background.
    fn is_job_control(self) -> bool {
        (self.is_worker_increase() || self.is_worker_decrease()) && !self.is_sent
    }

    /// Whether it ends the process, and asks for nothing else.
    pub(crate) fn is_stop(self) -> bool {
        !self.is_log_reopen() && !self.is_reload() && !self.is_for_workers_only()
    }

    /// Ends the process as it would have without us.
    pub(crate) fn terminate_process(self) -> ! {
        output::flush_until(output_deadline());
        // SAFETY: plain calls of a number that is a signal's; raised here and not blocked, it is delivered before the
        // last of them returns.
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

/// The signals, as they come.
#[derive(Debug)]
pub(crate) struct Signals(Receiver<ReceivedSignal>);

impl Signals {
    /// From now on signals are signals here and end nothing. To be called before other threads are started: they inherit that
    /// these signals are not theirs.
    ///
    /// # Errors
    /// When the thread that waits for them cannot be started.
    pub(crate) fn start() -> io::Result<Signals> {
        let ignores_hangup = is_ignored(libc::SIGHUP);
        let is_handled =
            |number: &i32| !is_ignored(*number) || (*number == libc::SIGHUP && KNOWS_SENDER);
        let handled: Vec<i32> = HANDLED_SIGNALS.into_iter().filter(is_handled).collect();
        // Linux has signals that are blocked wait, those that are ignored among them.
        block(&handled);
        let (signals, receiver) = mpsc::channel();
        let set = signal_set(&handled);
        std::thread::Builder::new().name("rookery-signals".to_owned()).spawn(move || {
            while let Some(signal) = wait_for_signal(&set) {
                let is_ignored = signal.number == libc::SIGHUP && ignores_hangup;
                if (is_ignored && !signal.is_sent) || signal.is_job_control() {
                    continue;
                }
                if signals.send(ReceivedSignal { is_ignored, ..signal }).is_err() {
                    return;
                }
            }
        })?;
        Ok(Signals(receiver))
    }

    /// Waits for the next.
    pub(crate) fn recv(&self) -> Option<ReceivedSignal> {
        self.0.recv().ok()
    }

    /// Waits for the next as long as that.
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

/// The R session that has started this program for `serve(workers =)`, by its process id.
pub(crate) const PARENT_VARIABLE: &str = "ROOKERY_INTERNAL_PARENT_PID";

/// Returns the process id of the R session that has started this program and passes signals on to it.
fn parent_session() -> Option<libc::pid_t> {
    std::env::var(PARENT_VARIABLE).ok()?.parse().ok()
}

/// Counts the signals that end the process. One that is sent to all processes of a service comes
/// twice where an R session has started this program: directly, and passed on by that session.
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

    /// Counts a signal, and returns how often the process has been asked to end: a signal from the
    /// parent and one from elsewhere count once.
    pub(crate) fn record(&mut self, signal: ReceivedSignal) -> u32 {
        if self.parent == Some(signal.sender) {
            self.from_parent += 1;
        } else {
            self.from_others += 1;
        }
        self.from_parent.max(self.from_others)
    }
}

/// Has this process be signals to end when the session that has started it ends, however it does.
#[cfg(target_os = "linux")]
pub(crate) fn stop_with_parent() {
    let Some(parent) = parent_session() else { return };
    // SAFETY: plain calls. Whose child this is, is asked before and behind: the parent may have gone in between.
    unsafe {
        if libc::getppid() == parent {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            if libc::getppid() != parent {
                libc::raise(libc::SIGTERM);
            }
        }
    }
}

/// Whether this process was started to ignore a signal.
pub(crate) fn is_ignored(number: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks only, into memory that has room for the answer and is valid as zeros.
    unsafe {
        libc::sigaction(number, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Keeps signals from this thread, from those that it starts, and from what this process becomes; returns those that were kept from it
/// before.
pub(crate) fn block(numbers: &[i32]) -> libc::sigset_t {
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: a valid set, and room for another, which is valid as zeros.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &signal_set(numbers), before.as_mut_ptr());
        before.assume_init()
    }
}

/// A set of signals.
pub(crate) fn signal_set(numbers: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: sigemptyset makes a valid set of it, to which signals are added.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for number in numbers {
            libc::sigaddset(set.as_mut_ptr(), *number);
        }
        set.assume_init()
    }
}

/// Waits for a signal of the set; `None` when that cannot be done.
#[cfg(target_os = "linux")]
fn wait_for_signal(set: &libc::sigset_t) -> Option<ReceivedSignal> {
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: a valid set, and room for the answer.
        let number = unsafe { libc::sigwaitinfo(set, info.as_mut_ptr()) };
        if number > 0 {
            // SAFETY: sigwaitinfo has filled it.
            let info = unsafe { info.assume_init() };
            let is_sent = info.si_code == libc::SI_USER || info.si_code == libc::SI_QUEUE;
            // SAFETY: the field is valid for signals that a process has sent.
            let sender = if is_sent { unsafe { info.si_pid() } } else { 0 };
            return Some(ReceivedSignal { number, is_sent, sender, is_ignored: false });
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return None;
        }
    }
}

/// Waits for a signal of the set; who sent it is not known here.
#[cfg(not(target_os = "linux"))]
fn wait_for_signal(set: &libc::sigset_t) -> Option<ReceivedSignal> {
    let mut number = 0;
    // SAFETY: a valid set, and room for the answer.
    let waited = unsafe { libc::sigwait(set, &raw mut number) };
    (waited == 0).then_some(ReceivedSignal { number, is_sent: true, sender: 0, is_ignored: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(sender: libc::pid_t) -> ReceivedSignal {
        ReceivedSignal { number: libc::SIGTERM, is_sent: true, sender, is_ignored: false }
    }

    #[test]
    fn a_signal_that_the_parent_passes_on_counts_once() {
        let mut stops = StopCounter { parent: Some(7), from_parent: 0, from_others: 0 };
        assert_eq!([7, 1].map(|sender| stops.record(term(sender))), [1, 1]);
        assert_eq!([7, 1].map(|sender| stops.record(term(sender))), [2, 2]);
    }

    #[test]
    fn what_a_terminal_sends_asks_for_no_worker() {
        for number in [libc::SIGTTIN, libc::SIGTTOU] {
            for is_sent in [true, false] {
                let signal = ReceivedSignal { number, is_sent, sender: 0, is_ignored: false };
                assert_eq!(signal.is_job_control(), !is_sent);
                assert!(!signal.is_stop() && !signal.is_ctrl_c());
            }
        }
        let ctrl_c =
            ReceivedSignal { number: libc::SIGINT, is_sent: false, sender: 0, is_ignored: false };
        assert!(ctrl_c.is_ctrl_c() && ctrl_c.is_stop() && !term(0).is_ctrl_c());
    }

    #[test]
    fn signals_of_others_count_each_wherever_they_come_from() {
        for parent in [None, Some(7)] {
            let mut stops = StopCounter { parent, from_parent: 0, from_others: 0 };
            assert_eq!([1, 2, 0].map(|sender| stops.record(term(sender))), [1, 2, 3]);
        }
    }
}
