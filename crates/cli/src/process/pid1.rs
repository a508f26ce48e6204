//! Runs the server in a child process if the program is PID 1, the first process of a container.
//! PID 1 differs from other processes:
//!
//! - It must reap orphaned processes.
//! - It ignores signals for which it has no handler.
//! - Its exit ends all other processes of the container.
//!
//! PID 1 itself only reaps processes, forwards signals to the child, and exits with the child's
//! status.

use std::io;
use std::mem::MaybeUninit;

use crate::failure::Failure;
use crate::process::signals::{block, signal_set};

/// Signals that are not forwarded from PID 1 to the child process, because PID 1 handles them
/// itself or no process can handle them. All other signals are forwarded.
const NOT_FORWARDED: [libc::c_int; 3] = [libc::SIGCHLD, libc::SIGKILL, libc::SIGSTOP];

/// Signals that the kernel sends to a process because of an error in that process, such as an
/// invalid memory access. PID 1 neither forwards nor blocks them, because a blocked error would
/// recur forever.
const FAULT_SIGNALS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT];

/// Starts the server in a child process if this process is PID 1, waits until the child exits, and
/// returns its exit status. Returns `None` in the child, and in a process that is not PID 1. Must
/// be called before any thread is started.
///
/// # Errors
/// Fails if the child process cannot be started.
pub(crate) fn run_as_pid1() -> Result<Option<u8>, Failure> {
    // SAFETY: the call takes no pointers.
    if unsafe { libc::getpid() } != 1 {
        return Ok(None);
    }
    let forwarded: Vec<libc::c_int> = (1..32)
        .filter(|number| !NOT_FORWARDED.contains(number) && !FAULT_SIGNALS.contains(number))
        .collect();
    let all: Vec<libc::c_int> = forwarded.iter().copied().chain([libc::SIGCHLD]).collect();
    let before = block(&all);
    // SAFETY: the process has only this thread, so the child has a consistent copy of its memory.
    match unsafe { libc::fork() } {
        -1 => Err(Failure::Unavailable(format!(
            "The server process cannot be started: {}.",
            io::Error::last_os_error()
        ))),
        0 => {
            take_terminal();
            adopt_pid_variables();
            // SAFETY: `before` is the mask that was in force.
            unsafe {
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut())
            };
            Ok(None)
        }
        child => Ok(Some(supervise_child(child, &all))),
    }
}

/// Makes the child process the foreground process group of the terminal, if there is a terminal.
/// Otherwise Ctrl-C would reach the child twice: from the terminal, and forwarded by PID 1.
fn take_terminal() {
    // SAFETY: the calls take no pointers. SIGTTOU, which `tcsetpgrp` sends to a background group,
    // is ignored meanwhile.
    unsafe {
        libc::setpgid(0, 0);
        let before = libc::signal(libc::SIGTTOU, libc::SIG_IGN);
        libc::tcsetpgrp(libc::STDIN_FILENO, libc::getpgrp());
        libc::signal(libc::SIGTTOU, before);
    }
}

/// Replaces the pid 1 by the pid of the child process in `LISTEN_PID` and `WATCHDOG_PID`. The child
/// then accepts the sockets and the watchdog that a service manager has assigned to PID 1.
fn adopt_pid_variables() {
    for name in ["LISTEN_PID", "WATCHDOG_PID"] {
        if std::env::var_os(name).is_some_and(|pid| pid == "1") {
            // SAFETY: the process has only this thread.
            unsafe { std::env::set_var(name, std::process::id().to_string()) };
        }
    }
}

/// Forwards signals to the child process and reaps processes until the child has exited. Returns
/// the exit status of the child.
fn supervise_child(child: libc::pid_t, signals: &[libc::c_int]) -> u8 {
    let set = signal_set(signals);
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: `set` is a valid set, and `info` has space for the result.
        match unsafe { libc::sigwaitinfo(&raw const set, info.as_mut_ptr()) } {
            libc::SIGCHLD => {
                if let Some(code) = reap_children(child) {
                    return code;
                }
            }
            number if number > 0 => {
                // SAFETY: the call takes no pointers. The number still belongs to the child, which
                // has not been reaped.
                unsafe { libc::kill(child, number) };
            }
            // Interrupted by a stop signal and continued.
            _ => {}
        }
    }
}

/// Reaps all child processes that have exited. Returns the exit status of `child` if it is one of
/// them.
fn reap_children(child: libc::pid_t) -> Option<u8> {
    let mut code = None;
    loop {
        let mut status = 0;
        // SAFETY: `status` is a valid number to write to.
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
            code = Some(u8::try_from(number).unwrap_or(u8::MAX));
        }
    }
}
