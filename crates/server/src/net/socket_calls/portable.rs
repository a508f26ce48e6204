//! What takes the place of system calls on a socket that only Linux has.
//!
//! The state of a connection is found by looking at its next byte of input, and by writing nothing,
//! which the system refuses after a reset. While there is unread input, a FIN behind it is
//! therefore not seen, but a reset is.

use std::fs::File;
use std::io;
use std::time::Duration;

use rookery_system::socket::BorrowedSocket;
use socket2::SockRef;

use super::{PeerState, receive};

/// Returns the error `Unsupported`, after which the server reads the file and writes its bytes.
pub(super) fn send_file(_: BorrowedSocket<'_>, _: &File, _: u64, _: usize) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns true. No caller depends on the result, because [`send_file`] never succeeds.
pub(super) fn can_write(_: BorrowedSocket<'_>) -> bool {
    true
}

/// Returns the number of bytes in the socket's send buffer, as
/// [`Socket::unsent`](super::Socket::unsent). Only macOS reports it.
pub(super) fn unsent(socket: BorrowedSocket<'_>) -> Option<u32> {
    #[cfg(target_vendor = "apple")]
    {
        let mut bytes: libc::c_int = 0;
        let mut size = size_of::<libc::c_int>() as libc::socklen_t;
        let (fd, value) = (std::os::fd::AsRawFd::as_raw_fd(&socket), (&raw mut bytes).cast());
        // SAFETY: `bytes` is valid for writes of `size` bytes.
        let status = unsafe {
            libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_NWRITE, value, &raw mut size)
        };
        u32::try_from(bytes).ok().filter(|_| status == 0)
    }
    #[cfg(not(target_vendor = "apple"))]
    {
        let _ = socket;
        None
    }
}

/// Returns true if the connection is closed in both directions.
pub(super) fn is_hung_up(socket: BorrowedSocket<'_>) -> bool {
    match input(socket) {
        Input::None | Input::Bytes => false,
        // The peer may still receive. Writing nothing succeeds then, and sends nothing.
        Input::End => is_write_refused(socket),
        Input::Failed => true,
    }
}

/// Returns true if the peer has sent a FIN and there is no unread input.
pub(super) fn has_peer_half_closed(socket: BorrowedSocket<'_>) -> bool {
    matches!(input(socket), Input::End | Input::Failed)
}

/// Returns the state of the connection, as [`Socket::peer_state`](super::Socket::peer_state).
pub(super) fn peer_state(socket: BorrowedSocket<'_>, is_tcp: bool) -> PeerState {
    match input(socket) {
        Input::None | Input::Bytes => PeerState::Open,
        Input::End if !is_tcp || !is_write_refused(socket) => PeerState::HalfClosed,
        Input::End => PeerState::Closed,
        Input::Failed if is_tcp => PeerState::Closed,
        Input::Failed => PeerState::HalfClosed,
    }
}

/// The result that the next read of a socket would have.
enum Input {
    /// There is no input now.
    None,
    /// Bytes. A FIN may follow them, but no reset.
    Bytes,
    /// The end of the input, after a FIN.
    End,
    /// An error, after a reset. If the peer of a Unix socket has closed it, bytes may precede the
    /// end of the input.
    Failed,
}

fn input(socket: BorrowedSocket<'_>) -> Input {
    match receive(socket, &mut [0], true) {
        Ok(0) => Input::End,
        // No caller asks after this side has sent a FIN, so a refusal means that the peer is gone.
        Ok(_) if is_write_refused(socket) => Input::Failed,
        Ok(_) => Input::Bytes,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Input::None,
        Err(_) => Input::Failed,
    }
}

/// Returns true if the system refuses a write to the socket because the connection is closed in
/// this direction as well.
fn is_write_refused(socket: BorrowedSocket<'_>) -> bool {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let flags = libc::MSG_NOSIGNAL;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let flags = 0;
    let written = SockRef::from(&socket).send_with_flags(&[], flags);
    written.is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock)
}

/// Does nothing: the other systems have no options for the number of unsent bytes and for the time
/// that they may stay unacknowledged.
pub(super) fn set_for_streaming(_: BorrowedSocket<'_>, _: Duration) {}
