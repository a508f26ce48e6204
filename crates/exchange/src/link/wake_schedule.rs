//! The rule by which a sender wakes a sleeping receiver, so that one wake-up delivers several
//! items (commands, or records in a ring).

use std::time::{Duration, Instant};

/// The time for which a sent item may wait for further items, so that one wake-up of the receiver
/// delivers all of them.
pub(super) const COALESCE: Duration = Duration::from_micros(100);

/// The maximum time from sending an item until the receiver is woken for it, if the sender neither
/// sends another item nor wakes the receiver itself. Setting the timer costs one system call.
pub(super) const MAX_DELAY: Duration = Duration::from_micros(500);

/// The times by which a sender decides when to wake a sleeping receiver.
#[derive(Debug, Default)]
pub struct WakeSchedule {
    /// The time at which the oldest item that the receiver has not taken was sent while it slept;
    /// `None` if there is no such item.
    oldest: Option<Instant>,
    /// The expiry time of the timer that wakes the receiver, which may be in the past; `None` if
    /// no timer was set.
    alarm: Option<Instant>,
}

impl WakeSchedule {
    /// Records that an item was sent to the receiver, which sleeps. Returns true if the caller must
    /// wake the receiver now: if the oldest item has waited for 0.1 ms, or if `set_timer` failed.
    /// Otherwise a timer wakes the receiver within 0.5 ms. `set_timer` sets this timer, and returns
    /// false if it cannot be set.
    pub fn on_sent(&mut self, set_timer: impl FnOnce(Duration) -> bool) -> bool {
        let now = Instant::now();
        if now - *self.oldest.get_or_insert(now) >= COALESCE {
            return true;
        }
        // Setting a timer costs as much as everything else here, so one that is set is not set
        // again, although it may then expire early.
        if self.alarm.is_some_and(|alarm| alarm > now) {
            return false;
        }
        let is_set = set_timer(MAX_DELAY);
        self.alarm = is_set.then(|| now + MAX_DELAY);
        !is_set
    }

    /// Records that the receiver has taken the sent items, or has been woken to take them.
    pub fn on_taken(&mut self) {
        self.oldest = None;
    }
}
