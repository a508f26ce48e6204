//! The handles of sockets: listening, raising their maximum number, moving them to high numbers,
//! and closing them in a forked child.

use std::io;
#[cfg(unix)]
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use rookery_system::fork::{CloseInChild, ForkRegistry};
use rookery_system::socket::{AsSocket, OwnedSocket};
#[cfg(unix)]
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::SockRef;

/// The lowest file descriptor number that `select()` cannot watch. Lower numbers are left to R,
/// which waits with `select()`, except for a quarter of them.
#[cfg(unix)]
const SELECT_LIMIT: i32 = 1024;

/// The numbers that the server uses as well. A server with few connections thereby saves two system
/// calls for each connection.
#[cfg(unix)]
const SHARED_NUMBERS: i32 = 256;

/// The number of file descriptors that are needed in addition to those of connections. One half is
/// for the server itself (listeners, logs, certificates and workers), and the other for files that
/// are being sent or spooled while all connections are in use.
#[cfg(unix)]
const SPARE_DESCRIPTORS: u64 = 256;

/// The number of file descriptors for the files of HTTP/2 connections, which have one for each
/// stream: of ten connections with 100 streams each.
#[cfg(unix)]
const STREAM_FILES: u64 = 1000;

/// The maximum number of connections for which the process has file descriptors.
static MAX_CONNECTIONS: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Raises the process's limit on open file descriptors to the number that `connections` connections
/// need, each with a socket and a file, and some with a file for each HTTP/2 stream. Does not raise
/// it further, because R's child processes inherit the limit, and some programs close every
/// descriptor up to it. Returns how many files of clients may be open at a time. Windows has no
/// such limit.
pub(crate) fn raise_limit(connections: usize) -> usize {
    #[cfg(unix)]
    return raise_limit_on_unix(connections);
    #[cfg(not(unix))]
    {
        let _ = connections;
        usize::MAX
    }
}

/// Returns the maximum number of connections for which the process has file descriptors, as of the
/// last call of [`raise_limit`].
pub(crate) fn max_connections() -> usize {
    MAX_CONNECTIONS.load(Ordering::Relaxed)
}

/// Returns the number of connections that a process with `descriptors` file descriptors may have.
/// The others are for files, for R or the workers, and for the server itself: a half, and at most
/// the numbers that R can watch with `select()` and [`SPARE_DESCRIPTORS`].
#[cfg(unix)]
fn connections_with(descriptors: u64) -> usize {
    let reserved = (descriptors / 2).min(SELECT_LIMIT as u64 + SPARE_DESCRIPTORS);
    usize::try_from(descriptors - reserved).unwrap_or(usize::MAX)
}

/// Returns the number of files of clients that a process with `descriptors` file descriptors and at
/// most `connections` connections may have open. The rest is for R or the workers, and for the
/// server itself, so that it can still accept connections and read certificates.
#[cfg(unix)]
fn files_with(descriptors: u64, connections: usize) -> usize {
    let own = (descriptors / 4).min(SELECT_LIMIT as u64 + SPARE_DESCRIPTORS / 2);
    let others = usize::try_from(descriptors - own).unwrap_or(usize::MAX);
    others - connections.min(connections_with(descriptors))
}

#[cfg(unix)]
fn raise_limit_on_unix(connections: usize) -> usize {
    let wanted = (connections as u64)
        .saturating_mul(2)
        .saturating_add(SELECT_LIMIT as u64 + SPARE_DESCRIPTORS + STREAM_FILES);
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(wanted, |maximum| wanted.min(maximum));
    if limit.current.is_some_and(|current| current < wanted) {
        // If the call fails, the limit stays as it was.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit });
    }
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    MAX_CONNECTIONS.store(connections_with(descriptors), Ordering::Relaxed);
    files_with(descriptors, connections)
}

/// Moves a file descriptor whose number R may need to a number of 1,024 or above. Returns the
/// original descriptor if that fails, and on Windows, where handles have no such limit.
pub(crate) fn leave_low_numbers(socket: OwnedSocket) -> OwnedSocket {
    #[cfg(unix)]
    if (SHARED_NUMBERS..SELECT_LIMIT).contains(&socket.as_raw_fd()) {
        if let Ok(moved) = rustix::io::fcntl_dupfd_cloexec(&socket, SELECT_LIMIT) {
            return moved;
        }
    }
    socket
}

/// Makes a write to a socket whose peer has disconnected return an error instead of raising
/// SIGPIPE, where the write itself does not request it.
pub(crate) fn disable_broken_pipe_signal(socket: &impl AsSocket) {
    #[cfg(unix)]
    rookery_system::descriptor::disable_broken_pipe_signal(socket.as_fd());
    #[cfg(not(unix))]
    let _ = socket;
}

/// Returns true if a connection could not be accepted because file descriptors or memory have run
/// out. An immediate retry would fail again and waste processor time.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    #[cfg(unix)]
    const ERRORS: [i32; 4] = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    // WSAEMFILE, WSAENOBUFS, ERROR_TOO_MANY_OPEN_FILES, ERROR_NOT_ENOUGH_MEMORY and
    // ERROR_PIPE_BUSY.
    #[cfg(windows)]
    const ERRORS: [i32; 5] = [10_024, 10_055, 4, 8, 231];
    error.raw_os_error().is_some_and(|error| ERRORS.contains(&error))
}

/// The file descriptors of listeners and connections, which a forked child closes by
/// [`close_inherited`].
static SERVED: ForkRegistry = ForkRegistry::new();

/// Registers a file descriptor to be closed in a forked child. It is registered until the returned
/// guard is dropped, which must happen before the descriptor is closed.
#[cfg(unix)]
pub fn close_in_child(fd: &impl AsSocket) -> CloseInChild {
    SERVED.mark(fd)
}

/// Returns a guard that has no effect, because Windows has no forked children.
#[cfg(not(unix))]
pub fn close_in_child<T>(handle: &T) -> CloseInChild {
    SERVED.mark(handle)
}

/// Closes, in a forked child process, the descriptors of the parent's listeners and connections.
/// Takes no lock and allocates no memory.
pub(crate) fn close_inherited() {
    SERVED.close_all();
}

/// The maximum number of connections that wait in the queue of a listening socket. On Linux, the
/// kernel reduces it to `net.core.somaxconn` if it is larger.
const BACKLOG: i32 = 4096;

/// Starts listening on a bound socket, with a longer queue of connections than the standard
/// library's default.
pub(super) fn listen(socket: &impl AsSocket) -> io::Result<()> {
    SockRef::from(socket).listen(BACKLOG)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_half_of_the_descriptors_or_a_constant_number() {
        for (descriptors, connections) in
            [(0, 0), (64, 32), (256, 128), (1024, 512), (4096, 2816), (1 << 20, (1 << 20) - 1280)]
        {
            assert_eq!(connections_with(descriptors), connections, "{descriptors}");
        }
        // The limit to which the default is raised suffices for all of its connections.
        assert!(connections_with(2 * 10_000 + 1024 + 256) >= 10_000);
    }

    #[test]
    fn files_leave_the_descriptors_of_all_connections_and_a_reserve() {
        for (descriptors, connections, files, own) in [
            (0, 10_000, 0, 0),
            (64, 10_000, 16, 16),
            (256, 20, 172, 64),
            (1024, 10_000, 256, 256),
            (4096, 10_000, 256, 1024),
            (2280, 500, 1210, 570),
            (22_280, 10_000, 11_128, 1152),
        ] {
            assert_eq!(files_with(descriptors, connections), files, "{descriptors}");
            let connections = connections.min(connections_with(descriptors));
            assert_eq!(files + connections + own, descriptors as usize);
        }
    }
}
