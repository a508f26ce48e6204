//! Connections that a listener has accepted and that are not served yet.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use super::addresses::ConnectionAddresses;
use super::connections_per_ip::CountedConnection;
use super::descriptor::{self, close_in_child};
use super::socket::Socket;
use super::tls::certificate_store::Tls;
use super::tls::stream::TlsStream;
use super::transport::{Channel, Transport};
use super::unix_stream::UnixStream;

/// A connection that a listener has accepted and that is not served yet.
#[derive(Debug)]
pub(crate) enum AcceptedSocket {
    Tcp(std::net::TcpStream, SocketAddr),
    Unix(std::os::unix::net::UnixStream),
}

impl AcceptedSocket {
    /// Returns the client's address, or `None` if the client is connected over a Unix socket.
    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        match self {
            AcceptedSocket::Tcp(_, remote) => Some(*remote),
            AcceptedSocket::Unix(_) => None,
        }
    }

    /// Returns true if the connection may come from the supervisor of this process. It must be a
    /// Unix socket whose peer runs as the user of this process or as root.
    pub(crate) fn is_from_supervisor(&self) -> bool {
        match self {
            AcceptedSocket::Tcp(..) => false,
            AcceptedSocket::Unix(socket) => {
                rookery_worker_protocol::is_trusted_peer(socket.as_fd())
            }
        }
    }

    /// Converts the accepted socket to a transport, over plaintext or TLS. `counted` is the guard
    /// that counts the connection for its IP address. An error means that the client has already
    /// disconnected.
    pub(crate) fn into_transport(
        self,
        counted: Option<CountedConnection>,
        tls: Option<&Tls>,
    ) -> io::Result<(Transport, ConnectionAddresses)> {
        let (socket, close_in_child, addresses) = match self {
            AcceptedSocket::Tcp(socket, remote) => {
                socket.set_nodelay(true)?;
                socket.set_nonblocking(true)?;
                let local = socket.local_addr()?;
                let socket = std::net::TcpStream::from(descriptor::move_above_select_limit(
                    OwnedFd::from(socket),
                ));
                let close_in_child = close_in_child(&socket);
                let addresses = ConnectionAddresses::of(remote, local);
                (Socket::Tcp(tokio::net::TcpStream::from_std(socket)?), close_in_child, addresses)
            }
            AcceptedSocket::Unix(socket) => {
                socket.set_nonblocking(true)?;
                let socket = std::os::unix::net::UnixStream::from(
                    descriptor::move_above_select_limit(OwnedFd::from(socket)),
                );
                let close_in_child = close_in_child(&socket);
                (
                    Socket::Unix(UnixStream::new(socket)?),
                    close_in_child,
                    ConnectionAddresses::default(),
                )
            }
        };
        let channel = match tls {
            None => Channel::Plain(socket),
            Some(tls) => Channel::Tls(Box::new(TlsStream::new(tls.config(), socket)?)),
        };
        Ok((Transport::new(channel, close_in_child, counted), addresses))
    }

    /// Writes `response` to the new connection without reading a request, and closes the
    /// connection. An error means that the client has already disconnected.
    pub(crate) fn reject(self, response: &[u8]) -> io::Result<()> {
        match self {
            AcceptedSocket::Tcp(mut socket, _) => {
                socket.set_nonblocking(true)?;
                socket.write_all(response)
            }
            AcceptedSocket::Unix(mut socket) => {
                socket.set_nonblocking(true)?;
                socket.write_all(response)
            }
        }
    }
}
