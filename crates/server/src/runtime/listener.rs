//! The handle by which an application controls a running listener.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rookery_exchange::ListenerId;

use super::commands::IoCommand;
use super::server_state::ServerState;
use crate::config::Limits;
use crate::net::local::SocketFile;

/// A running listener on one or several sockets. It stops when this value is dropped.
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

    /// Returns the id of the listener. The events of its connections carry this id.
    pub fn id(&self) -> ListenerId {
        self.id
    }

    /// Returns the address to which the listener is bound, or `None` for other sockets.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.local
    }

    /// Returns the path of the listener's Unix socket or the name of its named pipe, or `None` for
    /// other sockets.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(SocketFile::path)
    }

    /// Stops accepting connections, and closes each open connection after its current response.
    /// Idle connections are closed at once, and WebSockets are closed with code 1001. This function
    /// does not wait for the connections to end.
    pub fn drain(&self) {
        self.drain_over(Duration::ZERO);
    }

    /// Drains the listener as [`drain`](Self::drain) does, but closes the WebSockets one after the
    /// other in the time `close_over`, so that their pages do not all reconnect at once.
    pub fn drain_over(&self, close_over: Duration) {
        self.state.execute(|done| IoCommand::Drain { listener: self.id, close_over, done });
    }

    /// Cuts off the responses that are still being sent, because the time to drain is over. A
    /// response whose bytes the client has not read yet may take up to
    /// [`stop_timeout`](crate::Limits::stop_timeout) more. Requests that the application is still
    /// processing get their responses. This function does not wait for the connections to end.
    pub fn cut(&self) {
        self.state.execute(|done| IoCommand::Cut { listener: self.id, done });
    }

    /// Returns the number of open connections and WebSockets of this listener.
    pub fn connections(&self) -> usize {
        self.state
            .execute(|done| IoCommand::CountConnections { listener: self.id, done })
            .unwrap_or(0)
    }

    /// Returns the reason why the I/O thread of the listener's server has failed, or `None` if it
    /// has not failed. All connections of a failed server are closed, and nothing accepts new ones.
    /// The reason is returned once.
    pub fn take_failure(&self) -> Option<String> {
        self.state.link.has_failed().then(|| self.state.link.take_failure()).flatten()
    }

    /// Returns a probe that tests whether the listener's I/O thread responds.
    pub fn liveness_probe(&self) -> LivenessProbe {
        LivenessProbe { state: Arc::clone(&self.state), id: self.id }
    }

    /// Returns a handle by which the limits of the listener's server can be changed.
    pub fn limits_control(&self) -> LimitsControl {
        LimitsControl(Arc::clone(&self.state))
    }

    /// Stops the listener. Responses that are being sent may take up to
    /// [`stop_timeout`](crate::Limits::stop_timeout) to complete, and WebSockets are closed with
    /// code 1001. A request that the application is still processing gets its response even after
    /// this function has returned. The port is free when this function returns.
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

/// A handle by which the limits of a server can be changed. It can be used from any thread, and may
/// outlive the server.
#[derive(Debug, Clone)]
pub struct LimitsControl(Arc<ServerState>);

impl LimitsControl {
    /// Sets the limits of the running server. They apply to all further requests and connections,
    /// and the time limits also to the present ones. The server keeps its
    /// [`max_client_memory`](Limits::max_client_memory) and [`pool_bytes`](Limits::pool_bytes).
    pub fn set(&self, limits: Limits) {
        self.0.raise_descriptor_limit(&limits);
        self.0.execute(|done| IoCommand::SetLimits { limits: Box::new(limits), done });
    }
}

/// A probe that tests whether the I/O thread of a listener responds. It can be used from any
/// thread, and may outlive the listener.
#[derive(Debug, Clone)]
pub struct LivenessProbe {
    state: Arc<ServerState>,
    id: ListenerId,
}

impl LivenessProbe {
    /// Waits until the I/O thread responds. Returns at once if the thread has ended, which happens
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
