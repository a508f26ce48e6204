//! Substitutes for the connection of a worker to its supervisor and for a worker's end of the
//! rings, on systems where no process is a worker. No value of these types exists there.

use std::io;
use std::sync::Arc;

use rookery_exchange::{Command, Event, Link, ListenerId};
use rookery_worker_protocol::{ErrorReport, Message, SharedScoreboard};

use super::request::Confirmation;
use crate::static_files::StaticFiles;

/// The connection of a worker to its supervisor.
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
#[expect(clippy::needless_pass_by_value, reason = "the function on Linux keeps it")]
pub(in crate::runtime) fn receive_messages(
    supervision: Arc<Supervision>,
) -> std::future::Ready<()> {
    match *supervision {}
}

/// A worker's end of the rings to the supervisor's front end.
#[derive(Debug)]
pub enum WorkerRings {}

impl WorkerRings {
    /// Makes the application wait for the rings' events together with those of the link.
    pub fn attach(&self, _: &Link) {
        match *self {}
    }

    /// Returns false, because no exchange comes from the rings.
    pub fn is_from_front_end(_: u64) -> bool {
        false
    }

    /// Returns the number of requests, WebSockets and streams that are open.
    pub fn open(&self) -> usize {
        match *self {}
    }

    /// Takes the next event.
    ///
    /// # Errors
    /// Never returns an error, because there are no rings.
    pub fn next(
        &mut self,
        _: Option<ListenerId>,
        _: &Link,
    ) -> Result<Option<Event>, std::convert::Infallible> {
        match *self {}
    }

    /// Sends a command.
    pub fn send(&mut self, _: Command, _: &Link) {
        match *self {}
    }

    /// Ends the streamed responses whose chunks the application pushes.
    pub fn stop_streams(&mut self) {
        match *self {}
    }

    /// Sends the records that wait.
    pub fn flush(&mut self) {
        match *self {}
    }
}
