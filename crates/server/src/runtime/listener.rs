//! Listeners, as an application holds them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rookery_exchange::ListenerId;

use super::commands::IoCommand;
use super::server_state::ServerState;
use crate::net::socket_file::SocketFile;

/// A listener on one or several sockets. The listener stops when it is dropped.
#[derive(Debug)]
pub struct Listener {
    state: Arc<ServerState>,
    id: ListenerId,
    local: Option<SocketAddr>,
    file: Option<SocketFile>,
    is_stopped: bool,
}

impl Listener {
    pub(super) fn new(
        state: &Arc<ServerState>,
        id: ListenerId,
        local: Option<SocketAddr>,
        file: Option<SocketFile>,
    ) -> Listener {
        Listener { state: Arc::clone(state), id, local, file, is_stopped: false }
    }

    /// Returns the id of the listener, which its events carry.
    pub fn id(&self) -> ListenerId {
        self.id
    }

    /// Returns the bound address, or `None` for a Unix socket.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.local
    }

    /// Returns the path of a Unix socket.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(SocketFile::path)
    }

    /// Stops accepting connections and closes each open connection after its current response. Idle
    /// connections are closed now, and WebSockets are closed with code 1001. Does not wait for the
    /// connections to end.
    pub fn drain(&self) {
        self.state.execute(|done| IoCommand::Drain { listener: self.id, done });
    }

    /// Starts or stops accepting connections. While the listener does not accept, new connections
    /// wait in the queue of its sockets, from which another process that has the sockets may
    /// accept. After `set_accepting(false)` has returned, no connection is accepted until
    /// `set_accepting(true)`.
    pub fn set_accepting(&self, is_on: bool) {
        self.state.execute(|done| IoCommand::SetAccepting { listener: self.id, is_on, done });
    }

    /// Returns copies of the listener's sockets, for another process to accept on.
    ///
    /// # Errors
    /// Fails if the listener has stopped, and if the system cannot copy a socket.
    pub fn copy_sockets(&self) -> io::Result<Vec<OwnedFd>> {
        let copied = self.state.execute(|done| IoCommand::CopySockets { listener: self.id, done });
        copied.unwrap_or_else(|| Err(io::ErrorKind::NotConnected.into()))
    }

    /// Returns the number of open connections and WebSockets of this listener.
    pub fn connections(&self) -> usize {
        self.state
            .execute(|done| IoCommand::CountConnections { listener: self.id, done })
            .unwrap_or(0)
    }

    /// Returns a probe for whether the I/O thread responds.
    pub fn liveness_probe(&self) -> LivenessProbe {
        LivenessProbe { state: Arc::clone(&self.state), id: self.id }
    }

    /// Stops the listener. Responses that are being sent may take
    /// [`stop_timeout`](crate::Limits::stop_timeout), and WebSockets are closed with code 1001. A
    /// request that the application is still working on gets its response when that is ready. The
    /// port is free when this function returns.
    pub fn stop(mut self) {
        self.stop_once();
    }

    fn stop_once(&mut self) {
        if std::mem::replace(&mut self.is_stopped, true) {
            return;
        }
        if let Some(file) = &self.file {
            file.remove();
        }
        self.state.execute(|done| IoCommand::Stop { listener: self.id, done });
        self.state.join_if_finished(false);
    }
}

/// A probe for whether the I/O thread of a listener responds. It can be used from any thread, and
/// may outlive the listener.
#[derive(Debug, Clone)]
pub struct LivenessProbe {
    state: Arc<ServerState>,
    id: ListenerId,
}

impl LivenessProbe {
    /// Waits until the I/O thread responds. Returns at once if the thread has ended, as it does
    /// when no listener is left.
    pub fn wait(&self) {
        self.connections();
    }

    /// Waits until the I/O thread responds, and returns the number of connections and WebSockets of
    /// the listener, or `None` if the thread has ended.
    pub fn connections(&self) -> Option<usize> {
        self.state.execute(|done| IoCommand::CountConnections { listener: self.id, done })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop_once();
    }
}
