//! A listening socket that the async runtime watches by its descriptor.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd, RawFd};
use std::rc::Rc;

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
    close_in_child: CloseInChild,
    bound: AsyncFd<Rc<ListeningSocket>>,
    /// The properties of the connections of a TCP listener.
    shared: SharedProperties,
}

/// A listening socket that is not registered with the async runtime. New connections wait in the
/// socket's queue without waking this process.
#[derive(Debug)]
pub(crate) struct PausedSocket {
    // Dropped before the socket, as above.
    close_in_child: CloseInChild,
    bound: Rc<ListeningSocket>,
}

impl WatchedSocket {
    /// Registers a listening socket with the current async runtime.
    pub(crate) fn new(bound: Rc<ListeningSocket>) -> io::Result<WatchedSocket> {
        let close_in_child = close_in_child(&bound);
        PausedSocket { close_in_child, bound }.resume().map_err(|(_, error)| error)
    }

    /// Unregisters the listening socket from the async runtime, so that new connections do not wake
    /// this process.
    pub(crate) fn pause(self) -> PausedSocket {
        PausedSocket { close_in_child: self.close_in_child, bound: self.bound.into_inner() }
    }

    /// Waits for the next connection and accepts it.
    ///
    /// # Cancel safety
    /// No connection is lost if the future is dropped.
    pub(crate) async fn accept(&self) -> io::Result<AcceptedSocket> {
        let accept = |bound: &Rc<ListeningSocket>| match &**bound {
            ListeningSocket::Tcp(socket) => tcp_accept::accept(socket, self.shared),
            ListeningSocket::Local(socket) => {
                socket.accept().map(|(socket, _)| AcceptedSocket::Local(AcceptedLocal(socket)))
            }
        };
        self.bound.async_io(Interest::READABLE, accept).await
    }
}

impl PausedSocket {
    /// Registers the paused socket with the current async runtime again. Connections that arrived
    /// during the pause are accepted next.
    ///
    /// # Errors
    /// Returns the socket together with the error if the runtime cannot register it.
    pub(crate) fn resume(self) -> Result<WatchedSocket, (PausedSocket, io::Error)> {
        let PausedSocket { close_in_child, bound } = self;
        let shared = match &*bound {
            ListeningSocket::Tcp(socket) => SharedProperties::of(socket),
            ListeningSocket::Local(_) => SharedProperties::default(),
        };
        // SAFETY: the socket owns its descriptor, which stays open and unchanged until the last
        // owner of `bound` drops it.
        match unsafe { AsyncFd::register_with_interest(bound, Interest::READABLE) } {
            Ok(bound) => Ok(WatchedSocket { close_in_child, bound, shared }),
            Err(refused) => {
                let (bound, error) = refused.into_parts();
                Err((PausedSocket { close_in_child, bound }, error))
            }
        }
    }
}
