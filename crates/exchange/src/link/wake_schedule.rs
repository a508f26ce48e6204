//! The rule by which a sender wakes a sleeping receiver once for several things that it sends.

use std::time::{Duration, Instant};

/// The time for which something sent may wait for more, so that one wake-up of the receiver
/// delivers all of it.
pub(super) const COALESCE: Duration = Duration::from_micros(100);

/// The maximum time from sending something until the receiver is woken for it, if the sender
/// neither sends more nor waits. The timer for this delay costs one system call.
pub(super) const MAX_DELAY: Duration = Duration::from_micros(500);

/// The times by which a sender decides when to wake a sleeping receiver.
#[derive(Debug, Default)]
pub struct WakeSchedule {
    /// The time at which the oldest thing that waits was sent to the sleeping receiver.
    oldest: Option<Instant>,
    /// The expiry time of the timer that wakes the receiver, which may be in the past.
    alarm: Option<Instant>,
}

impl WakeSchedule {
    /// Records that something was sent to the receiver, which sleeps. Returns true if the receiver
    /// must be woken now: if the oldest thing sent has waited for 0.1 ms, or if there is no timer.
    /// Otherwise a timer wakes the receiver soon. `set_timer` sets this timer and returns false if
    /// it cannot be set.
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

    /// Records that the receiver has taken what was sent, or has been woken to take it.
    pub fn on_taken(&mut self) {
        self.oldest = None;
    }
}
