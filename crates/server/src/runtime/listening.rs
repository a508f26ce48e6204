//! A listener on the I/O thread: its sockets, and the tasks that accept on them.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use rookery_exchange::ListenerId;
use tokio::task::JoinHandle;

use super::accept;
use super::gate::{Accepting, Gatekeeper};
use super::public::Group;
use super::shared::Shared;
use super::supervision::Supervision;
use crate::connections::table::ConnectionTable;
use crate::net::listen::{Acceptor, Bound};

/// A listener with its sockets and tasks.
pub(super) struct Listening {
    /// One for each of its sockets.
    pub(super) accepting: Vec<JoinHandle<()>>,
    /// Look at the files of certificates.
    looking: Vec<JoinHandle<()>>,
    /// The sockets that are not public listeners of a supervisor.
    sockets: Vec<Rc<Bound>>,
    /// Whether it accepts on these.
    pub(super) keeper: Gatekeeper,
    /// What has a worker accept on public listeners.
    inherited: Option<Arc<Supervision>>,
}

impl Listening {
    /// Accepts on sockets, inside a runtime.
    ///
    /// # Errors
    /// When one cannot be watched.
    pub(super) fn start(
        shared: &Rc<Shared>,
        listener: ListenerId,
        inherited: Option<Arc<Supervision>>,
        groups: Vec<Group>,
    ) -> io::Result<Listening> {
        let mut acceptors = Vec::new();
        let mut sockets = Vec::new();
        for Group { bound, site, is_public } in groups {
            for socket in bound.into_iter().map(Rc::new) {
                if !is_public {
                    sockets.push(Rc::clone(&socket));
                }
                acceptors.push((Acceptor::new(socket)?, site.clone(), is_public));
            }
        }
        let keeper = Gatekeeper::new(Accepting::Yes);
        let mut looking = Vec::new();
        let mut looks_after = Vec::new();
        let mut accepting = Vec::new();
        for (acceptor, site, is_public) in acceptors {
            let public = inherited.as_ref().filter(|_| is_public);
            let gate = public.map_or_else(|| keeper.gate(), |supervision| supervision.gate());
            if let Some(tls) = site.tls.clone().filter(|_| !looks_after.contains(&is_public)) {
                looks_after.push(is_public);
                looking.push(tokio::task::spawn_local(accept::look_after_certificates(tls)));
            }
            let task = accept::accept(Rc::clone(shared), acceptor, listener, *site, gate);
            accepting.push(tokio::task::spawn_local(task));
        }
        if let Some(supervision) = &inherited {
            shared
                .connections
                .set_public_listener(Some((listener, Arc::clone(supervision.scoreboard()))));
        }
        Ok(Listening { accepting, looking, sockets, keeper, inherited })
    }

    /// Returns its sockets once more.
    pub(super) fn copy_sockets(&self) -> io::Result<Vec<OwnedFd>> {
        self.sockets.iter().map(|socket| socket.as_fd().try_clone_to_owned()).collect()
    }

    /// Stops accepting; when this returns the port is free.
    pub(super) async fn end(self, connections: &ConnectionTable) {
        if let Some(supervision) = &self.inherited {
            // What is said to accept from now on is refused.
            supervision.pause();
            connections.set_public_listener(None);
        }
        for task in &self.looking {
            task.abort();
        }
        for accepting in &self.accepting {
            accepting.abort();
        }
        for accepting in self.accepting {
            // Cancelled, as asked.
            let _ = accepting.await;
        }
    }
}
