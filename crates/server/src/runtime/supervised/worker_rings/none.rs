//! A substitute for a worker's end of the rings, on systems where no process is a worker. No value
//! of this type exists there.

use rookery_exchange::{Command, Event, Link, ListenerId};

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
