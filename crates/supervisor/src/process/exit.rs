//! The end of a process.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
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

/// The end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) exit: Exit,
    /// The processor time that it has had, with that of the children that it has waited for.
    pub(crate) time: Duration,
    /// Bytes of memory that it had at the most.
    pub(crate) memory: u64,
}

/// Waits for the end of a process, and takes it from the system's table.
pub(crate) async fn wait(child: Child) -> Ended {
    let descriptor = process_descriptor(child.id()).and_then(|descriptor| {
        // SAFETY: it owns its descriptor, which stays open and the same until it is dropped.
        unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }
            .map_err(|refused| refused.into_parts().1)
    });
    loop {
        if let Some(ended) = has_ended(&child) {
            return ended;
        }
        match &descriptor {
            // It stays readable; an error of waiting is one of the runtime's end.
            Ok(descriptor) if descriptor.readable().await.is_ok() => {}
            _ => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}

/// What the standard library does, and tells what the process has used as well.
fn has_ended(child: &Child) -> Option<Ended> {
    let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: two places to write to. It is our child, and nobody else waits for it.
    let waited = unsafe {
        libc::wait4(
            libc::pid_t::try_from(child.id()).unwrap_or(-1),
            &raw mut status,
            libc::WNOHANG,
            usage.as_mut_ptr(),
        )
    };
    if waited == 0 || (waited < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted) {
        return None;
    }
    // SAFETY: zeroes are a value of it, which the system may have replaced.
    let usage = unsafe { usage.assume_init() };
    let time = |it: libc::timeval| {
        Duration::from_secs(u64::try_from(it.tv_sec).unwrap_or(0))
            + Duration::from_micros(u64::try_from(it.tv_usec).unwrap_or(0))
    };
    Some(Ended {
        // Somebody else has waited for it: how it ended is not known.
        exit: if waited < 0 { Exit::Status(-1) } else { ExitStatus::from_raw(status).into() },
        time: time(usage.ru_utime) + time(usage.ru_stime),
        memory: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
    })
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
            let child = Command::new("/bin/sh").args(["-c", script]).spawn().unwrap();
            let ended = wait(child).await;
            assert_eq!((ended.exit, ended.exit.to_string().as_str()), (exit, text));
            assert!(ended.memory > 100_000, "{ended:?}");
        }
        let mut busy = Command::new("/bin/sh");
        busy.args(["-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"]);
        let ended = wait(busy.spawn().unwrap()).await;
        assert!(ended.exit == Exit::Status(0) && ended.time > Duration::ZERO, "{ended:?}");
    }
}
