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

/// Returns the user id of the process that created or connected the other end of a Unix socket.
/// Returns `None` if the descriptor is not a connected Unix socket. Always returns `None` outside
/// Linux.
pub fn peer_user(fd: BorrowedFd<'_>) -> Option<libc::uid_t> {
    #[cfg(target_os = "linux")]
    {
        let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut size = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: `peer` is valid for writes of `size` bytes.
        let result = unsafe {
            libc::getsockopt(
                fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut peer).cast(),
                &raw mut size,
            )
        };
        (result == 0).then_some(peer.uid)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = fd;
        None
    }
}

/// Marks all descriptors from the number `first` upwards as close-on-exec, so that the system
/// closes them when the process executes another program. Does nothing before Linux 5.11 and
/// outside Linux. Async-signal-safe.
pub fn close_on_exec_from(first: libc::c_uint) {
    #[cfg(target_os = "linux")]
    // SAFETY: the call passes no memory and closes nothing now.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            libc::c_uint::MAX,
            libc::c_uint::from(CLOSE_RANGE_CLOEXEC),
        );
    }
    #[cfg(not(target_os = "linux"))]
    let _ = first;
}

/// The flag of the system call `close_range` that sets close-on-exec instead of closing the
/// descriptors, as in `linux/close_range.h`.
#[cfg(target_os = "linux")]
const CLOSE_RANGE_CLOEXEC: u8 = 4;
