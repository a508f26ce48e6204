//! The check that a client sends or reads at a minimum rate. A timeout alone is not enough, because
//! a client could avoid it by moving one byte at a time.
//!
//! The check applies while the client is expected to send or to read. The client may fall behind by
//! as many bytes as the rate demands in a configured time, the grace:
//!
//! - A client that makes no progress is too slow after the grace.
//! - A client that makes progress, but below the rate, is too slow after more time than the grace.
//! - A client that keeps the rate may take any time.
//! - A client that is faster for a while gains no reserve for later.

use std::cell::Cell;
use std::time::Duration;

/// The minimum rate at which a client must send or read, in bytes per clock tick, and the number of
/// ticks by which the client may fall behind this rate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    /// The number of bytes that the client must send or read in each tick of the clock.
    tick: u64,
    grace: u32,
}

impl Rate {
    /// Converts a minimum rate in bytes per second to one per tick of the clock. A rate of 0
    /// requires nothing. Any other rate requires at least one byte per tick.
    pub(crate) fn new(rate: u32, grace: Duration, tick: Duration) -> Rate {
        let bytes = u64::from(rate) * tick.as_nanos() as u64 / 1_000_000_000;
        Rate { tick: if rate == 0 { 0 } else { bytes.max(1) }, grace: ticks(grace, tick) }
    }
}

/// Converts a duration to a number of clock ticks, rounded down. `tick` is the duration of a tick.
pub(crate) fn ticks(time: Duration, tick: Duration) -> u32 {
    // The clock wraps around, so that a limit of more ticks would be exceeded at once.
    u32::try_from(time.as_nanos() / tick.as_nanos())
        .map_or(u32::MAX / 2, |ticks| ticks.min(u32::MAX / 2))
}

/// A meter of how many bytes a client is behind its minimum rate. A periodic pass over all
/// connections compares the count with the rate.
#[derive(Debug, Default)]
pub(crate) struct RateMeter {
    /// The number of bytes that the client has sent or read since the last tick of the clock.
    moved: Cell<u32>,
    /// The number of bytes by which the client is behind its minimum rate.
    behind: Cell<u64>,
    /// The number of bytes that were in the socket's send buffer at the last tick of the clock.
    unsent: Cell<u32>,
}

impl RateMeter {
    /// Starts to measure the client's rate, because the client is expected to send or to read from
    /// now on.
    pub(crate) fn start(&self) {
        self.moved.set(0);
        self.behind.set(0);
        self.unsent.set(0);
    }

    pub(crate) fn count(&self, bytes: usize) {
        self.moved.set(self.moved.get().saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX)));
    }

    /// Returns the number of bytes that were counted since the last tick of the clock, and resets
    /// the count.
    pub(crate) fn take(&self) -> u64 {
        u64::from(self.moved.take())
    }

    /// Returns the number of bytes that the client has read since the last tick of the clock.
    /// `unsent` is the number of bytes that are now in the socket's send buffer. If it is unknown
    /// (`None`), returns the number of bytes that were written to the socket instead.
    pub(crate) fn taken(&self, unsent: Option<u32>) -> u64 {
        // The number of bytes written to the socket alone would be misleading, because the system
        // accepts more only when a third of the send buffer is free. That can be a megabyte, which
        // a client that reads a few kilobytes per second frees only after minutes.
        let written = self.take();
        let Some(unsent) = unsent else { return written };
        (u64::from(self.unsent.replace(unsent)) + written).saturating_sub(u64::from(unsent))
    }

    /// Ends a tick of the clock in which the client sent or read `moved` bytes. Returns true if the
    /// client is now further behind its minimum rate than the grace allows.
    pub(crate) fn tick(&self, rate: Rate, moved: u64) -> bool {
        let behind = (self.behind.get() + rate.tick).saturating_sub(moved);
        self.behind.set(behind);
        behind > rate.tick.saturating_mul(u64::from(rate.grace))
    }

    /// Returns the number of clock ticks by which the client is behind its minimum rate.
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

    /// Simulates, for the tests, a client that sends or reads `moved(n)` bytes in the tick with the
    /// number n. Returns the first tick at which the client is too far behind its minimum rate, or
    /// `None` if that never happens.
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
