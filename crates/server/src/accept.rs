//! Accepting connections.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rookery_error::{ErrorHook, ErrorHookFuture};
use rookery_exchange::ListenerId;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::connection::{self, Connection};
use crate::descriptor::{self, Served};
use crate::hub::Hub;
use crate::server::Site;
use crate::stream::Socket;

/// Connections that wait to be accepted; the kernel caps it at `net.core.somaxconn`.
pub(crate) const BACKLOG: i32 = 4096;

/// How long accepting rests when descriptors or memory have run out.
const REST: Duration = Duration::from_millis(100);

/// What a connection past the limit is told.
const CROWDED: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n\
    Content-Type: text/plain\r\nContent-Length: 41\r\n\r\n503 Service Unavailable: all seats taken\n";

/// A bound socket.
#[derive(Debug)]
pub(crate) enum Bound {
    Tcp(TcpListener),
    Unix(UnixListener),
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

enum Accepted {
    Tcp(std::net::TcpStream, SocketAddr),
    Unix(std::os::unix::net::UnixStream),
}

/// Accepts until it is dropped.
pub(crate) async fn accept(hub: Rc<Hub>, bound: Bound, listener: ListenerId, site: Site) {
    // SAFETY: the socket owns its descriptor, which stays open and the same until `bound` is dropped.
    let Ok(bound) = (unsafe { AsyncFd::register_with_interest(bound, Interest::READABLE) }) else { return };
    loop {
        let accepted = bound
            .async_io(Interest::READABLE, |bound| match bound {
                Bound::Tcp(socket) => socket.accept().map(|(socket, remote)| Accepted::Tcp(socket, remote)),
                Bound::Unix(socket) => socket.accept().map(|(socket, _)| Accepted::Unix(socket)),
            })
            .await;
        match accepted {
            Ok(accepted) => {
                // Failing means that the client has gone already.
                let _ = welcome(&hub, accepted, listener, &site);
            }
            Err(error) if descriptor::is_exhausted(&error) => tokio::time::sleep(REST).await,
            // The client went before it was accepted.
            Err(_) => {}
        }
    }
}

fn welcome(hub: &Rc<Hub>, accepted: Accepted, listener: ListenerId, site: &Site) -> io::Result<()> {
    if hub.population() >= hub.limits.connections {
        return match accepted {
            Accepted::Tcp(socket, _) => turn_away(socket),
            Accepted::Unix(socket) => turn_away(socket),
        };
    }
    let (socket, served, ends) = match accepted {
        Accepted::Tcp(socket, remote) => {
            socket.set_nodelay(true)?;
            socket.set_nonblocking(true)?;
            let local = socket.local_addr()?;
            let socket = std::net::TcpStream::from(descriptor::lift(OwnedFd::from(socket)));
            let served = Served::new(&socket);
            (
                Socket::Tcp(tokio::net::TcpStream::from_std(socket)?),
                served,
                (Some(plain(remote)), Some(plain(local))),
            )
        }
        Accepted::Unix(socket) => {
            socket.set_nonblocking(true)?;
            let socket = std::os::unix::net::UnixStream::from(descriptor::lift(OwnedFd::from(socket)));
            let served = Served::new(&socket);
            (Socket::Unix(tokio::net::UnixStream::from_std(socket)?), served, (None, None))
        }
    };
    let connection = Connection::new(hub, listener, site, socket, served, ends);
    let hook: Arc<dyn ErrorHook> = Arc::clone(&connection.hook) as _;
    tokio::task::spawn_local(ErrorHookFuture::with_hook(Some(hook), connection::serve(connection)));
    Ok(())
}

/// An IPv4 peer of a dual-stack listener is shown as what it is.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn turn_away(mut socket: impl io::Write + Nonblocking) -> io::Result<()> {
    socket.set_nonblocking()?;
    socket.write_all(CROWDED)
}

trait Nonblocking {
    fn set_nonblocking(&self) -> io::Result<()>;
}

impl Nonblocking for std::net::TcpStream {
    fn set_nonblocking(&self) -> io::Result<()> {
        std::net::TcpStream::set_nonblocking(self, true)
    }
}

impl Nonblocking for std::os::unix::net::UnixStream {
    fn set_nonblocking(&self) -> io::Result<()> {
        std::os::unix::net::UnixStream::set_nonblocking(self, true)
    }
}
