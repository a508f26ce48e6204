//! Accepting the connections of a TCP listener, with as few system calls as the system permits: a
//! client that opens a connection for each request pays for all of them with each request.

use std::io;
#[cfg(unix)]
use std::net::TcpListener;
use std::net::{SocketAddr, TcpStream};

#[cfg(unix)]
use socket2::SockRef;

use crate::net::accepted_socket::AcceptedSocket;

/// Whether new connections inherit `TCP_NODELAY` from the listening socket, and can be accepted as
/// non-blocking sockets.
#[cfg(unix)]
const IS_LINUX: bool = cfg!(all(target_os = "linux", not(feature = "portable")));

/// The properties that all connections of a TCP listener share.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SharedProperties {
    /// Whether the system sets `TCP_NODELAY` on each connection.
    has_no_delay: bool,
    /// The local address of each connection, or `None` if connections may have different ones.
    local: Option<SocketAddr>,
}

impl SharedProperties {
    #[cfg(unix)]
    pub(super) fn of(listener: &TcpListener) -> SharedProperties {
        let socket = SockRef::from(listener);
        SharedProperties {
            // A socket from another process may have connections that are older than the option.
            // The listener's own socket has the option before it listens.
            has_no_delay: IS_LINUX && socket.tcp_nodelay().unwrap_or(false),
            local: listener.local_addr().ok().filter(|local| {
                local.is_ipv4() && !local.ip().is_unspecified() && !is_transparent(&socket)
            }),
        }
    }
}

/// Returns whether connections may have other local addresses than the one that the listening
/// socket is bound to (`IP_TRANSPARENT`).
#[cfg(unix)]
fn is_transparent(socket: &SockRef<'_>) -> bool {
    #[cfg(target_os = "linux")]
    return socket.ip_transparent_v4().unwrap_or(true);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = socket;
        true
    }
}

/// Accepts a connection as a non-blocking socket with `TCP_NODELAY`.
///
/// # Errors
/// Returns `WouldBlock` if no connection is waiting, and the system's error if the client has
/// already disconnected.
#[cfg(unix)]
pub(super) fn accept(
    listener: &TcpListener,
    shared: SharedProperties,
) -> io::Result<AcceptedSocket> {
    let (socket, remote) = accept_nonblocking(listener)?;
    prepare(socket, remote, shared)
}

/// Completes a non-blocking socket that has just been accepted.
pub(super) fn prepare(
    socket: TcpStream,
    remote: SocketAddr,
    shared: SharedProperties,
) -> io::Result<AcceptedSocket> {
    if !shared.has_no_delay {
        socket.set_nodelay(true)?;
    }
    let local = shared.local.map_or_else(|| socket.local_addr(), Ok)?;
    Ok(AcceptedSocket::Tcp { socket, remote, local })
}

#[cfg(all(target_os = "linux", not(feature = "portable")))]
fn accept_nonblocking(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let (socket, remote) = SockRef::from(listener).accept4(flags)?;
    let remote = remote.as_socket().ok_or(io::ErrorKind::InvalidData)?;
    Ok((socket.into(), remote))
}

#[cfg(all(unix, any(not(target_os = "linux"), feature = "portable")))]
fn accept_nonblocking(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (socket, remote) = listener.accept()?;
    socket.set_nonblocking(true)?;
    Ok((socket, remote))
}
