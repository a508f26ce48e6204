//! Listening sockets, and what they accept.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::rc::Rc;

use super::accepted_socket::AcceptedSocket;

use super::descriptor::close_in_child;
use rookery_system::fork::CloseInChild;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Connections that wait to be accepted; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// A bound socket that listens.
#[derive(Debug)]
pub(crate) enum ListeningSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl ListeningSocket {
    /// Takes a socket that listens, over TCP or a Unix socket.
    pub(crate) fn from_fd(socket: OwnedFd) -> ListeningSocket {
        let tcp = TcpListener::from(socket);
        // The standard library knows no address of another family.
        if tcp.local_addr().is_ok() {
            ListeningSocket::Tcp(tcp)
        } else {
            ListeningSocket::Unix(OwnedFd::from(tcp).into())
        }
    }

    /// The same socket once more.
    pub(crate) fn try_clone(&self) -> io::Result<ListeningSocket> {
        match self {
            ListeningSocket::Tcp(socket) => socket.try_clone().map(ListeningSocket::Tcp),
            ListeningSocket::Unix(socket) => socket.try_clone().map(ListeningSocket::Unix),
        }
    }

    /// The port of a TCP address.
    pub(crate) fn port(&self) -> Option<u16> {
        match self {
            ListeningSocket::Tcp(socket) => socket.local_addr().ok().map(|address| address.port()),
            ListeningSocket::Unix(_) => None,
        }
    }
}

impl AsFd for ListeningSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            ListeningSocket::Tcp(listener) => listener.as_fd(),
            ListeningSocket::Unix(listener) => listener.as_fd(),
        }
    }
}

impl AsRawFd for ListeningSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// A listening socket that the runtime looks after.
#[derive(Debug)]
pub(crate) struct WatchedSocket {
    // Before the socket: a descriptor that was closed may be somebody else's by now.
    close_in_child: CloseInChild,
    bound: AsyncFd<Rc<ListeningSocket>>,
}

/// A listening socket that the runtime does not look after: nobody is accepted, and nothing of this
/// process wakes up for those who connect.
#[derive(Debug)]
pub(crate) struct PausedSocket {
    // As above.
    close_in_child: CloseInChild,
    bound: Rc<ListeningSocket>,
}

impl WatchedSocket {
    /// Takes a bound socket, inside a runtime.
    pub(crate) fn new(bound: Rc<ListeningSocket>) -> io::Result<WatchedSocket> {
        let close_in_child = close_in_child(&bound);
        PausedSocket { close_in_child, bound }.resume().map_err(|(_, error)| error)
    }

    /// Leaves the socket alone.
    pub(crate) fn pause(self) -> PausedSocket {
        PausedSocket { close_in_child: self.close_in_child, bound: self.bound.into_inner() }
    }

    /// The next connection. Dropped, none is lost.
    pub(crate) async fn accept(&self) -> io::Result<AcceptedSocket> {
        let accept = |bound: &Rc<ListeningSocket>| match &**bound {
            ListeningSocket::Tcp(socket) => {
                socket.accept().map(|(socket, remote)| AcceptedSocket::Tcp(socket, remote))
            }
            ListeningSocket::Unix(socket) => {
                socket.accept().map(|(socket, _)| AcceptedSocket::Unix(socket))
            }
        };
        self.bound.async_io(Interest::READABLE, accept).await
    }
}

impl PausedSocket {
    /// Has the runtime look after the socket again. Who has connected meanwhile is found.
    ///
    /// # Errors
    /// The system's, with what was to be resumed.
    pub(crate) fn resume(self) -> Result<WatchedSocket, (PausedSocket, io::Error)> {
        let PausedSocket { close_in_child, bound } = self;
        // SAFETY: the socket owns its descriptor, which stays open and the same until the last owner of `bound` drops it.
        match unsafe { AsyncFd::register_with_interest(bound, Interest::READABLE) } {
            Ok(bound) => Ok(WatchedSocket { close_in_child, bound }),
            Err(refused) => {
                let (bound, error) = refused.into_parts();
                Err((PausedSocket { close_in_child, bound }, error))
            }
        }
    }
}

/// Binds a TCP address and listens.
pub(crate) fn bind_tcp(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = TcpListener::bind(address)?;
    socket.set_nonblocking(true)?;
    listen(&socket)?;
    let local = socket.local_addr()?;
    Ok((socket, local))
}

/// Listens, with a longer queue than the standard library asks for.
pub(super) fn listen(socket: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: an open, bound socket.
    if unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}
