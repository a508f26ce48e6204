//! The calls of the server's side.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::queues::EventQueue;
use super::{AppState, IoState, Link, PushError, WakeUp, lock};
use crate::command::Command;
use crate::event::Event;
use crate::wakers::IoWaker;

/// Events that are brought together before a waiting application is woken without a [`Link::wake_waiting`]: on a core of its
/// own it would otherwise wait for the last of a thousand connections. With 8 instead, 3 % fewer requests at ten.
pub(super) const WAKE_BATCH: usize = 32;

impl Link {
    /// Sets how the server is woken; `None` when its thread has ended.
    pub fn set_io_waker(&self, waker: Option<Arc<dyn IoWaker>>) {
        if waker.is_none() {
            // Which of the two buffers of `commands` stays here is chance: an idle link keeps none.
            lock(&self.down).commands.shrink_to_fit();
        }
        *lock(&self.io_waker) = waker;
        lock(&self.down).alarm = None;
        self.io_state.store(IoState::Awake as u8, Ordering::SeqCst);
    }

    /// Tells the application that the server's thread has ended, and why: it is woken wherever it waits, and finds it by
    /// [`take_failure`](Self::take_failure).
    pub fn fail(&self, reason: &str) {
        lock(&self.up).failure = Some(reason.to_owned());
        self.has_failed.store(true, Ordering::SeqCst);
        // It may not be there to look: what it parked in, or went to, is woken as well.
        self.wake_waiting();
        self.app_waker.wake();
    }

    /// Hands an event to the application. Closes and messages are always taken; ask [`poll_capacity`](Self::poll_capacity)
    /// before reading a WebSocket further.
    ///
    /// # Errors
    /// A request when [`QueueLimits::requests`] wait already: it comes back, to be answered with 503.
    pub fn push(&self, event: Event) -> Result<WakeUp, PushError> {
        let waiting = {
            let mut up = lock(&self.up);
            match event {
                Event::Request(exchange) | Event::Head(exchange)
                    if up.requests >= self.limits.requests =>
                {
                    return Err(PushError::Full(exchange));
                }
                Event::Request(_) | Event::Head(_) => up.requests += 1,
                Event::Message { ref payload, .. } => {
                    up.messages += 1;
                    up.message_bytes += payload.held();
                }
                _ => {}
            }
            up.events.push_back(event);
            self.put.fetch_add(1, Ordering::SeqCst);
            up.events.len()
        };
        if waiting == WAKE_BATCH {
            self.wake_waiting();
        }
        if waiting != 1 {
            return Ok(WakeUp::NotNeeded);
        }
        Ok(match self.app_state.load(Ordering::SeqCst) {
            state if state == AppState::BusyPolling as u8 => WakeUp::NotNeeded,
            // Woken at once it would, on a shared core, take this one event, answer it and wait again.
            state if state == AppState::Waiting as u8 => WakeUp::AfterBatch,
            state if state == AppState::Parked as u8 => {
                self.app_waker.wake();
                // Looked after all the same: what it runs in that wait may be a loop that does not come back.
                WakeUp::Watch
            }
            _ => WakeUp::Watch,
        })
    }

    /// Wakes a waiting application: what [`push`](Self::push) put off. A second call does nothing until it waits
    /// again, for each would be a system call.
    pub fn wake_waiting(&self) {
        let (waiting, busy) = (AppState::Waiting as u8, AppState::Busy as u8);
        if self
            .app_state
            .compare_exchange(waiting, busy, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
        {
            self.arrived.notify_one();
        }
    }

    /// Whether WebSockets may be read further. After `false` the server is woken when there is room again.
    pub fn poll_capacity(&self) -> bool {
        let has_capacity = |up: &EventQueue| {
            up.messages < self.limits.messages && up.message_bytes < self.limits.message_bytes
        };
        if has_capacity(&lock(&self.up)) {
            return true;
        }
        self.wants_capacity.store(true, Ordering::SeqCst);
        // Looked at again: the application may have made room before it could see that it is wanted.
        has_capacity(&lock(&self.up))
    }

    /// Looks whether a busy application has taken anything since `seen` (its earlier answer; start with
    /// [`taken`](Self::taken)), and wakes it if not. `None` when nothing waits: stop looking.
    pub fn wake_if_stalled(&self, seen: u64) -> Option<u64> {
        if lock(&self.up).events.is_empty() {
            return None;
        }
        let taken = self.taken();
        if taken == seen && self.app_state.load(Ordering::SeqCst) != AppState::Waiting as u8 {
            self.app_waker.wake();
        }
        Some(taken)
    }

    /// How many events the application has taken in all.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether the application has events to take; without the mutex, so it may be a moment old.
    pub fn has_events(&self) -> bool {
        self.put.load(Ordering::Relaxed) != self.taken()
    }

    /// Says that the server is about to sleep, and whether it may: `false` when commands wait. `is_app_slow`: the
    /// application has kept the server waiting for a millisecond, so its next reply should wake the server at once.
    pub fn prepare_sleep(&self, is_app_slow: bool) -> bool {
        let state = if is_app_slow { IoState::Immediate } else { IoState::Coalesce };
        self.io_state.store(state as u8, Ordering::SeqCst);
        if lock(&self.down).commands.is_empty() {
            return true;
        }
        self.io_state.store(IoState::Awake as u8, Ordering::SeqCst);
        false
    }

    /// Says that the server is awake.
    pub fn set_awake(&self) {
        self.io_state.store(IoState::Awake as u8, Ordering::SeqCst);
    }

    /// Takes all commands into `out`, which is empty; the two buffers change places.
    pub fn take_commands(&self, out: &mut VecDeque<Command>) {
        debug_assert!(out.is_empty());
        let mut down = lock(&self.down);
        std::mem::swap(&mut down.commands, out);
        down.oldest = None;
        down.bytes = 0;
        down.is_heavy = false;
    }
}
