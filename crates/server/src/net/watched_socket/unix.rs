//! A listening socket that the async runtime watches by its descriptor.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd, RawFd};

use rookery_system::fork::CloseInChild;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::tcp_accept::{self, SharedProperties};
use crate::net::accepted_socket::AcceptedSocket;
use crate::net::descriptor::close_in_child;
use crate::net::listen::ListeningSocket;
use crate::net::local::AcceptedLocal;

/// The descriptor that the async runtime watches.
impl AsRawFd for ListeningSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// A listening socket that is registered with the async runtime, so that new connections wake the
/// I/O thread.
#[derive(Debug)]
pub(crate) struct WatchedSocket {
    // Dropped before the socket, because another thread may reuse the number of a closed
    // descriptor.
    _close_in_child: CloseInChild,
    bound: AsyncFd<ListeningSocket>,
    /// The properties of the connections of a TCP listener.
    shared: SharedProperties,
}

impl WatchedSocket {
    /// Registers a listening socket with the current async runtime.
    ///
    /// # Errors
    /// Fails if the runtime cannot register the socket.
    pub(crate) fn new(bound: ListeningSocket) -> io::Result<WatchedSocket> {
        let close_in_child = close_in_child(&bound);
        let shared = match &bound {
            ListeningSocket::Tcp(socket) => SharedProperties::of(socket),
            ListeningSocket::Local(_) => SharedProperties::default(),
        };
        // SAFETY: the socket owns its descriptor, which stays open and unchanged until `bound` is
        // dropped.
        let bound = unsafe { AsyncFd::register_with_interest(bound, Interest::READABLE) };
        let bound = bound.map_err(|refused| refused.into_parts().1)?;
        Ok(WatchedSocket { _close_in_child: close_in_child, bound, shared })
    }

    /// Waits for the next connection and accepts it.
    ///
    /// # Cancel safety
    /// No connection is lost if the future is dropped.
    pub(crate) async fn accept(&self) -> io::Result<AcceptedSocket> {
        let accept = |bound: &ListeningSocket| match bound {
            ListeningSocket::Tcp(socket) => tcp_accept::accept(socket, self.shared),
            ListeningSocket::Local(socket) => {
                socket.accept().map(|(socket, _)| AcceptedSocket::Local(AcceptedLocal(socket)))
            }
        };
        self.bound.async_io(Interest::READABLE, accept).await
    }
}
