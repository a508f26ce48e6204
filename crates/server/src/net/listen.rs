//! Listening sockets, and what they accept.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::rc::Rc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::addresses::OfAddress;
use super::descriptor::{self, CloseInChild};
use super::socket::Socket;
use super::tls::store::Tls;
use super::tls::stream::TlsStream;
use super::transport::{Channel, Transport};
use super::unix_stream::UnixStream;

/// Connections that wait to be accepted; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// A bound socket that listens.
#[derive(Debug)]
pub(crate) enum Bound {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Bound {
    /// Takes a socket that listens, over TCP or a Unix socket.
    pub(crate) fn of(socket: OwnedFd) -> Bound {
        let tcp = TcpListener::from(socket);
        // The standard library knows no address of another family.
        if tcp.local_addr().is_ok() {
            Bound::Tcp(tcp)
        } else {
            Bound::Unix(OwnedFd::from(tcp).into())
        }
    }

    /// The same socket once more.
    pub(crate) fn copy(&self) -> io::Result<Bound> {
        match self {
            Bound::Tcp(socket) => socket.try_clone().map(Bound::Tcp),
            Bound::Unix(socket) => socket.try_clone().map(Bound::Unix),
        }
    }

    /// The port of a TCP address.
    pub(crate) fn port(&self) -> Option<u16> {
        match self {
            Bound::Tcp(socket) => socket.local_addr().ok().map(|address| address.port()),
            Bound::Unix(_) => None,
        }
    }
}

impl AsFd for Bound {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Bound::Tcp(listener) => listener.as_fd(),
            Bound::Unix(listener) => listener.as_fd(),
        }
    }
}

impl AsRawFd for Bound {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// A listening socket that the runtime looks after.
#[derive(Debug)]
pub(crate) struct Acceptor {
    // Before the socket: a descriptor that was closed may be somebody else's by now.
    close_in_child: CloseInChild,
    bound: AsyncFd<Rc<Bound>>,
}

/// A listening socket that the runtime does not look after: nobody is accepted, and nothing of this
/// process wakes up for those who connect.
#[derive(Debug)]
pub(crate) struct Resting {
    // As above.
    close_in_child: CloseInChild,
    bound: Rc<Bound>,
}

impl Acceptor {
    /// Takes a bound socket, inside a runtime.
    pub(crate) fn new(bound: Rc<Bound>) -> io::Result<Acceptor> {
        let close_in_child = CloseInChild::new(&bound);
        Resting { close_in_child, bound }.resume().map_err(|(_, error)| error)
    }

    /// Leaves the socket alone.
    pub(crate) fn rest(self) -> Resting {
        Resting { close_in_child: self.close_in_child, bound: self.bound.into_inner() }
    }

    /// The next connection. Dropped, none is lost.
    pub(crate) async fn accept(&self) -> io::Result<Arrival> {
        let accept = |bound: &Rc<Bound>| match &**bound {
            Bound::Tcp(socket) => {
                socket.accept().map(|(socket, remote)| Arrival::Tcp(socket, remote))
            }
            Bound::Unix(socket) => socket.accept().map(|(socket, _)| Arrival::Unix(socket)),
        };
        self.bound.async_io(Interest::READABLE, accept).await
    }
}

impl Resting {
    /// Has the runtime look after the socket again. Who has connected meanwhile is found.
    ///
    /// # Errors
    /// The system's, with what was to be resumed.
    pub(crate) fn resume(self) -> Result<Acceptor, (Resting, io::Error)> {
        let Resting { close_in_child, bound } = self;
        // SAFETY: the socket owns its descriptor, which stays open and the same until the last owner of `bound` drops it.
        match unsafe { AsyncFd::register_with_interest(bound, Interest::READABLE) } {
            Ok(bound) => Ok(Acceptor { close_in_child, bound }),
            Err(refused) => {
                let (bound, error) = refused.into_parts();
                Err((Resting { close_in_child, bound }, error))
            }
        }
    }
}

/// A connection that has been accepted, and not been taken in yet.
#[derive(Debug)]
pub(crate) enum Arrival {
    Tcp(std::net::TcpStream, SocketAddr),
    Unix(std::os::unix::net::UnixStream),
}

/// The two ends of a connection; a Unix socket's have no address.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ends {
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) local: Option<SocketAddr>,
}

impl Ends {
    /// Those of a client over TCP.
    pub(crate) fn of(remote: SocketAddr, local: SocketAddr) -> Ends {
        Ends { remote: Some(plain(remote)), local: Some(plain(local)) }
    }
}

impl Arrival {
    /// The client's address; `None` on a Unix socket.
    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        match self {
            Arrival::Tcp(_, remote) => Some(*remote),
            Arrival::Unix(_) => None,
        }
    }

    /// Whether it comes from who may be the supervisor of this process.
    pub(crate) fn is_of_supervisor(&self) -> bool {
        match self {
            Arrival::Tcp(..) => false,
            Arrival::Unix(socket) => rookery_worker_protocol::is_trusted_peer(socket.as_fd()),
        }
    }

    /// Takes it in, with its place among the connections of its address, to be spoken to in the clear or with TLS. An error
    /// means that the client has gone.
    pub(crate) fn welcome(
        self,
        of_address: Option<OfAddress>,
        tls: Option<&Tls>,
    ) -> io::Result<(Transport, Ends)> {
        let (socket, close_in_child, ends) = match self {
            Arrival::Tcp(socket, remote) => {
                socket.set_nodelay(true)?;
                socket.set_nonblocking(true)?;
                let local = socket.local_addr()?;
                let socket = std::net::TcpStream::from(descriptor::lift(OwnedFd::from(socket)));
                let close_in_child = CloseInChild::new(&socket);
                let ends = Ends::of(remote, local);
                (Socket::Tcp(tokio::net::TcpStream::from_std(socket)?), close_in_child, ends)
            }
            Arrival::Unix(socket) => {
                socket.set_nonblocking(true)?;
                let socket =
                    std::os::unix::net::UnixStream::from(descriptor::lift(OwnedFd::from(socket)));
                let close_in_child = CloseInChild::new(&socket);
                (Socket::Unix(UnixStream::new(socket)?), close_in_child, Ends::default())
            }
        };
        let channel = match tls {
            None => Channel::Plain(socket),
            Some(tls) => Channel::Tls(Box::new(TlsStream::new(tls.config(), socket)?)),
        };
        Ok((Transport::new(channel, close_in_child, of_address), ends))
    }

    /// Answers without having read anything, and closes. An error means that the client has gone.
    pub(crate) fn turn_away(self, answer: &[u8]) -> io::Result<()> {
        match self {
            Arrival::Tcp(mut socket, _) => {
                socket.set_nonblocking(true)?;
                socket.write_all(answer)
            }
            Arrival::Unix(mut socket) => {
                socket.set_nonblocking(true)?;
                socket.write_all(answer)
            }
        }
    }
}

/// An IPv4 peer of a dual-stack listener is shown as what it is.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Binds a TCP address and listens.
pub(crate) fn tcp(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
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
