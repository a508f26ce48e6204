//! The part of an exchange's state that both sides can read and change at any time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::upstream_log::UpstreamLog;

/// The state of an exchange that is shared by its current owner and the other side: whether the
/// client has disconnected, whether the request is waiting, and what happened at workers. The
/// status is created with its exchange and reused with it.
#[derive(Debug, Default)]
pub struct ExchangeStatus {
    is_disconnected: AtomicBool,
    is_waiting: AtomicBool,
    /// The record of what happened to the request at workers, if the request is logged and the
    /// application has workers. In that case both sides run on one thread, so the lock is never
    /// contended.
    upstream_log: Mutex<Option<UpstreamLog>>,
}

impl ExchangeStatus {
    /// Records that the client has disconnected, so that nobody will read a response.
    pub fn set_disconnected(&self) {
        self.is_disconnected.store(true, Ordering::Release);
    }

    /// Returns true if the client has disconnected.
    pub fn is_client_disconnected(&self) -> bool {
        self.is_disconnected.load(Ordering::Acquire)
    }

    /// Returns true if the request is waiting for a worker or for the application, which has not
    /// received any part of the request yet.
    pub fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Acquire)
    }

    pub(crate) fn set_waiting(&self, is_waiting: bool) {
        self.is_waiting.store(is_waiting, Ordering::Release);
    }

    /// Returns the record of what happened to the request at workers until now, including a current
    /// wait. Returns `None` if the application has no workers.
    pub fn upstream_log(&self) -> Option<UpstreamLog> {
        let mut upstream = *self.lock();
        if let Some(upstream) = &mut upstream {
            upstream.stop_waiting(Instant::now());
        }
        upstream
    }

    pub(crate) fn update(&self, note: impl FnOnce(&mut UpstreamLog)) {
        note(self.lock().get_or_insert_default());
    }

    /// Clears the record for the next request.
    pub(crate) fn clear_upstream_log(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<UpstreamLog>> {
        // The value is copied as a whole, so a panic cannot leave it inconsistent.
        self.upstream_log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
