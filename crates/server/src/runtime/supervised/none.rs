//! A substitute for the connection of a worker to its supervisor, on systems where a supervisor
//! cannot pass sockets to a worker.

use std::io;
use std::sync::Arc;

use rookery_worker_protocol::{ErrorReport, Message, SharedScoreboard};

use super::request::Confirmation;
use crate::static_files::StaticFiles;

/// The connection of a worker to its supervisor. No value of this type exists on this system,
/// because no process is a worker.
#[derive(Debug)]
pub enum Supervision {}

impl Supervision {
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
#[expect(clippy::needless_pass_by_value, reason = "the other systems keep it")]
pub(in crate::runtime) fn receive_messages(
    supervision: Arc<Supervision>,
) -> std::future::Ready<()> {
    match *supervision {}
}
