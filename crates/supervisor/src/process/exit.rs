//! The end of a worker process, and the function that reaps it.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

/// The number of bytes in the unit in which the system reports the resident memory of an ended
/// process (`ru_maxrss`).
const MEMORY_UNIT: u64 = 1024;

/// The exit status of a process, or the signal that ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The process exited with this status.
    Status(i32),
    /// The process was ended by this signal.
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

/// The exit status or signal with which a process ended, and the resources that it had used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessEnd {
    pub(crate) exit: Exit,
    /// The processor time used by the process, including the child processes that it has waited
    /// for.
    pub(crate) time: Duration,
    /// The maximum resident memory that the process used, in bytes.
    pub(crate) memory: u64,
}

/// Reaps an ended child process, which must be the leader of its process group. First kills the
/// remaining processes of that group.
pub(crate) fn reap(pid: libc::pid_t) -> ProcessEnd {
    let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: the call passes no memory. The process is a zombie, so the group still belongs to it.
    unsafe { libc::kill(-pid, libc::SIGKILL) };
    let waited = loop {
        // SAFETY: both pointers are valid for writes. The process is a child of this process, and
        // nothing else waits for it.
        let waited = unsafe { libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) };
        if waited >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            break waited;
        }
    };
    // SAFETY: an `rusage` of zeros is valid, and the system may have overwritten it.
    let usage = unsafe { usage.assume_init() };
    let time = |it: libc::timeval| {
        Duration::from_secs(u64::try_from(it.tv_sec).unwrap_or(0))
            + Duration::from_micros(u64::try_from(it.tv_usec).unwrap_or(0))
    };
    ProcessEnd {
        // An error means that something else has reaped the process, so its exit status is unknown.
        exit: if waited < 0 { Exit::Status(-1) } else { ExitStatus::from_raw(status).into() },
        time: time(usage.ru_utime) + time(usage.ru_stime),
        memory: u64::try_from(usage.ru_maxrss).unwrap_or(0) * MEMORY_UNIT,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::process::wait;

    /// Starts a shell that runs a script in a new process group. The shell is the leader of that
    /// group.
    fn shell(script: &str) -> (Child, libc::pid_t) {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).process_group(0).stdout(Stdio::piped());
        let child = command.spawn().unwrap();
        let pid = libc::pid_t::try_from(child.id()).unwrap();
        (child, pid)
    }

    #[tokio::test]
    async fn an_end_is_told_with_its_reason() {
        for (script, exit, text) in [
            ("exit 0", Exit::Status(0), "ended with status 0"),
            ("sleep 0.1; exit 3", Exit::Status(3), "ended with status 3"),
            ("kill -9 $$", Exit::Signal(9), "was ended by SIGKILL"),
            ("kill -USR1 $$", Exit::Signal(libc::SIGUSR1), "was ended by signal 10"),
        ] {
            let (_child, pid) = shell(script);
            wait(pid).await;
            let ended = reap(pid);
            assert_eq!((ended.exit, ended.exit.to_string().as_str()), (exit, text));
            assert!(ended.memory > 100_000, "{ended:?}");
        }
        let (_child, pid) = shell("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done");
        wait(pid).await;
        let ended = reap(pid);
        assert!(ended.exit == Exit::Status(0) && ended.time > Duration::ZERO, "{ended:?}");
    }

    /// Returns the state of a process according to `/proc`, or `None` if the process does not
    /// exist.
    fn state(pid: libc::pid_t) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.trim_start().chars().next()
    }

    #[tokio::test]
    async fn its_number_is_nobody_elses_until_its_group_has_been_killed() {
        let (mut child, pid) = shell("sleep 1000 & echo $!");
        wait(pid).await;
        let mut said = String::new();
        // The background process keeps the pipe open, so waiting for its end would not return.
        let mut room = [0; 32];
        let read = child.stdout.as_mut().unwrap().read(&mut room).unwrap();
        said.push_str(std::str::from_utf8(&room[..read]).unwrap());
        let left: libc::pid_t = said.trim().parse().unwrap();
        // A zombie keeps the id of the process, and so the id of the group.
        assert_eq!(state(pid), Some('Z'));
        assert!(state(left).is_some_and(|state| state != 'Z'));
        assert_eq!(reap(pid).exit, Exit::Status(0));
        assert_eq!(state(pid), None);
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while state(left).is_some_and(|state| state != 'Z') {
            assert!(std::time::Instant::now() < until, "what it has started lives on");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
