//! What both sides of an exchange may look at, whoever has it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::upstream::Upstream;

/// See the module. It is made with its exchange and used again with it.
#[derive(Debug, Default)]
pub struct Fate {
    departed: AtomicBool,
    waits: AtomicBool,
    /// Of one that is logged, and that the application has workers for. Both sides are on one thread then: nobody waits for the lock.
    upstream: Mutex<Option<Upstream>>,
}

impl Fate {
    /// The client has gone: nobody will read a reply.
    pub fn depart(&self) {
        self.departed.store(true, Ordering::Release);
    }

    /// Whether it has.
    pub fn is_departed(&self) -> bool {
        self.departed.load(Ordering::Acquire)
    }

    /// Whether it waits for somebody who could begin with it: nobody has anything of it yet.
    pub fn is_waiting(&self) -> bool {
        self.waits.load(Ordering::Acquire)
    }

    pub(crate) fn set_waiting(&self, waits: bool) {
        self.waits.store(waits, Ordering::Release);
    }

    /// What has become of it at workers so far, in a queue until now; `None` where there are none.
    pub fn upstream(&self) -> Option<Upstream> {
        let mut upstream = *self.lock();
        if let Some(upstream) = &mut upstream {
            upstream.stops_waiting(Instant::now());
        }
        upstream
    }

    pub(crate) fn note(&self, note: impl FnOnce(&mut Upstream)) {
        note(self.lock().get_or_insert_default());
    }

    /// Nothing has been noted.
    pub(crate) fn forget(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Upstream>> {
        // A value that is copied: whole at any point.
        self.upstream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
