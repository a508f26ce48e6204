//! Sockets that somebody else has bound and listens on, such as a service manager.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use super::descriptor::CloseInChild;
use super::listen::Bound;

/// See the module. They stay open and listening for as long as this lives, so one listener after the other can have them.
#[derive(Debug, Default)]
pub struct GivenSockets {
    // Before the sockets: a descriptor that was closed may be somebody else's by now.
    close_in_child: Vec<CloseInChild>,
    sockets: Vec<Bound>,
}

/// Where one of them is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GivenPlace {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A path; none for an abstract name.
    Unix(Option<PathBuf>),
}

impl GivenSockets {
    /// One more.
    pub fn push_tcp(&mut self, socket: TcpListener) {
        self.push(Bound::Tcp(socket));
    }

    /// One more.
    pub fn push_unix(&mut self, socket: UnixListener) {
        self.push(Bound::Unix(socket));
    }

    fn push(&mut self, socket: Bound) {
        self.close_in_child.push(CloseInChild::new(&socket));
        self.sockets.push(socket);
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Where they are.
    pub fn places(&self) -> Vec<GivenPlace> {
        let place = |bound: &Bound| match bound {
            Bound::Tcp(socket) => socket.local_addr().map(GivenPlace::Tcp).ok(),
            Bound::Unix(socket) => {
                let path = socket.local_addr().ok()?.as_pathname().map(PathBuf::from);
                Some(GivenPlace::Unix(path))
            }
        };
        self.sockets.iter().filter_map(place).collect()
    }

    /// Copies that can be accepted from, and the address of the first of TCP.
    pub(crate) fn copies(&self) -> io::Result<(Vec<Bound>, Option<SocketAddr>)> {
        let copy = |bound: &Bound| {
            match bound {
                Bound::Tcp(socket) => socket.set_nonblocking(true)?,
                Bound::Unix(socket) => socket.set_nonblocking(true)?,
            }
            bound.copy()
        };
        let first = self.places().into_iter().find_map(|place| match place {
            GivenPlace::Tcp(address) => Some(address),
            GivenPlace::Unix(_) => None,
        });
        Ok((self.sockets.iter().map(copy).collect::<io::Result<_>>()?, first))
    }
}
