//! The part of a listener that belongs to the I/O thread: its sockets and tasks.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use rookery_exchange::ListenerId;
use rookery_system::socket::OwnedSocket;
use tokio::task::JoinHandle;

use super::accept_switch::{AcceptMode, AcceptSwitch};
use super::acceptor;
use super::socket_group::SocketGroup;
use crate::connections::table::ConnectionTable;
use crate::net::listen::ListeningSocket;
use crate::net::watched_socket::WatchedSocket;
use crate::runtime::io_context::IoContext;
use crate::runtime::supervised::supervision::Supervision;

/// The part of a listener that belongs to the I/O thread: its sockets and tasks.
pub(in crate::runtime) struct ActiveListener {
    /// The tasks that accept the listener's connections, one for each socket.
    pub(in crate::runtime) accept_tasks: Vec<JoinHandle<()>>,
    /// The tasks that check the listener's certificate files for changes.
    certificate_tasks: Vec<JoinHandle<()>>,
    /// The listener's own sockets, without the public listeners that a supervisor has passed to
    /// this process.
    sockets: Vec<Rc<ListeningSocket>>,
    /// The switch by which the listener starts and stops accepting connections on its own
    /// `sockets`.
    pub(in crate::runtime) accept_switch: AcceptSwitch,
    /// The connection to the supervisor, if this listener also serves the supervisor's public
    /// listeners. The supervisor then decides when connections are accepted on these.
    inherited: Option<Arc<Supervision>>,
}

impl ActiveListener {
    /// Starts a listener on the I/O thread. Must be called inside the async runtime.
    ///
    /// # Errors
    /// Fails if a socket cannot be registered with the async runtime.
    pub(in crate::runtime) fn start(
        context: &Rc<IoContext>,
        listener: ListenerId,
        inherited: Option<Arc<Supervision>>,
        groups: Vec<SocketGroup>,
    ) -> io::Result<ActiveListener> {
        let mut acceptors = Vec::new();
        let mut sockets = Vec::new();
        for SocketGroup { sockets: bound, config, is_public } in groups {
            for socket in bound.into_iter().map(Rc::new) {
                if !is_public {
                    sockets.push(Rc::clone(&socket));
                }
                acceptors.push((WatchedSocket::new(socket)?, config.clone(), is_public));
            }
        }
        let accept_switch = AcceptSwitch::new(AcceptMode::On);
        let mut certificate_tasks = Vec::new();
        let mut watched_kinds = Vec::new();
        let mut accept_tasks = Vec::new();
        for (acceptor, config, is_public) in acceptors {
            let public = inherited.as_ref().filter(|_| is_public);
            let accept_watch = public
                .map_or_else(|| accept_switch.watch(), |supervision| supervision.accept_watch());
            if let Some(tls) = config.tls.clone().filter(|_| !watched_kinds.contains(&is_public)) {
                watched_kinds.push(is_public);
                certificate_tasks.push(tokio::task::spawn_local(acceptor::watch_certificates(tls)));
            }
            let task =
                acceptor::accept(Rc::clone(context), acceptor, listener, *config, accept_watch);
            accept_tasks.push(tokio::task::spawn_local(task));
        }
        if let Some(supervision) = &inherited {
            context
                .connections
                .set_public_listener(Some((listener, Arc::clone(supervision.scoreboard()))));
        }
        Ok(ActiveListener { accept_tasks, certificate_tasks, sockets, accept_switch, inherited })
    }

    /// Returns copies of the listener's sockets.
    pub(in crate::runtime) fn copy_sockets(&self) -> io::Result<Vec<OwnedSocket>> {
        self.sockets.iter().map(|socket| socket.copy_handle()).collect()
    }

    /// Stops accepting connections and ends the listener's tasks. The port is free when this
    /// function returns.
    pub(in crate::runtime) async fn end(self, connections: &ConnectionTable) {
        if let Some(supervision) = &self.inherited {
            // From now on the supervisor's requests to accept are refused.
            supervision.pause();
            connections.set_public_listener(None);
        }
        for task in &self.certificate_tasks {
            task.abort();
        }
        for task in &self.accept_tasks {
            task.abort();
        }
        for task in self.accept_tasks {
            // The task was aborted above.
            let _ = task.await;
        }
    }
}
