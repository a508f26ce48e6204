//! The handle of a socket, by one name on all systems: a file descriptor on Unix, and a `SOCKET` on
//! Windows.

use std::io;

#[cfg(unix)]
pub use std::os::fd::{AsFd as AsSocket, BorrowedFd as BorrowedSocket, OwnedFd as OwnedSocket};
#[cfg(windows)]
pub use std::os::windows::io::{AsSocket, BorrowedSocket, OwnedSocket};

/// Borrows the handle of a socket.
pub fn borrow(socket: &impl AsSocket) -> BorrowedSocket<'_> {
    #[cfg(unix)]
    return socket.as_fd();
    #[cfg(windows)]
    socket.as_socket()
}

/// Returns a copy of a socket's handle, which this process owns.
///
/// # Errors
/// Returns the system's error if there are no more descriptors.
pub fn duplicate(socket: &impl AsSocket) -> io::Result<OwnedSocket> {
    borrow(socket).try_clone_to_owned()
}
