//! The methods of [`Link`], the connection between server and application, that the server calls.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::queues::EventQueue;
use super::wake_schedule::WakeSchedule;
use super::{AppState, IoState, Link, PushError, WakeUp, lock};
use crate::command::Command;
use crate::event::Event;
use crate::wakers::IoWaker;

/// The number of queued events at which a waiting application is woken before the server has read
/// all ready connections. The application then works while the server reads on.
// With 8 instead of 32, throughput at ten connections is 3 % lower.
pub(super) const WAKE_BATCH: usize = 32;

impl Link {
    /// Sets the waker with which the application wakes the server's thread. `None` means that the
    /// thread has ended.
    pub fn set_io_waker(&self, waker: Option<Arc<dyn IoWaker>>) {
        if waker.is_none() {
            // Either of the two swapped buffers may remain here; free it, because an idle link
            // needs no memory.
            lock(&self.down).commands.shrink_to_fit();
        }
        *lock(&self.io_waker) = waker;
        lock(&self.down).schedule = WakeSchedule::default();
        self.io_state.store(IoState::Awake as u8, Ordering::SeqCst);
    }

    /// Reports to the application that the server's thread has failed. Wakes the application
    /// wherever it waits. The application reads the reason with
    /// [`take_failure`](Self::take_failure).
    pub fn fail(&self, reason: &str) {
        lock(&self.up).failure = Some(reason.to_owned());
        self.has_failed.store(true, Ordering::SeqCst);
        // The application may be parked or wait outside the link, so both wakers are called.
        self.wake_waiting();
        self.app_waker.wake();
    }

    /// Adds an event to the queue for the application. Returns how the caller has to wake the
    /// application. A WebSocket message is never rejected, so the server must call
    /// [`poll_capacity`](Self::poll_capacity) before it reads from a WebSocket.
    ///
    /// # Errors
    /// Returns [`PushError::Full`] with the exchange if
    /// [`QueueLimits::max_queued_requests`](super::QueueLimits::max_queued_requests) requests are
    /// waiting already. The server then responds with status 503.
    pub fn push(&self, event: Event) -> Result<WakeUp, PushError> {
        let waiting = {
            let mut up = lock(&self.up);
            match event {
                Event::Request(exchange) | Event::Head(exchange)
                    if up.requests >= self.limits.max_queued_requests =>
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
            // If the application shares a core with the server and is woken at once, it takes this
            // one event, responds, and waits again.
            state if state == AppState::Waiting as u8 => WakeUp::AfterBatch,
            state if state == AppState::Parked as u8 => {
                self.app_waker.wake();
                // The server checks again later, because the application may run a loop within its
                // own wait that never returns to the link.
                WakeUp::Watch
            }
            _ => WakeUp::Watch,
        })
    }

    /// Wakes the waiting application. Call this method after [`push`](Self::push) has returned
    /// [`WakeUp::AfterBatch`]. Further calls do nothing until the application waits again.
    pub fn wake_waiting(&self) {
        let (waiting, busy) = (AppState::Waiting as u8, AppState::Busy as u8);
        if self
            .app_state
            .compare_exchange(waiting, busy, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
        {
            match self.side.get() {
                Some(side) => side.wake(),
                None => self.arrived.notify_one(),
            }
        }
    }

    /// Returns true if the server may read more from WebSockets, because the queue of messages for
    /// the application is below its limits. After this method has returned false, the server is
    /// woken once the queue has capacity again.
    pub fn poll_capacity(&self) -> bool {
        let has_capacity = |up: &EventQueue| {
            up.messages < self.limits.ws_max_receive_queue_messages
                && up.message_bytes < self.limits.ws_max_receive_queue_size
        };
        if has_capacity(&lock(&self.up)) {
            return true;
        }
        self.wants_capacity.store(true, Ordering::SeqCst);
        // Checked again, because the application may have made capacity before it could see the
        // flag.
        has_capacity(&lock(&self.up))
    }

    /// Wakes the application if events are waiting and it has taken none since the caller's
    /// previous check. `seen` is the number of taken events that the previous call returned, or the
    /// result of [`taken`](Self::taken) for the first call. Returns the current number of taken
    /// events, or `None` if no event is waiting, so that no further check is needed.
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

    /// Returns the total number of events that the application has taken from the queue.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Returns true if events are waiting for the application. The result may be slightly out of
    /// date.
    pub fn has_events(&self) -> bool {
        // Without locking the queue.
        self.put.load(Ordering::Relaxed) != self.taken()
    }

    /// Announces that the server is about to sleep. Returns false if commands are already waiting;
    /// the server must then not sleep. If `is_app_slow` is true, the next command wakes the server
    /// at once. Otherwise the wake-up may be delayed by up to half a millisecond to combine several
    /// commands.
    pub fn prepare_sleep(&self, is_app_slow: bool) -> bool {
        let state = if is_app_slow { IoState::Immediate } else { IoState::Coalesce };
        self.io_state.store(state as u8, Ordering::SeqCst);
        if lock(&self.down).commands.is_empty() {
            return true;
        }
        self.io_state.store(IoState::Awake as u8, Ordering::SeqCst);
        false
    }

    /// Announces that the server is awake, so that commands need not wake it.
    pub fn set_awake(&self) {
        self.io_state.store(IoState::Awake as u8, Ordering::SeqCst);
    }

    /// Moves all commands that wait for the server to `out`, which must be empty.
    pub fn take_commands(&self, out: &mut VecDeque<Command>) {
        debug_assert!(out.is_empty());
        let mut down = lock(&self.down);
        std::mem::swap(&mut down.commands, out);
        down.schedule.on_taken();
        down.bytes = 0;
        down.is_heavy = false;
    }
}
