//! A substitute for the connection of a worker to its supervisor, on systems where a supervisor
//! cannot pass sockets to a worker.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use rookery_worker_protocol::{ErrorReport, Message, SharedScoreboard};

use super::request::Confirmation;
use crate::http::listener_config::ListenerConfig;
use crate::runtime::io_context::IoContext;
use crate::runtime::listening::accept_switch::AcceptWatch;
use crate::runtime::listening::socket_group::SocketGroup;
use crate::static_files::StaticFiles;

/// The connection of a worker to its supervisor. No value of this type exists on this system,
/// because no process is a worker.
#[derive(Debug)]
pub enum Supervision {}

impl Supervision {
    /// Returns true if the supervisor has passed public listeners to this process.
    pub fn has_public_listeners(&self) -> bool {
        match *self {}
    }

    pub(in crate::runtime) fn public_groups(
        &self,
        _: &ListenerConfig,
    ) -> io::Result<Vec<SocketGroup>> {
        match *self {}
    }

    pub(in crate::runtime) fn accept_watch(&self) -> AcceptWatch {
        match *self {}
    }

    pub(in crate::runtime) fn pause(&self) {
        match *self {}
    }

    /// Returns the session-affinity cookie of this process.
    pub fn cookie(&self) -> Option<&str> {
        match *self {}
    }

    /// Returns the scoreboard: the shared memory in which the supervisor reads the state of this
    /// process.
    pub fn scoreboard(&self) -> &Arc<SharedScoreboard> {
        match *self {}
    }

    /// Sends a message to the supervisor.
    ///
    /// # Errors
    /// Fails if the supervisor has disconnected.
    pub fn send(&self, _: Message) -> io::Result<()> {
        match *self {}
    }

    /// Sends the report of an error in R to the supervisor.
    pub fn report_error(&self, _: &ErrorReport) {
        match *self {}
    }

    /// Announces to the supervisor which static paths this process serves.
    pub fn announce(&self, _: &StaticFiles) -> bool {
        match *self {}
    }

    /// Waits until the supervisor has applied the last announcement of static paths.
    pub fn wait_until_applied(&self) -> Confirmation {
        match *self {}
    }
}

/// Receives the supervisor's messages.
#[expect(clippy::needless_pass_by_value, reason = "the other systems keep both")]
pub(in crate::runtime) fn receive_messages(
    _: Rc<IoContext>,
    supervision: Arc<Supervision>,
) -> std::future::Ready<()> {
    match *supervision {}
}
