//! A substitute for the rings on systems other than Linux, where requests are relayed over the
//! worker's socket. No value of these types exists there.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

/// The error that the other process has written something invalid, which cannot occur.
pub type Malformed = std::convert::Infallible;

/// One end of the rings between the front end and a worker.
#[derive(Debug)]
pub enum RingEnd {}

/// The handles of rings that a worker inherits.
#[derive(Debug)]
pub enum RingHandles {}

/// What wakes the front end and a worker.
#[derive(Debug, Clone)]
pub enum RingWakers {}

impl RingEnd {
    /// Returns an error, because there are no rings on this system.
    ///
    /// # Errors
    /// Always returns [`Unsupported`](io::ErrorKind::Unsupported).
    pub fn create() -> io::Result<(RingEnd, RingWakers, RingHandles)> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl RingHandles {
    /// Maps the rings into this process, which is the worker.
    ///
    /// # Errors
    /// Returns none, because there are no handles.
    pub fn attach(self) -> io::Result<(RingEnd, RingWakers)> {
        match self {}
    }

    pub(crate) fn all(&self) -> [BorrowedFd<'_>; 5] {
        match *self {}
    }

    pub(crate) unsafe fn own(_: [RawFd; 5]) -> io::Result<RingHandles> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl RingWakers {
    /// Returns the descriptor that the worker's I/O thread watches.
    pub fn watched_by_worker(&self) -> Arc<OwnedFd> {
        match *self {}
    }
}
