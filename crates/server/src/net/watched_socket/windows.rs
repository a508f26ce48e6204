//! A listening socket that the async runtime watches, on Windows. The runtime watches a copy of a
//! TCP socket's handle, and the instance of a named pipe that waits for the next client.

use std::io;

use super::tcp_accept::{self, SharedProperties};
use crate::net::accepted_socket::AcceptedSocket;
use crate::net::listen::ListeningSocket;
use crate::net::local::LocalListener;

/// A listening socket that is registered with the async runtime, so that new connections wake the
/// I/O thread.
#[derive(Debug)]
pub(crate) struct WatchedSocket {
    bound: ListeningSocket,
    /// The registered copy of a TCP socket, or `None` for a named pipe.
    watched: Option<tokio::net::TcpListener>,
}

impl WatchedSocket {
    /// Registers a listening socket with the current async runtime.
    ///
    /// # Errors
    /// Fails if the runtime cannot register the socket.
    pub(crate) fn new(bound: ListeningSocket) -> io::Result<WatchedSocket> {
        let watched = match &bound {
            ListeningSocket::Tcp(socket) => {
                Some(tokio::net::TcpListener::from_std(socket.try_clone()?)?)
            }
            ListeningSocket::Local(_) => None,
        };
        Ok(WatchedSocket { bound, watched })
    }

    /// Waits for the next connection and accepts it.
    ///
    /// # Cancel safety
    /// No connection is lost if the future is dropped.
    pub(crate) async fn accept(&self) -> io::Result<AcceptedSocket> {
        match (&self.watched, &self.bound) {
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
