//! The clock of an I/O thread. It advances by coarse ticks, so that noting progress costs one write
//! to a cell, and the sweep compares the noted ticks with the limits.

use std::cell::Cell;
use std::time::Duration;

use super::rate::{Rate, ticks};
use crate::config::Limits;

/// The time limits of [`Limits`], in ticks of the sweep.
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
}

impl TimeLimits {
    /// Converts the limits. A tick lasts a second, or a fourth of the shortest limit.
    pub(crate) fn of(limits: &Limits) -> TimeLimits {
        let all = [
            limits.handshake_time,
            limits.head_time,
            limits.head_grace,
            limits.idle_time,
            limits.request_time,
            limits.stall_time,
            limits.ping_time,
            limits.pong_time,
            limits.close_time,
        ];
        let shortest = all.into_iter().min().unwrap_or(Duration::MAX);
        let length = (shortest / 4).clamp(Duration::from_millis(10), Duration::from_secs(1));
        let count = |time| ticks(time, length);
        TimeLimits {
            length,
            handshake: count(limits.handshake_time),
            head: count(limits.head_time),
            head_rate: Rate::new(limits.head_rate, limits.head_grace, length),
            body_rate: Rate::new(limits.body_rate, limits.idle_time, length),
            reply_rate: Rate::new(limits.reply_rate, limits.idle_time, length),
            message_rate: Rate::new(limits.message_rate, limits.stall_time, length),
            idle: count(limits.idle_time),
            request: count(limits.request_time),
            stall: count(limits.stall_time),
            ping: count(limits.ping_time),
            pong: count(limits.pong_time),
            close: count(limits.close_time),
        }
    }
}

/// The current tick of an I/O thread, which the sweep advances.
#[derive(Debug)]
pub(crate) struct Clock {
    now: Cell<u32>,
    pub(crate) ticks: TimeLimits,
}

impl Clock {
    pub(crate) fn new(limits: &Limits) -> Clock {
        Clock { now: Cell::new(0), ticks: TimeLimits::of(limits) }
    }

    /// Returns the current tick. It wraps around, so that only differences are meaningful.
    pub(crate) fn now(&self) -> u32 {
        self.now.get()
    }

    /// Advances to the next tick, and returns it.
    pub(crate) fn advance(&self) -> u32 {
        self.now.set(self.now.get().wrapping_add(1));
        self.now.get()
    }
}
