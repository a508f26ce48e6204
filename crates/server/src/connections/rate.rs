//! How fast a peer has to be.
//!
//! A deadline alone is met by a byte at a time. So a peer whose turn it is, to send or to read, is asked for a rate, and
//! may fall behind it by what the rate brings in its grace: a peer that stands still has the whole grace, one that
//! crawls a little more, and one that keeps the rate all the time it wants. What it does better is not saved up.

use std::cell::Cell;
use std::time::Duration;

/// A rate and its grace, in ticks of the sweep.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    /// Bytes a tick.
    tick: u64,
    grace: u32,
}

impl Rate {
    /// `rate` bytes a second; 0 asks for nothing. Never less than a byte a tick otherwise.
    pub(crate) fn new(rate: u32, grace: Duration, tick: Duration) -> Rate {
        let bytes = u64::from(rate) * tick.as_nanos() as u64 / 1_000_000_000;
        Rate { tick: if rate == 0 { 0 } else { bytes.max(1) }, grace: ticks(grace, tick) }
    }
}

/// A duration in ticks, rounded down.
pub(crate) fn ticks(time: Duration, tick: Duration) -> u32 {
    // Longer ones would be over as soon as they begin: the clock wraps.
    u32::try_from(time.as_nanos() / tick.as_nanos())
        .map_or(u32::MAX / 2, |ticks| ticks.min(u32::MAX / 2))
}

/// How far one peer is behind. Counting costs an addition a read or write; the rest is the sweep's.
#[derive(Debug, Default)]
pub(crate) struct RateMeter {
    /// Bytes since the last tick.
    moved: Cell<u32>,
    /// Bytes it should have moved and has not.
    behind: Cell<u64>,
    /// Bytes in the socket's buffer at the last tick, of a peer that does not take them at once.
    unsent: Cell<u32>,
}

impl RateMeter {
    /// Forgets what was: it is the peer's turn from now on.
    pub(crate) fn start(&self) {
        self.moved.set(0);
        self.behind.set(0);
        self.unsent.set(0);
    }

    pub(crate) fn count(&self, bytes: usize) {
        self.moved.set(self.moved.get().saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX)));
    }

    /// Takes what was counted since the last tick.
    pub(crate) fn take(&self) -> u64 {
        u64::from(self.moved.take())
    }

    /// Bytes the peer has taken since the last tick. What was written lies in the socket's buffer, which takes more
    /// only when a third of it is free: a megabyte, and at a few kilobytes a second minutes. So `unsent` is what lies there.
    pub(crate) fn taken(&self, unsent: Option<u32>) -> u64 {
        let written = self.take();
        let Some(unsent) = unsent else { return written };
        (u64::from(self.unsent.replace(unsent)) + written).saturating_sub(u64::from(unsent))
    }

    /// A tick has passed in which `moved` bytes came or went; says whether the peer is too far behind.
    pub(crate) fn tick(&self, rate: Rate, moved: u64) -> bool {
        let behind = (self.behind.get() + rate.tick).saturating_sub(moved);
        self.behind.set(behind);
        behind > rate.tick.saturating_mul(u64::from(rate.grace))
    }

    /// How many ticks the peer is behind.
    pub(crate) fn lag(&self, rate: Rate) -> u32 {
        self.behind
            .get()
            .checked_div(rate.tick)
            .map_or(0, |lag| u32::try_from(lag).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many ticks a peer that moves so much each tick is too far behind.
    fn ends(rate: Rate, moved: impl Fn(u32) -> u64) -> Option<u32> {
        let pace = RateMeter::default();
        (1..10_000).find(|at| pace.tick(rate, moved(*at)))
    }

    #[test]
    fn who_stands_still_has_the_grace_and_who_keeps_the_rate_for_ever() {
        let rate = Rate::new(100, Duration::from_secs(10), Duration::from_secs(1));
        assert_eq!(ends(rate, |_| 0), Some(11));
        assert_eq!(ends(rate, |_| 50), Some(21));
        assert_eq!(ends(rate, |_| 100), None);
        // In lumps, as sockets have it.
        assert_eq!(ends(rate, |at| if at % 9 == 0 { 900 } else { 0 }), None);
        // What was fast at first is not saved up.
        assert_eq!(ends(rate, |at| if at == 1 { 1 << 30 } else { 0 }), Some(12));
    }

    #[test]
    fn no_rate_asks_for_nothing_and_a_small_one_for_a_byte_a_tick() {
        let none = Rate::new(0, Duration::from_secs(1), Duration::from_secs(1));
        assert_eq!(ends(none, |_| 0), None);
        let small = Rate::new(1, Duration::from_secs(1), Duration::from_millis(10));
        assert_eq!(ends(small, |_| 0), Some(101));
        assert_eq!(ends(small, |_| 1), None);
    }
}
