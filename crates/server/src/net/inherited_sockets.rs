//! Listening sockets that another process, such as a service manager, has opened and passed to this
//! process.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

use rookery_system::fork::CloseInChild;

use super::descriptor::close_in_child;
use super::listen::ListeningSocket;
use super::local;

/// Listening sockets that another process has opened and passed to this process. They stay open as
/// long as this value exists, so that a new listener can use them after the previous one has ended.
#[derive(Debug, Default)]
pub struct InheritedSockets {
    // Dropped before the sockets, because another thread may reuse the number of a closed
    // descriptor.
    close_in_child: Vec<CloseInChild>,
    sockets: Vec<ListeningSocket>,
}

/// The address of a listening socket that another process has passed to this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InheritedAddress {
    /// The IP address and port of a TCP socket.
    Tcp(SocketAddr),
    /// The path of a Unix socket, or `None` for a socket with an abstract name.
    Unix(Option<PathBuf>),
}

impl InheritedSockets {
    /// Adds a listening TCP socket that another process has passed to this process.
    pub fn push_tcp(&mut self, socket: TcpListener) {
        self.push(ListeningSocket::Tcp(socket));
    }

    /// Adds a listening Unix socket that another process has passed to this process.
    #[cfg(unix)]
    pub fn push_unix(&mut self, socket: std::os::unix::net::UnixListener) {
        self.push(ListeningSocket::Local(socket));
    }

    fn push(&mut self, socket: ListeningSocket) {
        self.close_in_child.push(close_in_child(&socket));
        self.sockets.push(socket);
    }

    /// Returns true if no listening sockets were inherited.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Returns the addresses of the inherited listening sockets.
    pub fn addresses(&self) -> Vec<InheritedAddress> {
        let address_of = |bound: &ListeningSocket| match bound {
            ListeningSocket::Tcp(socket) => socket.local_addr().map(InheritedAddress::Tcp).ok(),
            ListeningSocket::Local(socket) => {
                local::path_of(socket).map(InheritedAddress::Unix).ok()
            }
        };
        self.sockets.iter().filter_map(address_of).collect()
    }

    /// Returns copies of the inherited listening sockets, and the address of the first TCP socket
    /// among them.
    pub(crate) fn copies(&self) -> io::Result<(Vec<ListeningSocket>, Option<SocketAddr>)> {
        let copy = |bound: &ListeningSocket| {
            match bound {
                ListeningSocket::Tcp(socket) => socket.set_nonblocking(true)?,
                ListeningSocket::Local(socket) => socket.set_nonblocking(true)?,
            }
            bound.try_clone()
        };
        let first = self.addresses().into_iter().find_map(|address| match address {
            InheritedAddress::Tcp(address) => Some(address),
            InheritedAddress::Unix(_) => None,
        });
        Ok((self.sockets.iter().map(copy).collect::<io::Result<_>>()?, first))
    }
}
