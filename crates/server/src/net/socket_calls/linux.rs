//! The system calls on a socket that Linux alone has, and those that say more there: `sendfile`,
//! and the state of a connection by `poll`, even if there is unread input.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use socket2::SockRef;

use super::PeerState;

/// The maximum number of unsent bytes of a streamed response that the system buffers for a socket.
/// With a larger buffer, bytes would count as written long before they are sent.
const UNSENT_LIMIT: u32 = 128 << 10;

/// The results of `poll` that report a connection as closed in both directions.
const GONE: PollFlags = PollFlags::HUP.union(PollFlags::ERR);

/// Sends a range of a file without copying it to this process.
///
/// # Errors
/// Returns `Unsupported` if the file cannot be sent in this way.
pub(super) fn send_file(
    socket: BorrowedFd<'_>,
    file: &File,
    mut at: u64,
    len: usize,
) -> io::Result<usize> {
    match rustix::fs::sendfile(socket, file, Some(&mut at), len) {
        // The file system or the security policy does not allow it.
        Err(Errno::INVAL | Errno::NOSYS | Errno::PERM | Errno::OPNOTSUPP) => {
            Err(io::ErrorKind::Unsupported.into())
        }
        sent => Ok(sent?),
    }
}

/// Returns true if a write to the socket would not have to wait.
pub(super) fn can_write(socket: BorrowedFd<'_>) -> bool {
    !poll(socket, PollFlags::OUT).is_empty()
}

/// Returns the number of bytes in the socket's send buffer, as
/// [`Socket::unsent`](super::Socket::unsent).
pub(super) fn unsent(socket: BorrowedFd<'_>) -> Option<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ writes one int.
    let status = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    u32::try_from(bytes).ok().filter(|_| status == 0)
}

/// Returns true if the connection is closed in both directions.
pub(super) fn is_hung_up(socket: BorrowedFd<'_>) -> bool {
    poll(socket, PollFlags::empty()).intersects(GONE)
}

/// Returns true if the peer has sent a FIN, even if input from before the FIN is unread.
pub(super) fn has_peer_half_closed(socket: BorrowedFd<'_>) -> bool {
    poll(socket, PollFlags::RDHUP).intersects(GONE | PollFlags::RDHUP)
}

/// Returns the state of the connection, as [`Socket::peer_state`](super::Socket::peer_state).
pub(super) fn peer_state(socket: BorrowedFd<'_>, is_tcp: bool) -> PeerState {
    match poll(socket, PollFlags::RDHUP) {
        found if found.is_empty() => PeerState::Open,
        found if is_tcp && found.intersects(GONE) => PeerState::Closed,
        _ => PeerState::HalfClosed,
    }
}

/// Configures a TCP socket for a streamed response, as
/// [`Socket::set_for_streaming`](super::Socket::set_for_streaming).
pub(super) fn set_for_streaming(socket: BorrowedFd<'_>, timeout: Duration) {
    let socket = SockRef::from(&socket);
    // If a call fails, the system's default applies.
    let _ = socket.set_tcp_notsent_lowat(UNSENT_LIMIT);
    let _ = socket.set_tcp_user_timeout(Some(timeout));
}

/// Returns which of `events`, or of the events that are always reported, the socket has now.
fn poll(socket: BorrowedFd<'_>, events: PollFlags) -> PollFlags {
    let mut polled = [PollFd::from_borrowed_fd(socket, events)];
    match rustix::event::poll(&mut polled, Some(&Timespec::default())) {
        Ok(1..) => polled[0].revents(),
        _ => PollFlags::empty(),
    }
}
