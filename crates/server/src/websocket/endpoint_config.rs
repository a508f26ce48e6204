//! The server's adapter for WebSocket endpoints (the protocol core without I/O). It gives each
//! endpoint a clock, time limits and buffers. All WebSockets of a thread share the buffers.

use std::cell::RefCell;

use rookery_exchange::Payload;
use rookery_websocket::endpoint::{Adapter, CloseMode, Rules, Sealed, Time};
use rookery_websocket::protocol::MaskKey;

use crate::connections::admission::UNCHARGED_BYTES;
use crate::connections::clock::TimeLimits;

/// The maximum size in bytes of outgoing WebSocket messages that are copied into one buffer to be
/// sent in one write. Larger messages are not copied.
const COPY_MAX_BYTES: usize = 16 << 10;

/// The number of queued output bytes above which at most one pong is queued. A new pong then
/// replaces the queued one (RFC 6455, 5.5.3), so a client that sends pings and does not read cannot
/// fill the memory.
const PONG_QUEUE_MAX: usize = UNCHARGED_BYTES;

/// The maximum number of unused WebSocket buffers that a thread keeps. Together they take at most 4
/// MiB.
const MAX_KEPT_BUFFERS: usize = 64;
/// The maximum size in bytes of an unused WebSocket buffer that is kept for reuse.
const MAX_KEPT_BUFFER_SIZE: usize = 64 << 10;

thread_local! {
    /// The empty buffers that the WebSockets of a thread share. An idle WebSocket holds no buffer.
    static BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// The server's adapter for WebSocket endpoints (the protocol core), which gives them a clock,
/// buffers and a type for the payloads of messages.
#[derive(Debug)]
pub(super) struct ServerAdapter;

impl Sealed for ServerAdapter {}

impl Adapter for ServerAdapter {
    type Time = Tick;
    type Payload = Payload;
    type Counters = ();

    const BUFFER_SIZE: usize = 2 * COPY_MAX_BYTES;
    const COPY_MAX: usize = COPY_MAX_BYTES;
    const SENDS_REASON: bool = true;
    const CLOSE_MODE: CloseMode = CloseMode::Lingering;

    fn bytes(payload: &Payload) -> &[u8] {
        payload.as_bytes()
    }

    fn mask() -> MaskKey {
        unreachable!("a server never masks frames")
    }

    fn take_buffer() -> Vec<u8> {
        BUFFERS.try_with(|buffers| buffers.borrow_mut().pop()).ok().flatten().unwrap_or_default()
    }

    fn return_buffer(mut buffer: Vec<u8>) {
        // The thread-local value does not exist any more while the thread ends.
        let _ = BUFFERS.try_with(|buffers| {
            let mut buffers = buffers.borrow_mut();
            if buffers.len() < MAX_KEPT_BUFFERS && buffer.capacity() <= MAX_KEPT_BUFFER_SIZE {
                buffer.clear();
                buffers.push(buffer);
            }
        });
    }
}

/// A point in time, as the number of ticks that the I/O thread's coarse clock has counted. The
/// number wraps around.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tick(pub(super) u32);

impl Time for Tick {
    type Span = u32;

    fn after(self, span: u32) -> Tick {
        Tick(self.0.wrapping_add(span))
    }

    fn has_reached(self, deadline: Tick) -> bool {
        self.0.wrapping_sub(deadline.0) <= u32::MAX / 2
    }
}

/// Converts the server's time limits for WebSockets to the form that a WebSocket endpoint (the
/// protocol core) uses.
pub(super) fn rules(ticks: &TimeLimits) -> Rules<u32> {
    // A limit of n ticks is exceeded at tick n + 1.
    Rules::new(ticks.close + 1, PONG_QUEUE_MAX + 1).pings(ticks.ping.max(1), Some(ticks.pong + 1))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::Limits;

    /// Checks that a very long time limit does not expire at once. In an earlier version, a limit
    /// of more than half of the clock's range did.
    #[test]
    fn a_time_limit_of_decades_does_not_expire_at_once() {
        for seconds in [u64::from(u32::MAX) - 1, u64::from(u32::MAX), u64::MAX] {
            let time = Duration::from_secs(seconds);
            let limits = Limits {
                ws_close_timeout: time,
                ws_ping_interval: time,
                ws_ping_timeout: time,
                ..Limits::default()
            };
            let rules = rules(&TimeLimits::of(&limits));
            let start = Tick(7);
            assert!(!start.has_reached(start.after(rules.close_timeout)), "{seconds}");
            assert!(!start.has_reached(start.after(rules.ping_interval.unwrap())), "{seconds}");
            assert!(!start.has_reached(start.after(rules.ping_timeout.unwrap())), "{seconds}");
        }
    }

    #[test]
    fn a_deadline_past_the_wrap_of_the_clock_is_reached_when_due() {
        let start = Tick(u32::MAX - 1);
        let deadline = start.after(5);
        for passed in 0..20 {
            assert_eq!(start.after(passed).has_reached(deadline), passed >= 5, "{passed}");
        }
        // The longest limit that `TimeLimits` contains.
        let longest = start.after(u32::MAX / 2 + 1);
        assert!(!start.has_reached(longest) && longest.has_reached(longest));
    }
}
