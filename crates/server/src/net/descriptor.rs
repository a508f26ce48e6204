//! The management of file descriptors: raising their maximum number, moving them to high numbers,
//! and closing them in a forked child.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rookery_system::fork::{CloseInChild, ForkRegistry};

/// The lowest file descriptor number that `select()` cannot watch. The server moves its own
/// descriptors to this number or above. The lower numbers are left to R, which waits with
/// `select()`.
const SELECT_LIMIT: i32 = 1024;

/// The number of file descriptors that are needed in addition to those of connections. They are
/// used by the server itself, and by files that are being sent or spooled while all connections are
/// in use.
// Only four threads open files, but a file stays open while its client is slow.
const SPARE_DESCRIPTORS: u64 = 256;

/// Raises the process's limit on open file descriptors to the number that `connections` connections
/// need, each with a socket and a file. Does not raise it further, because R's child processes
/// inherit the limit, and some programs close every descriptor up to it.
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
        // SAFETY: `limit` is a valid rlimit. If the call fails, the limit stays as it was.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }
}

/// Moves a file descriptor to a number of 1,024 or above. Returns the original descriptor if that
/// fails.
pub(crate) fn move_above_select_limit(fd: OwnedFd) -> OwnedFd {
    if fd.as_raw_fd() >= SELECT_LIMIT {
        return fd;
    }
    // SAFETY: `fd` is open; F_DUPFD_CLOEXEC takes a minimum number and creates a new descriptor.
    let moved = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, SELECT_LIMIT) };
    if moved < 0 {
        return fd;
    }
    // SAFETY: `moved` was just created and has no other owner.
    unsafe { OwnedFd::from_raw_fd(moved) }
}

/// Returns true if a connection could not be accepted because file descriptors or memory have run
/// out. An immediate retry would fail again and waste processor time.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

/// The file descriptors of listeners and connections, which a forked child closes by
/// [`close_inherited`].
static SERVED: ForkRegistry = ForkRegistry::new();

/// Registers a file descriptor to be closed in a forked child. It is registered until the returned
/// guard is dropped, which must happen before the descriptor is closed.
pub fn close_in_child(fd: &impl AsFd) -> CloseInChild {
    SERVED.mark(fd)
}

/// Closes, in a forked child process, the descriptors of the parent's listeners and connections.
/// Takes no lock and allocates no memory.
pub(crate) fn close_inherited() {
    SERVED.close_all();
}
