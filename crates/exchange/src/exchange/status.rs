//! What both sides of an exchange may look at, whoever has it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::upstream_log::UpstreamLog;

/// See the module. It is made with its exchange and used again with it.
#[derive(Debug, Default)]
pub struct ExchangeStatus {
    is_disconnected: AtomicBool,
    is_waiting: AtomicBool,
    /// Of one that is logged, and that the application has workers for. Both sides are on one thread then: nobody waits for the lock.
    upstream_log: Mutex<Option<UpstreamLog>>,
}

impl ExchangeStatus {
    /// The client has gone: nobody will read a reply.
    pub fn set_disconnected(&self) {
        self.is_disconnected.store(true, Ordering::Release);
    }

    /// Whether it has.
    pub fn is_client_disconnected(&self) -> bool {
        self.is_disconnected.load(Ordering::Acquire)
    }

    /// Whether it waits for somebody who could begin with it: nobody has anything of it yet.
    pub fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Acquire)
    }

    pub(crate) fn set_waiting(&self, is_waiting: bool) {
        self.is_waiting.store(is_waiting, Ordering::Release);
    }

    /// What has become of it at workers so far, in a queue until now; `None` where there are none.
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

    /// Nothing has been noted.
    pub(crate) fn clear_upstream_log(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<UpstreamLog>> {
        // A value that is copied: whole at any point.
        self.upstream_log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
