//! Functions that read or set the properties of file descriptors and sockets.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use crate::checked;

/// Sets whether a descriptor is closed when the process executes another program (close-on-exec).
/// Async-signal-safe.
///
/// # Errors
/// Returns the system's error, for example `EBADF` if the descriptor is not open.
pub fn set_close_on_exec(fd: BorrowedFd<'_>, closes: bool) -> io::Result<()> {
    let flags = if closes { libc::FD_CLOEXEC } else { 0 };
    // SAFETY: the call passes no memory. FD_CLOEXEC is the only flag of a descriptor, so
    // overwriting the flags loses nothing.
    checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, flags) }).map(drop)
}

/// Returns the value of a numeric socket option of the level `SOL_SOCKET`. Returns `None` if the
/// descriptor is not an open socket.
pub fn socket_option(fd: BorrowedFd<'_>, option: libc::c_int) -> Option<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `value` is valid for writes of `size` bytes.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw mut value).cast(),
            &raw mut size,
        )
    };
    (result == 0).then_some(value)
}

/// Returns true if the descriptor is a socket that listens for connections.
pub fn is_listening(fd: BorrowedFd<'_>) -> bool {
    socket_option(fd, libc::SO_ACCEPTCONN).is_some_and(|value| value != 0)
}

/// Returns the address family of a socket. Returns `None` if the descriptor is not an open socket.
pub fn socket_family(fd: BorrowedFd<'_>) -> Option<libc::c_int> {
    family_by(libc::getsockname, fd)
}

/// Returns the address family of a connected socket's peer. Returns `None` if the descriptor is not
/// a connected socket.
pub fn peer_family(fd: BorrowedFd<'_>) -> Option<libc::c_int> {
    family_by(libc::getpeername, fd)
}

type GetName =
    unsafe extern "C" fn(libc::c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> libc::c_int;

fn family_by(get_name: GetName, fd: BorrowedFd<'_>) -> Option<libc::c_int> {
    // SAFETY: a socket address of zeros is valid.
    let mut address: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut size = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    // SAFETY: `address` is valid for writes of `size` bytes.
    let result = unsafe { get_name(fd.as_raw_fd(), (&raw mut address).cast(), &raw mut size) };
    (result == 0).then_some(libc::c_int::from(address.ss_family))
}

/// Makes a write to a socket whose peer has disconnected return an error instead of raising
/// SIGPIPE. Does nothing on systems where each write requests the same by `MSG_NOSIGNAL`.
pub fn disable_broken_pipe_signal(fd: BorrowedFd<'_>) {
    #[cfg(target_vendor = "apple")]
    {
        let on: libc::c_int = 1;
        // SAFETY: `on` is valid for reads of its size. If the call fails, R's handler ignores the
        // signal.
        unsafe {
            libc::setsockopt(
                fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_NOSIGPIPE,
                (&raw const on).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
    }
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
    use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "sockets")]
    fn a_socket_pair_has_a_unix_socket_at_its_other_end() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(peer_family(one.as_fd()), Some(libc::AF_UNIX));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_ne!(peer_family(listener.as_fd()), Some(libc::AF_UNIX));
    }

    #[test]
    #[cfg(target_os = "linux")]
    #[cfg_attr(miri, ignore = "descriptors")]
    fn descriptors_above_a_number_are_closed_on_exec() {
        let file = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: the call passes no memory, and creates a descriptor that nothing else owns.
        let inherited =
            unsafe { OwnedFd::from_raw_fd(libc::fcntl(file.as_raw_fd(), libc::F_DUPFD, 900)) };
        // SAFETY: F_GETFD passes no memory.
        let flags = || unsafe { libc::fcntl(inherited.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags(), 0);
        close_on_exec_from(950.max(inherited.as_raw_fd().unsigned_abs() + 1));
        assert_eq!(flags(), 0);
        close_on_exec_from(900);
        assert_eq!(flags(), libc::FD_CLOEXEC);
    }
}
