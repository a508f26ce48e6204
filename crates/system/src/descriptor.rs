//! Functions that read or set the properties of file descriptors and sockets.

use std::os::fd::BorrowedFd;

use rustix::io::FdFlags;
pub use rustix::net::{AddressFamily, SocketType};
use rustix::net::{getpeername, getsockname, sockopt};

/// Sets whether a descriptor is closed when the process executes another program (close-on-exec).
/// Async-signal-safe.
///
/// # Errors
/// Returns the system's error, for example `EBADF` if the descriptor is not open.
pub fn set_close_on_exec(fd: BorrowedFd<'_>, closes: bool) -> std::io::Result<()> {
    // FD_CLOEXEC is the only flag of a descriptor, so overwriting the flags loses nothing.
    let flags = if closes { FdFlags::CLOEXEC } else { FdFlags::empty() };
    Ok(rustix::io::fcntl_setfd(fd, flags)?)
}

/// Returns the type of a socket, and whether it listens for connections. On macOS, which does not
/// implement `SO_ACCEPTCONN`, a socket without a peer counts as listening. Returns `None` if the
/// descriptor is not an open socket.
pub fn socket_type(fd: BorrowedFd<'_>) -> Option<(SocketType, bool)> {
    #[cfg(not(target_vendor = "apple"))]
    let is_listening = sockopt::socket_acceptconn(fd).ok()?;
    #[cfg(target_vendor = "apple")]
    let is_listening = getpeername(fd).is_err();
    Some((sockopt::socket_type(fd).ok()?, is_listening))
}

/// Returns the address family of a socket. Returns `None` if the descriptor is not an open socket.
pub fn socket_family(fd: BorrowedFd<'_>) -> Option<AddressFamily> {
    Some(getsockname(fd).ok()?.address_family())
}

/// Returns the address family of a connected socket's peer. Returns `None` if the descriptor is not
/// a connected socket.
pub fn peer_family(fd: BorrowedFd<'_>) -> Option<AddressFamily> {
    Some(getpeername(fd).ok()??.address_family())
}

/// Makes a write to a socket whose peer has disconnected return an error instead of raising
/// SIGPIPE. Does nothing on systems where each write requests the same by `MSG_NOSIGNAL`.
pub fn disable_broken_pipe_signal(fd: BorrowedFd<'_>) {
    #[cfg(target_vendor = "apple")]
    // If the call fails, R's handler ignores the signal.
    let _ = sockopt::set_socket_nosigpipe(fd, true);
    #[cfg(not(target_vendor = "apple"))]
    let _ = fd;
}

/// Marks all descriptors from the number `first` upwards as close-on-exec, so that the system
/// closes them when the process executes another program. Does nothing before Linux 5.11.
/// Async-signal-safe.
#[cfg(target_os = "linux")]
pub fn close_on_exec_from(first: libc::c_uint) {
    // SAFETY: the call passes no memory and closes nothing now.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            libc::c_uint::MAX,
            libc::c_uint::from(CLOSE_RANGE_CLOEXEC),
        );
    }
}

/// The flag of the system call `close_range` that sets close-on-exec instead of closing the
/// descriptors, as in `linux/close_range.h`.
#[cfg(target_os = "linux")]
const CLOSE_RANGE_CLOEXEC: u8 = 4;

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd as _, AsRawFd as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "sockets")]
    fn a_socket_pair_has_a_unix_socket_at_its_other_end() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(peer_family(one.as_fd()), Some(AddressFamily::UNIX));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_ne!(peer_family(listener.as_fd()), Some(AddressFamily::UNIX));
    }

    #[test]
    #[cfg(target_os = "linux")]
    #[cfg_attr(miri, ignore = "descriptors")]
    fn descriptors_above_a_number_are_closed_on_exec() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let inherited = rustix::io::fcntl_dupfd_cloexec(&file, 900).unwrap();
        set_close_on_exec(inherited.as_fd(), false).unwrap();
        let flags = || rustix::io::fcntl_getfd(&inherited).unwrap();
        assert_eq!(flags(), FdFlags::empty());
        close_on_exec_from(950.max(inherited.as_raw_fd().unsigned_abs() + 1));
        assert_eq!(flags(), FdFlags::empty());
        close_on_exec_from(900);
        assert_eq!(flags(), FdFlags::CLOEXEC);
    }
}
