//! Connections that a listener has accepted and that are not served yet.

use std::io::{self, Write as _};
use std::net::SocketAddr;

use rookery_system::socket::OwnedSocket;

use super::addresses::ConnectionAddresses;
use super::descriptor::{self, close_in_child};
use super::local::AcceptedLocal;
use super::socket::Socket;
use super::tls::certificate_store::Tls;
use super::tls::stream::TlsStream;
use super::transport::{Channel, Transport};
use crate::connections::peers::Counted;

/// A connection that a listener has accepted and that is not served yet.
#[derive(Debug)]
pub(crate) enum AcceptedSocket {
    /// A non-blocking TCP connection with the addresses of its client and of the server.
    Tcp { socket: std::net::TcpStream, remote: SocketAddr, local: SocketAddr },
    /// A connection to a Unix socket, or on Windows to a named pipe.
    Local(AcceptedLocal),
}

impl AcceptedSocket {
    /// Returns the client's address, or `None` if the client is a process of this machine that is
    /// connected without TCP.
    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        match self {
            AcceptedSocket::Tcp { remote, .. } => Some(*remote),
            AcceptedSocket::Local(_) => None,
        }
    }

    /// Converts the accepted socket to a transport, over plaintext or TLS. `counted` is the guard
    /// that counts the connection for its network. An error means that the client has already
    /// disconnected.
    pub(crate) fn into_transport(
        self,
        counted: Option<Counted>,
        tls: Option<&Tls>,
    ) -> io::Result<(Transport, ConnectionAddresses)> {
        let (socket, close_in_child, addresses) = match self {
            AcceptedSocket::Tcp { socket, remote, local } => {
                let socket = std::net::TcpStream::from(descriptor::leave_low_numbers(
                    OwnedSocket::from(socket),
                ));
                descriptor::disable_broken_pipe_signal(&socket);
                let close_in_child = close_in_child(&socket);
                let addresses = ConnectionAddresses::of(remote, local);
                (Socket::Tcp(tokio::net::TcpStream::from_std(socket)?), close_in_child, addresses)
            }
            AcceptedSocket::Local(socket) => {
                let (stream, close_in_child) = socket.into_stream()?;
                (Socket::Local(stream), close_in_child, ConnectionAddresses::default())
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
            AcceptedSocket::Tcp { mut socket, .. } => {
                descriptor::disable_broken_pipe_signal(&socket);
                socket.write_all(response)
            }
            AcceptedSocket::Local(socket) => socket.reject(response),
        }
    }
}
