//! The clock of an I/O thread, which counts coarse ticks (at most a second each). A connection
//! records progress by storing the current tick, which costs one write. A periodic pass over all
//! connections compares the stored ticks with the time limits.

use std::cell::Cell;
use std::time::Duration;

use super::rate::{Rate, ticks};
use crate::config::Limits;

/// The time limits of [`Limits`], converted to ticks of the I/O thread's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeLimits {
    pub(crate) length: Duration,
    pub(crate) handshake: u32,
    pub(crate) head: u32,
    pub(crate) head_rate: Rate,
    pub(crate) body_rate: Rate,
    pub(crate) reply_rate: Rate,
    pub(crate) message_rate: Rate,
    pub(crate) idle: u32,
    pub(crate) request: u32,
    pub(crate) stall: u32,
    pub(crate) ping: u32,
    pub(crate) pong: u32,
    pub(crate) close: u32,
    /// The value of [`Limits::evicts_at_once`].
    pub(crate) evicts_at_once: bool,
}

impl TimeLimits {
    /// Converts time limits to ticks of a new clock. A tick lasts a quarter of the shortest limit,
    /// but at most a second.
    pub(crate) fn of(limits: &Limits) -> TimeLimits {
        let all = [
            limits.tls_handshake_timeout,
            limits.header_timeout,
            limits.header_grace,
            limits.idle_timeout,
            limits.request_timeout,
            limits.ws_stall_timeout,
            limits.ws_ping_interval,
            limits.ws_ping_timeout,
            limits.ws_close_timeout,
        ];
        let shortest = all.into_iter().min().unwrap_or(Duration::MAX);
        let length = (shortest / 4).clamp(Duration::from_millis(10), Duration::from_secs(1));
        TimeLimits::with_length(limits, length)
    }

    /// Converts time limits to ticks of this length.
    fn with_length(limits: &Limits, length: Duration) -> TimeLimits {
        let count = |time| ticks(time, length);
        TimeLimits {
            length,
            handshake: count(limits.tls_handshake_timeout),
            head: count(limits.header_timeout),
            head_rate: Rate::new(limits.min_header_rate, limits.header_grace, length),
            body_rate: Rate::new(limits.min_body_rate, limits.idle_timeout, length),
            reply_rate: Rate::new(limits.min_response_rate, limits.idle_timeout, length),
            message_rate: Rate::new(limits.ws_min_rate, limits.ws_stall_timeout, length),
            idle: count(limits.idle_timeout),
            request: count(limits.request_timeout),
            stall: count(limits.ws_stall_timeout),
            ping: count(limits.ws_ping_interval),
            pong: count(limits.ws_ping_timeout),
            close: count(limits.ws_close_timeout),
            evicts_at_once: limits.evicts_at_once,
        }
    }
}

/// The current time of an I/O thread in ticks. The periodic pass over all connections advances it.
#[derive(Debug)]
pub(crate) struct Clock {
    now: Cell<u32>,
    ticks: Cell<TimeLimits>,
}

impl Clock {
    pub(crate) fn new(limits: &Limits) -> Clock {
        Clock { now: Cell::new(0), ticks: Cell::new(TimeLimits::of(limits)) }
    }

    /// Returns the time limits in ticks.
    #[inline]
    pub(crate) fn ticks(&self) -> TimeLimits {
        self.ticks.get()
    }

    /// Sets other time limits. The ticks keep their length, because connections have recorded times
    /// in ticks.
    pub(crate) fn set_limits(&self, limits: &Limits) {
        self.ticks.set(TimeLimits::with_length(limits, self.ticks().length));
    }

    /// Returns the number of the current tick. It wraps around, so that only differences of ticks
    /// are meaningful.
    pub(crate) fn now(&self) -> u32 {
        self.now.get()
    }

    /// Advances the clock by a tick, and returns the number of the new tick.
    pub(crate) fn advance(&self) -> u32 {
        self.now.set(self.now.get().wrapping_add(1));
        self.now.get()
    }
}
