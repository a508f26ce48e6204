//! Accepting connections.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rookery_error::{ErrorHook, ErrorHookFuture};
use rookery_exchange::{ListenerId, Share};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::connection::{self, Connection, Joined};
use crate::descriptor::{self, Served};
use crate::hub::Hub;
use crate::overload::CONNECTION_BYTES;
use crate::seats::Seat;
use crate::server::Site;
use crate::stream::Socket;

/// Connections that wait to be accepted; the kernel caps it at `net.core.somaxconn`.
pub(crate) const BACKLOG: i32 = 4096;

/// How long accepting rests when descriptors or memory have run out.
const REST: Duration = Duration::from_millis(100);

/// What a connection past the limit is told.
const CROWDED: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n\
    Content-Type: text/plain\r\nContent-Length: 41\r\n\r\n503 Service Unavailable: all seats taken\n";

/// What a connection past the limit of its address is told.
const CROWDED_ADDRESS: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n\
    Content-Type: text/plain\r\nContent-Length: 64\r\n\r\n503 Service Unavailable: too many connections from this address\n";

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

/// Makes the runtime look after a bound socket.
pub(crate) fn register(bound: Bound) -> io::Result<AsyncFd<Bound>> {
    // SAFETY: the socket owns its descriptor, which stays open and the same until `bound` is dropped.
    unsafe { AsyncFd::register_with_interest(bound, Interest::READABLE) }
        .map_err(|refused| refused.into_parts().1)
}

/// Accepts until it is dropped.
pub(crate) async fn accept(hub: Rc<Hub>, bound: AsyncFd<Bound>, listener: ListenerId, site: Site) {
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
    let seat = match &accepted {
        Accepted::Tcp(_, remote) if hub.limits.per_address < usize::MAX => {
            match Seat::take(hub, remote.ip(), hub.limits.per_address) {
                None => return turn_away(accepted, CROWDED_ADDRESS),
                seat => seat,
            }
        }
        _ => None,
    };
    let has_room = hub.make_room(Share::Connections, 0, CONNECTION_BYTES);
    if (hub.population() >= hub.limits.connections || !has_room) && !hub.free_seat() {
        return turn_away(accepted, CROWDED);
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
    let connection = Connection::new(hub, listener, site, socket, served, ends, seat);
    connection.charge.set(CONNECTION_BYTES);
    let hook: Arc<dyn ErrorHook> = Arc::clone(&connection.hook) as _;
    // Counted here: of those that wait to be accepted, many are before the first of their tasks runs.
    let joined = Joined::new(connection);
    tokio::task::spawn_local(ErrorHookFuture::with_hook(Some(hook), connection::serve(joined)));
    Ok(())
}

/// An IPv4 peer of a dual-stack listener is shown as what it is.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn turn_away(accepted: Accepted, answer: &[u8]) -> io::Result<()> {
    match accepted {
        Accepted::Tcp(mut socket, _) => {
            socket.set_nonblocking(true)?;
            socket.write_all(answer)
        }
        Accepted::Unix(mut socket) => {
            socket.set_nonblocking(true)?;
            socket.write_all(answer)
        }
    }
}
