//! The rings as a queue for which the application's thread waits beside its link.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rookery_exchange::SideQueue;
use rookery_worker_protocol::rings::{Arrivals, Sleep, SleepWord};

/// The rings as a queue of events.
pub(super) struct RingQueue {
    arrivals: Arrivals,
    own_sleep: SleepWord,
    /// Whether records wait until the front end accepts them, so that the application must not
    /// sleep.
    has_unsent: AtomicBool,
}

impl RingQueue {
    pub(super) fn new(arrivals: Arrivals, own_sleep: SleepWord) -> RingQueue {
        RingQueue { arrivals, own_sleep, has_unsent: AtomicBool::new(false) }
    }

    pub(super) fn set_unsent(&self, has_unsent: bool) {
        self.has_unsent.store(has_unsent, Ordering::Relaxed);
    }
}

impl fmt::Debug for RingQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingQueue").finish_non_exhaustive()
    }
}

impl SideQueue for RingQueue {
    fn has_events(&self) -> bool {
        self.arrivals.has_any() || self.has_unsent.load(Ordering::Relaxed)
    }

    fn sleep(&self, timeout: Duration, has_others: &dyn Fn() -> bool) {
        self.own_sleep.announce(Sleep::Waiting);
        if self.has_events() || has_others() {
            self.own_sleep.set_awake();
        } else {
            self.own_sleep.wait(timeout);
        }
    }

    fn wake(&self) {
        self.own_sleep.wake_waiting();
    }

    fn set_parked(&self, is_parked: bool) {
        if is_parked {
            self.own_sleep.announce(Sleep::Polling);
        } else {
            self.own_sleep.set_awake();
        }
    }
}
