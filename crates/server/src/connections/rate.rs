//! Minimum transfer rates for clients.
//!
//! With only a deadline for progress, a client could hold a connection by transferring single
//! bytes. Therefore, while the server waits for a client to send or to read, the client must reach
//! a minimum rate. The client may fall behind by as many bytes as the rate amounts to during the
//! grace period. A client without progress is closed at the end of that period, and a client that
//! is slower than the rate somewhat later. Bytes beyond the rate give no credit for later.

use std::cell::Cell;
use std::time::Duration;

/// A minimum rate with its grace period, in ticks of the sweep.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    /// The number of bytes per tick.
    tick: u64,
    grace: u32,
}

impl Rate {
    /// Converts a rate in bytes per second. The result is at least one byte per tick, unless `rate`
    /// is 0, which means that there is no minimum.
    pub(crate) fn new(rate: u32, grace: Duration, tick: Duration) -> Rate {
        let bytes = u64::from(rate) * tick.as_nanos() as u64 / 1_000_000_000;
        Rate { tick: if rate == 0 { 0 } else { bytes.max(1) }, grace: ticks(grace, tick) }
    }
}

/// Converts a duration to ticks, rounded down.
pub(crate) fn ticks(time: Duration, tick: Duration) -> u32 {
    // The maximum is half the range of the clock, because the clock wraps around, and a longer time
    // would appear to be over at once.
    u32::try_from(time.as_nanos() / tick.as_nanos())
        .map_or(u32::MAX / 2, |ticks| ticks.min(u32::MAX / 2))
}

/// The record of how far one client is behind a minimum rate. Counting costs one addition per read
/// or write, and the sweep does the rest.
#[derive(Debug, Default)]
pub(crate) struct RateMeter {
    /// The number of bytes since the last tick.
    moved: Cell<u32>,
    /// The number of bytes that the client should have transferred and has not.
    behind: Cell<u64>,
    /// The number of bytes that were in the socket's send buffer at the last tick.
    unsent: Cell<u32>,
}

impl RateMeter {
    /// Resets all counts, because the server begins to wait for the client.
    pub(crate) fn start(&self) {
        self.moved.set(0);
        self.behind.set(0);
        self.unsent.set(0);
    }

    pub(crate) fn count(&self, bytes: usize) {
        self.moved.set(self.moved.get().saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX)));
    }

    /// Returns the number of bytes that were counted since the last tick, and resets the count.
    pub(crate) fn take(&self) -> u64 {
        u64::from(self.moved.take())
    }

    /// Returns the number of bytes that the client has read since the last tick. `unsent` is the
    /// number of bytes in the socket's send buffer. The number of written bytes is not a
    /// substitute, because the system accepts more only when a third of the buffer, about a
    /// megabyte, is free. At a few kilobytes per second, that takes minutes.
    pub(crate) fn taken(&self, unsent: Option<u32>) -> u64 {
        let written = self.take();
        let Some(unsent) = unsent else { return written };
        (u64::from(self.unsent.replace(unsent)) + written).saturating_sub(u64::from(unsent))
    }

    /// Records a tick in which `moved` bytes were transferred. Returns true if the client is too
    /// far behind.
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

    /// Returns the number of ticks after which a client that transfers `moved(tick)` bytes in each
    /// tick is too far behind.
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
        // The client transfers nine times the bytes in every ninth tick, as happens with sockets.
        assert_eq!(ends(rate, |at| if at % 9 == 0 { 900 } else { 0 }), None);
        // A fast start gives no credit for later.
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
