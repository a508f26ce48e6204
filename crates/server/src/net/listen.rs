//! Listening sockets, and binding them to addresses.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

use super::descriptor::listen;
use super::local::LocalListener;

/// A listening socket: TCP, or between processes of one machine.
#[derive(Debug)]
pub(crate) enum ListeningSocket {
    Tcp(TcpListener),
    /// A Unix socket, or on Windows a named pipe.
    Local(LocalListener),
}

impl ListeningSocket {
    /// Returns a copy of the listening socket, which has a descriptor of its own.
    pub(crate) fn try_clone(&self) -> io::Result<ListeningSocket> {
        match self {
            ListeningSocket::Tcp(socket) => socket.try_clone().map(ListeningSocket::Tcp),
            ListeningSocket::Local(socket) => socket.try_clone().map(ListeningSocket::Local),
        }
    }
}

#[cfg(unix)]
impl std::os::fd::AsFd for ListeningSocket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            ListeningSocket::Tcp(listener) => listener.as_fd(),
            ListeningSocket::Local(listener) => listener.as_fd(),
        }
    }
}

/// Binds a TCP socket to an address and starts listening on it. Returns the socket and its actual
/// address.
pub(crate) fn bind_tcp(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // As the standard library does: a port whose former connections have just ended can be bound
    // again. On Windows, the option would allow another process to take the port over.
    if cfg!(unix) {
        socket.set_reuse_address(true)?;
    }
    socket.bind(&address.into())?;
    socket.set_nonblocking(true)?;
    // On Linux, the connections inherit the option.
    socket.set_tcp_nodelay(true)?;
    listen(&socket)?;
    let socket = TcpListener::from(socket);
    let local = socket.local_addr()?;
    Ok((socket, local))
}
