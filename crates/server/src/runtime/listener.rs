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

/// A listening socket. Dropping it stops it.
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

    /// The id that events carry.
    pub fn id(&self) -> ListenerId {
        self.id
    }

    /// The address bound; `None` for a Unix socket.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.local
    }

    /// The path of a Unix socket.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(SocketFile::path)
    }

    /// Stops listening and ends connections as their replies are done; returns at once. Idle ones end now,
    /// WebSockets are closed with 1001.
    pub fn drain(&self) {
        self.state.execute(|done| IoCommand::Drain { listener: self.id, done });
    }

    /// Has the listener accept connections, or leave those who connect in the queue of its sockets,
    /// from which another process that has them may accept. When this returns, nothing more is
    /// accepted until it is called again.
    pub fn set_accepting(&self, is_on: bool) {
        self.state.execute(|done| IoCommand::SetAccepting { listener: self.id, is_on, done });
    }

    /// Returns its sockets once more, for another process to accept on.
    ///
    /// # Errors
    /// The system's, and when the listener has stopped.
    pub fn copy_sockets(&self) -> io::Result<Vec<OwnedFd>> {
        let copied = self.state.execute(|done| IoCommand::CopySockets { listener: self.id, done });
        copied.unwrap_or_else(|| Err(io::ErrorKind::NotConnected.into()))
    }

    /// How many connections and WebSockets of this listener are left.
    pub fn connections(&self) -> usize {
        self.state
            .execute(|done| IoCommand::CountConnections { listener: self.id, done })
            .unwrap_or(0)
    }

    /// What tells whether its thread turns.
    pub fn liveness_probe(&self) -> LivenessProbe {
        LivenessProbe { state: Arc::clone(&self.state), id: self.id }
    }

    /// Stops listening. Replies on their way are given
    /// [`stop_time`](crate::Limits::stop_time), WebSockets are closed with 1001; a request that the application
    /// still has is answered when it answers. When this returns the port is free.
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

/// Asks the I/O thread of a listener for a sign of life, from any thread and for as long as anybody likes.
#[derive(Debug, Clone)]
pub struct LivenessProbe {
    state: Arc<ServerState>,
    id: ListenerId,
}

impl LivenessProbe {
    /// Waits for one. There is nothing to wait for when the thread has ended, as it does when nothing listens any more.
    pub fn wait(&self) {
        self.connections();
    }

    /// The same, and how many connections and WebSockets the listener has; `None` when the thread has ended.
    pub fn connections(&self) -> Option<usize> {
        self.state.execute(|done| IoCommand::CountConnections { listener: self.id, done })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop_once();
    }
}
