//! Sockets that somebody else has bound and listens on, such as a service manager.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use rookery_system::fork::CloseInChild;

use super::descriptor::close_in_child;
use super::listen::ListeningSocket;

/// See the module. They stay open and listening for as long as this lives, so one listener after the other can have them.
#[derive(Debug, Default)]
pub struct InheritedSockets {
    // Before the sockets: a descriptor that was closed may be somebody else's by now.
    close_in_child: Vec<CloseInChild>,
    sockets: Vec<ListeningSocket>,
}

/// Where one of them is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InheritedAddress {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A path; none for an abstract name.
    Unix(Option<PathBuf>),
}

impl InheritedSockets {
    /// One more.
    pub fn push_tcp(&mut self, socket: TcpListener) {
        self.push(ListeningSocket::Tcp(socket));
    }

    /// One more.
    pub fn push_unix(&mut self, socket: UnixListener) {
        self.push(ListeningSocket::Unix(socket));
    }

    fn push(&mut self, socket: ListeningSocket) {
        self.close_in_child.push(close_in_child(&socket));
        self.sockets.push(socket);
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Where they are.
    pub fn addresses(&self) -> Vec<InheritedAddress> {
        let place = |bound: &ListeningSocket| match bound {
            ListeningSocket::Tcp(socket) => socket.local_addr().map(InheritedAddress::Tcp).ok(),
            ListeningSocket::Unix(socket) => {
                let path = socket.local_addr().ok()?.as_pathname().map(PathBuf::from);
                Some(InheritedAddress::Unix(path))
            }
        };
        self.sockets.iter().filter_map(place).collect()
    }

    /// Copies that can be accepted from, and the address of the first of TCP.
    pub(crate) fn copies(&self) -> io::Result<(Vec<ListeningSocket>, Option<SocketAddr>)> {
        let copy = |bound: &ListeningSocket| {
            match bound {
                ListeningSocket::Tcp(socket) => socket.set_nonblocking(true)?,
                ListeningSocket::Unix(socket) => socket.set_nonblocking(true)?,
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
