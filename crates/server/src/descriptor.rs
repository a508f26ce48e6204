//! File descriptors: how many there may be, and which ones the server takes.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// R waits with `select()`, which cannot look at descriptors from here on: the low ones are left to it.
const SELECT_LIMIT: i32 = 1024;

/// Raises the process's limit on open descriptors to what it may be raised to. Done once, by the first listener.
pub(crate) fn raise_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit to write to.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0 && limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: `limit` is a valid rlimit. Failing leaves the limit as it was, which is what it was set to.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }
}

/// Moves a descriptor to 1,024 or above; where that is not possible it stays.
pub(crate) fn lift(fd: OwnedFd) -> OwnedFd {
    if fd.as_raw_fd() >= SELECT_LIMIT {
        return fd;
    }
    // SAFETY: `fd` is open; F_DUPFD_CLOEXEC takes a lowest number and makes a new descriptor.
    let lifted = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, SELECT_LIMIT) };
    if lifted < 0 {
        return fd;
    }
    // SAFETY: `lifted` was just made and is owned by nobody else.
    unsafe { OwnedFd::from_raw_fd(lifted) }
}

/// Whether accepting failed because descriptors or memory have run out: trying again at once would spin.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}
