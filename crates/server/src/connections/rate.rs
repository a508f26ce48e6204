//! The minimum rate at which a client must send or read.
//!
//! A deadline alone is not enough, because a client can meet it by moving one byte at a time. A
//! client that is expected to send or to read must therefore keep a rate, and may fall behind by as
//! many bytes as the rate brings within the grace. A client that makes no progress can use all of
//! the grace, a client that is too slow lasts a little longer, and a client that keeps the rate may
//! take any time. A client cannot save up bytes for later by being faster.

use std::cell::Cell;
use std::time::Duration;

/// A minimum rate and its grace, in ticks of the sweep.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    /// The bytes that the client must move in each tick.
    tick: u64,
    grace: u32,
}

impl Rate {
    /// Converts a rate in bytes per second. A rate of 0 demands nothing. Any other rate demands at
    /// least one byte per tick.
    pub(crate) fn new(rate: u32, grace: Duration, tick: Duration) -> Rate {
        let bytes = u64::from(rate) * tick.as_nanos() as u64 / 1_000_000_000;
        Rate { tick: if rate == 0 { 0 } else { bytes.max(1) }, grace: ticks(grace, tick) }
    }
}

/// Converts a duration to ticks, and rounds down.
pub(crate) fn ticks(time: Duration, tick: Duration) -> u32 {
    // The clock wraps around, so that a limit of more ticks would be exceeded at once.
    u32::try_from(time.as_nanos() / tick.as_nanos())
        .map_or(u32::MAX / 2, |ticks| ticks.min(u32::MAX / 2))
}

/// The measurement of how far a client is behind its rate. Counting costs one addition for each
/// read or write; the sweep does the rest.
#[derive(Debug, Default)]
pub(crate) struct RateMeter {
    /// The bytes moved since the last tick.
    moved: Cell<u32>,
    /// The bytes that the client should have moved and has not moved.
    behind: Cell<u64>,
    /// The bytes that were in the socket's send buffer at the last tick.
    unsent: Cell<u32>,
}

impl RateMeter {
    /// Starts a measurement, because the client is expected to send or to read from now on.
    pub(crate) fn start(&self) {
        self.moved.set(0);
        self.behind.set(0);
        self.unsent.set(0);
    }

    pub(crate) fn count(&self, bytes: usize) {
        self.moved.set(self.moved.get().saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX)));
    }

    /// Returns the bytes counted since the last tick, and resets the count.
    pub(crate) fn take(&self) -> u64 {
        u64::from(self.moved.take())
    }

    /// Returns the bytes that the client has read since the last tick, where `unsent` is the number
    /// of bytes in the socket's send buffer.
    ///
    /// The bytes written to the socket are no measure: the system accepts more only when a third of
    /// the send buffer is free, which is a megabyte, and takes minutes at a few kilobytes per
    /// second.
    pub(crate) fn taken(&self, unsent: Option<u32>) -> u64 {
        let written = self.take();
        let Some(unsent) = unsent else { return written };
        (u64::from(self.unsent.replace(unsent)) + written).saturating_sub(u64::from(unsent))
    }

    /// Ends a tick in which `moved` bytes were moved. Returns true if the client is further behind
    /// than the grace allows.
    pub(crate) fn tick(&self, rate: Rate, moved: u64) -> bool {
        let behind = (self.behind.get() + rate.tick).saturating_sub(moved);
        self.behind.set(behind);
        behind > rate.tick.saturating_mul(u64::from(rate.grace))
    }

    /// Returns the number of ticks by which the client is behind.
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

    /// Returns the tick at which a client that moves this many bytes in each tick is too far
    /// behind.
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
        // Sockets move bytes in bursts.
        assert_eq!(ends(rate, |at| if at % 9 == 0 { 900 } else { 0 }), None);
        // A fast start is not saved up.
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
