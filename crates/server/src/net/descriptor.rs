//! File descriptors: how many there may be, which ones the server takes, and what a forked child closes.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rookery_system::fork::{CloseInChild, ForkRegistry};

/// R waits with `select()`, which cannot look at descriptors from here on: the low ones are left to it.
const SELECT_LIMIT: i32 = 1024;

/// Descriptors of the server itself and of files that are being sent or spooled while every connection is taken: the
/// threads that open them are four, but those that are open wait for their peers.
const SPARE_DESCRIPTORS: u64 = 256;

/// Raises the process's limit on open descriptors as far as `connections` need, and no further: what R starts inherits
/// it, and some programs close every descriptor up to the limit. Each connection may hold a file beside its socket.
pub(crate) fn raise_limit(connections: usize) {
    let wanted = (connections as u64)
        .saturating_mul(2)
        .saturating_add(SELECT_LIMIT as u64 + SPARE_DESCRIPTORS);
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit to write to.
    let is_known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0;
    let wanted = wanted.min(limit.rlim_max);
    if is_known && limit.rlim_cur < wanted {
        limit.rlim_cur = wanted;
        // SAFETY: `limit` is a valid rlimit. Failing leaves the limit as it was, which is what it was set to.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }
}

/// Moves a descriptor to 1,024 or above; where that is not possible it stays.
pub(crate) fn move_above_select_limit(fd: OwnedFd) -> OwnedFd {
    if fd.as_raw_fd() >= SELECT_LIMIT {
        return fd;
    }
    // SAFETY: `fd` is open; F_DUPFD_CLOEXEC takes a lowest number and makes a new descriptor.
    let moved = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, SELECT_LIMIT) };
    if moved < 0 {
        return fd;
    }
    // SAFETY: `lifted` was just made and is owned by nobody else.
    unsafe { OwnedFd::from_raw_fd(moved) }
}

/// Whether accepting failed because descriptors or memory have run out: trying again at once would spin.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

/// The descriptors of listeners and connections, for [`close_inherited`].
static SERVED: ForkRegistry = ForkRegistry::new();

/// Marks a descriptor as one that a forked child closes, until the returned guard is dropped. Drop the guard before closing the
/// descriptor.
pub fn close_in_child(fd: &impl AsFd) -> CloseInChild {
    SERVED.mark(fd)
}

/// Closes, in a forked child, the descriptors of the parent's listeners and connections. Takes no lock and allocates nothing.
pub(crate) fn close_inherited() {
    SERVED.close_all();
}
