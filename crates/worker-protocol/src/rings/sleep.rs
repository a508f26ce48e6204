//! Sleep words: how each side tells the other that it must be woken.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

#[cfg(not(all(test, loom)))]
use rookery_system::linux::shared_wait;

use super::layout::{Mapping, Side};
#[cfg(all(test, loom))]
use super::sync::shared_wait;
use super::sync::{AtomicU32, fence};

/// The way in which a side sleeps, which determines how the side must be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Sleep {
    /// The side is awake and looks for records by itself.
    Awake = 0,
    /// The side sleeps in [`SleepWord::wait`].
    Waiting = 1,
    /// The side sleeps in a call that ends only when a descriptor becomes readable.
    Polling = 2,
}

/// The sleep word of one side.
#[derive(Debug, Clone)]
pub struct SleepWord {
    mapping: Arc<Mapping>,
    side: Side,
}

impl SleepWord {
    pub(super) fn new(mapping: Arc<Mapping>, side: Side) -> SleepWord {
        SleepWord { mapping, side }
    }

    fn word(&self) -> &AtomicU32 {
        &self.mapping.shared().sleep[self.side as usize].0
    }

    // ---- called by the side that sleeps ----

    /// Announces that this side is about to sleep. The caller must then look for records again, and
    /// must not sleep if there are any.
    pub fn announce(&self, sleep: Sleep) {
        self.word().store(sleep as u32, Relaxed);
        fence(SeqCst);
    }

    /// Wakes the thread of this side that is in [`wait`](Self::wait) or about to call it. Called on
    /// another thread of the same process. A side that sleeps in [`Sleep::Polling`] is not woken,
    /// and stays marked as asleep.
    pub fn wake_waiting(&self) {
        fence(SeqCst);
        let (waiting, awake) = (Sleep::Waiting as u32, Sleep::Awake as u32);
        if self.word().compare_exchange(waiting, awake, SeqCst, SeqCst).is_ok() {
            self.wake();
        }
    }

    /// Announces that this side is awake.
    pub fn set_awake(&self) {
        self.word().store(Sleep::Awake as u32, Relaxed);
    }

    /// Sleeps until the other side or another thread wakes this one, but at most for `timeout`. The
    /// caller has [announced](Self::announce) [`Sleep::Waiting`].
    pub fn wait(&self, timeout: Duration) {
        shared_wait::wait(self.word(), Sleep::Waiting as u32, timeout);
        self.set_awake();
    }

    // ---- called by the other side, after it has sent records ----

    /// Wakes this side if it sleeps. From [`Sleep::Polling`], `make_readable` wakes this side, by
    /// making the descriptor readable.
    pub fn wake_sleeper(&self, make_readable: impl FnOnce()) {
        match self.take_sleep() {
            Sleep::Awake => {}
            Sleep::Waiting => self.wake(),
            Sleep::Polling => make_readable(),
        }
    }

    /// Returns how this side sleeps, and marks this side as awake. The caller must then wake this
    /// side.
    pub(super) fn take_sleep(&self) -> Sleep {
        fence(SeqCst);
        if self.word().load(Relaxed) == Sleep::Awake as u32 {
            return Sleep::Awake;
        }
        match self.word().swap(Sleep::Awake as u32, SeqCst) {
            0 => Sleep::Awake,
            1 => Sleep::Waiting,
            // A hostile worker can write any other value. The only effect is a needless wake-up.
            _ => Sleep::Polling,
        }
    }

    /// Returns true if this side sleeps, and leaves it asleep.
    pub fn is_asleep(&self) -> bool {
        fence(SeqCst);
        self.word().load(Relaxed) != Sleep::Awake as u32
    }

    /// Wakes this side, which was [`Sleep::Waiting`].
    pub(super) fn wake(&self) {
        // Cannot fail, because the memory is mapped.
        let _ = shared_wait::wake(self.word());
    }
}
