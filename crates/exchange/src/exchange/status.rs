//! The part of an exchange's state that the server and the application can both read and change at
//! any time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::upstream_log::UpstreamLog;

/// The state of a request that the server and the application share: whether the client has
/// disconnected, whether the request is waiting, and the data about its workers for the access log.
#[derive(Debug, Default)]
pub struct ExchangeStatus {
    is_disconnected: AtomicBool,
    is_waiting: AtomicBool,
    /// The data about this request's workers for the access log; `None` unless the request is
    /// logged and the application has workers.
    upstream_log: Mutex<Option<UpstreamLog>>,
}

impl ExchangeStatus {
    /// Records that the client has disconnected, so that a response would have no reader.
    pub fn set_disconnected(&self) {
        self.is_disconnected.store(true, Ordering::Release);
    }

    /// Returns true if the client has disconnected.
    pub fn is_client_disconnected(&self) -> bool {
        self.is_disconnected.load(Ordering::Acquire)
    }

    /// Returns true if the request is still waiting for a worker or for the application, so that
    /// the application has received no part of it yet.
    pub fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Acquire)
    }

    pub(crate) fn set_waiting(&self, is_waiting: bool) {
        self.is_waiting.store(is_waiting, Ordering::Release);
    }

    /// Returns the data about this request's workers for the access log. If the request is still
    /// waiting for a worker, the time until now is included. Returns `None` if the application has
    /// no workers.
    pub fn upstream_log(&self) -> Option<UpstreamLog> {
        let mut upstream = *self.lock();
        if let Some(waiting) = upstream.as_mut().filter(|log| log.queued_since.is_some()) {
            waiting.stop_waiting(Instant::now());
        }
        upstream
    }

    pub(crate) fn update(&self, note: impl FnOnce(&mut UpstreamLog)) {
        note(self.lock().get_or_insert_default());
    }

    /// Clears the record of a request's workers, so that the next request can use this object.
    pub(crate) fn clear_upstream_log(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<UpstreamLog>> {
        // The value is copied as a whole, so a panic cannot leave it inconsistent.
        self.upstream_log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
