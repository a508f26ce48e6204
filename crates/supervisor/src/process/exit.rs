//! The end of a process.

use std::fmt;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// How often it is looked where the system has no descriptor of a process (Linux before 5.3, some sandboxes).
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this status.
    Status(i32),
    /// By this signal.
    Signal(i32),
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Exit {
        match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Status(code),
            (None, signal) => Exit::Signal(signal.unwrap_or(0)),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Exit::Status(code) => return write!(f, "ended with status {code}"),
            Exit::Signal(libc::SIGKILL) => "SIGKILL",
            Exit::Signal(libc::SIGSEGV) => "SIGSEGV",
            Exit::Signal(libc::SIGABRT) => "SIGABRT",
            Exit::Signal(libc::SIGBUS) => "SIGBUS",
            Exit::Signal(libc::SIGILL) => "SIGILL",
            Exit::Signal(libc::SIGTERM) => "SIGTERM",
            Exit::Signal(libc::SIGINT) => "SIGINT",
            Exit::Signal(number) => return write!(f, "was ended by signal {number}"),
        };
        write!(f, "was ended by {name}")
    }
}

/// Waits for the end of a process, and takes it from the system's table.
pub(crate) async fn wait(child: &mut Child) -> Exit {
    let descriptor = process_descriptor(child.id()).and_then(|descriptor| {
        // SAFETY: it owns its descriptor, which stays open and the same until it is dropped.
        unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }
            .map_err(|refused| refused.into_parts().1)
    });
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.into(),
            Ok(None) => {}
            // Somebody else has waited for it: how it ended is not known.
            Err(_) => return Exit::Status(-1),
        }
        match &descriptor {
            // It stays readable; an error of waiting is one of the runtime's end.
            Ok(descriptor) if descriptor.readable().await.is_ok() => {}
            _ => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}

fn process_descriptor(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: passes no memory.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    match libc::c_int::try_from(descriptor) {
        // SAFETY: just made, and owned by nobody else. It is closed in what a process becomes.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[tokio::test]
    async fn an_end_is_told_with_its_reason() {
        for (script, exit, text) in [
            ("exit 0", Exit::Status(0), "ended with status 0"),
            ("sleep 0.1; exit 3", Exit::Status(3), "ended with status 3"),
            ("kill -9 $$", Exit::Signal(9), "was ended by SIGKILL"),
            ("kill -USR1 $$", Exit::Signal(libc::SIGUSR1), "was ended by signal 10"),
        ] {
            let mut child = Command::new("/bin/sh").args(["-c", script]).spawn().unwrap();
            let ended = wait(&mut child).await;
            assert_eq!((ended, ended.to_string().as_str()), (exit, text));
        }
    }
}
