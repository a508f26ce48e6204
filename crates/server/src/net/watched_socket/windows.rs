//! A listening socket that the async runtime watches, on Windows. The runtime watches a copy of a
//! TCP socket's handle, and the instance of a named pipe that waits for the next client.

use std::io;
use std::rc::Rc;

use super::tcp_accept::{self, SharedProperties};
use crate::net::accepted_socket::AcceptedSocket;
use crate::net::listen::ListeningSocket;
use crate::net::local::LocalListener;

/// A listening socket that is registered with the async runtime, so that new connections wake the
/// I/O thread.
#[derive(Debug)]
pub(crate) struct WatchedSocket {
    bound: Rc<ListeningSocket>,
    /// The registered copy of a TCP socket, or `None` for a named pipe.
    watched: Option<tokio::net::TcpListener>,
}

/// A listening socket that is not registered with the async runtime. New connections wait in the
/// socket's queue without waking this process.
#[derive(Debug)]
pub(crate) struct PausedSocket(Rc<ListeningSocket>);

impl WatchedSocket {
    /// Registers a listening socket with the current async runtime.
    pub(crate) fn new(bound: Rc<ListeningSocket>) -> io::Result<WatchedSocket> {
        PausedSocket(bound).resume().map_err(|(_, error)| error)
    }

    /// Unregisters the listening socket from the async runtime, so that new connections do not wake
    /// this process.
    pub(crate) fn pause(self) -> PausedSocket {
        PausedSocket(self.bound)
    }

    /// Waits for the next connection and accepts it.
    ///
    /// # Cancel safety
    /// No connection is lost if the future is dropped.
    pub(crate) async fn accept(&self) -> io::Result<AcceptedSocket> {
        match (&self.watched, &*self.bound) {
            (Some(watched), _) => {
                let (socket, remote) = watched.accept().await?;
                tcp_accept::prepare(socket.into_std()?, remote, SharedProperties::default())
            }
            (None, ListeningSocket::Local(pipe)) => {
                LocalListener::accept(pipe).await.map(AcceptedSocket::Local)
            }
            (None, ListeningSocket::Tcp(_)) => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl PausedSocket {
    /// Registers the paused socket with the current async runtime again. Connections that arrived
    /// during the pause are accepted next.
    ///
    /// # Errors
    /// Returns the socket together with the error if the runtime cannot register it.
    pub(crate) fn resume(self) -> Result<WatchedSocket, (PausedSocket, io::Error)> {
        let watched = match &*self.0 {
            ListeningSocket::Tcp(socket) => {
                socket.try_clone().and_then(tokio::net::TcpListener::from_std).map(Some)
            }
            ListeningSocket::Local(_) => Ok(None),
        };
        match watched {
            Ok(watched) => Ok(WatchedSocket { bound: self.0, watched }),
            Err(error) => Err((self, error)),
        }
    }
}
