//! Listening sockets: binding them to addresses, and accepting connections on them.

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

/// The maximum number of connections that wait in the queue of a listening socket. On Linux, the
/// kernel reduces it to `net.core.somaxconn` if it is larger.
const BACKLOG: i32 = 4096;

/// A listening TCP or Unix socket.
#[derive(Debug)]
pub(crate) enum ListeningSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl ListeningSocket {
    /// Makes a [`ListeningSocket`] from the descriptor of a listening TCP or Unix socket.
    pub(crate) fn from_fd(socket: OwnedFd) -> ListeningSocket {
        let tcp = TcpListener::from(socket);
        // The standard library fails for addresses of other families.
        if tcp.local_addr().is_ok() {
            ListeningSocket::Tcp(tcp)
        } else {
            ListeningSocket::Unix(OwnedFd::from(tcp).into())
        }
    }

    /// Returns a copy of the listening socket, which has a descriptor of its own.
    pub(crate) fn try_clone(&self) -> io::Result<ListeningSocket> {
        match self {
            ListeningSocket::Tcp(socket) => socket.try_clone().map(ListeningSocket::Tcp),
            ListeningSocket::Unix(socket) => socket.try_clone().map(ListeningSocket::Unix),
        }
    }

    /// Returns the port of a TCP socket, or `None` for a Unix socket.
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

/// A listening socket that is registered with the async runtime, so that new connections wake the
/// I/O thread.
#[derive(Debug)]
pub(crate) struct WatchedSocket {
    // Dropped before the socket, because another thread may reuse the number of a closed
    // descriptor.
    close_in_child: CloseInChild,
    bound: AsyncFd<Rc<ListeningSocket>>,
}

/// A listening socket that is not registered with the async runtime. New connections wait in the
/// socket's queue without waking this process.
#[derive(Debug)]
pub(crate) struct PausedSocket {
    // Dropped before the socket, as above.
    close_in_child: CloseInChild,
    bound: Rc<ListeningSocket>,
}

impl WatchedSocket {
    /// Registers a listening socket with the current async runtime.
    pub(crate) fn new(bound: Rc<ListeningSocket>) -> io::Result<WatchedSocket> {
        let close_in_child = close_in_child(&bound);
        PausedSocket { close_in_child, bound }.resume().map_err(|(_, error)| error)
    }

    /// Unregisters the listening socket from the async runtime, so that new connections do not wake
    /// this process.
    pub(crate) fn pause(self) -> PausedSocket {
        PausedSocket { close_in_child: self.close_in_child, bound: self.bound.into_inner() }
    }

    /// Waits for the next connection and accepts it.
    ///
    /// # Cancel safety
    /// No connection is lost if the future is dropped.
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
    /// Registers the paused socket with the current async runtime again. Connections that arrived
    /// during the pause are accepted next.
    ///
    /// # Errors
    /// Returns the socket together with the error if the runtime cannot register it.
    pub(crate) fn resume(self) -> Result<WatchedSocket, (PausedSocket, io::Error)> {
        let PausedSocket { close_in_child, bound } = self;
        // SAFETY: the socket owns its descriptor, which stays open and unchanged until the last
        // owner of `bound` drops it.
        match unsafe { AsyncFd::register_with_interest(bound, Interest::READABLE) } {
            Ok(bound) => Ok(WatchedSocket { close_in_child, bound }),
            Err(refused) => {
                let (bound, error) = refused.into_parts();
                Err((PausedSocket { close_in_child, bound }, error))
            }
        }
    }
}

/// Binds a TCP socket to an address and starts listening on it. Returns the socket and its actual
/// address.
pub(crate) fn bind_tcp(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = TcpListener::bind(address)?;
    socket.set_nonblocking(true)?;
    listen(&socket)?;
    let local = socket.local_addr()?;
    Ok((socket, local))
}

/// Starts listening on a bound socket, with a longer queue of connections than the standard
/// library's default.
pub(super) fn listen(socket: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: the descriptor is that of an open, bound socket.
    if unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}
