//! The queue of connections that wait to be accepted.

use std::io;

use rookery_system::socket::AsSocket;
use socket2::SockRef;

/// The maximum number of connections that wait in the queue of a listening socket. On Linux, the
/// kernel reduces it to `net.core.somaxconn` if it is larger.
const BACKLOG: i32 = 4096;

/// Starts listening on a bound socket, with a longer queue of connections than the standard
/// library's default.
pub(super) fn listen(socket: &impl AsSocket) -> io::Result<()> {
    SockRef::from(socket).listen(BACKLOG)
}
