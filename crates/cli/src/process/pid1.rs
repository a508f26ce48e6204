//! The first process of a container: orphans are its to bury, a signal without a handler does nothing to it, and its end is that of all
//! others. So what serves is a child of it, which has none of that to care for, and it passes on signals and the exit status.

use std::io;
use std::mem::MaybeUninit;
use std::process::ExitCode;

use crate::failure::Failure;
use crate::process::signals::{block, signal_set};

/// Signals that are this process's own, or that nobody can have: all others are forwarded on.
const NOT_FORWARDED: [libc::c_int; 3] = [libc::SIGCHLD, libc::SIGKILL, libc::SIGSTOP];

/// Those that say what a process itself has done wrong: they are not sent by anybody, and blocked they would have no end.
const FAULT_SIGNALS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT];

/// In the first process of a container, starts a child to go on with and waits for its end, which is what is returned; in the child, and in
/// any other process, `None`. To be called before there are threads.
///
/// # Errors
/// When there cannot be a child.
pub(crate) fn run_as_pid1() -> Result<Option<ExitCode>, Failure> {
    // SAFETY: asks only.
    if unsafe { libc::getpid() } != 1 {
        return Ok(None);
    }
    let forwarded: Vec<libc::c_int> = (1..32)
        .filter(|number| !NOT_FORWARDED.contains(number) && !FAULT_SIGNALS.contains(number))
        .collect();
    let all: Vec<libc::c_int> = forwarded.iter().copied().chain([libc::SIGCHLD]).collect();
    let before = block(&all);
    // SAFETY: there is one thread, so the child has all that this process has.
    match unsafe { libc::fork() } {
        -1 => Err(Failure::Unavailable(format!(
            "The server process cannot be started: {}.",
            io::Error::last_os_error()
        ))),
        0 => {
            take_terminal();
            adopt_pid_variables();
            // SAFETY: the set that was in force before.
            unsafe {
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut())
            };
            Ok(None)
        }
        child => Ok(Some(supervise_child(child, &all))),
    }
}

/// In the child: a group of its own, which has the terminal, if there is one. Else Ctrl-C would come to both, and so twice to it.
fn take_terminal() {
    // SAFETY: plain calls; SIGTTOU, which a group in the background gets for the second, is ignored meanwhile.
    unsafe {
        libc::setpgid(0, 0);
        let before = libc::signal(libc::SIGTTOU, libc::SIG_IGN);
        libc::tcsetpgrp(libc::STDIN_FILENO, libc::getpgrp());
        libc::signal(libc::SIGTTOU, before);
    }
}

/// In the child: sockets and a watchdog that are for process 1 are for what serves.
fn adopt_pid_variables() {
    for name in ["LISTEN_PID", "WATCHDOG_PID"] {
        if std::env::var_os(name).is_some_and(|pid| pid == "1") {
            // SAFETY: there is one thread.
            unsafe { std::env::set_var(name, std::process::id().to_string()) };
        }
    }
}

/// Passes signals on and buries what has died, until the child has.
fn supervise_child(child: libc::pid_t, signals: &[libc::c_int]) -> ExitCode {
    let set = signal_set(signals);
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: a valid set, and room for the answer.
        match unsafe { libc::sigwaitinfo(&raw const set, info.as_mut_ptr()) } {
            libc::SIGCHLD => {
                if let Some(code) = reap_children(child) {
                    return code;
                }
            }
            number if number > 0 => {
                // SAFETY: passes no memory. The child has not been waited for, so the number is its.
                unsafe { libc::kill(child, number) };
            }
            // Interrupted, by a signal that stopped it and let it go on.
            _ => {}
        }
    }
}

/// Waits for all that have died: one signal may stand for many. The exit status, once the child is among them.
fn reap_children(child: libc::pid_t) -> Option<ExitCode> {
    let mut code = None;
    loop {
        let mut status = 0;
        // SAFETY: a number to write to.
        let died = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        if died <= 0 {
            return code;
        }
        if died == child {
            let number = if libc::WIFEXITED(status) {
                libc::WEXITSTATUS(status)
            } else {
                128 + libc::WTERMSIG(status)
            };
            code = Some(ExitCode::from(u8::try_from(number).unwrap_or(u8::MAX)));
        }
    }
}
