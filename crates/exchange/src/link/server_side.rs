//! The methods of [`Link`], the connection between server and application, that the server calls.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rookery_fairness::Peer;

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

    /// Adds an event of a peer to the queue for the application. Returns how the caller has to wake
    /// the application. A WebSocket message is never rejected, so the server must call
    /// [`poll_capacity`](Self::poll_capacity) before it reads a message from a WebSocket.
    ///
    /// # Errors
    /// Fails if [`QueueLimits::max_queued_requests`](super::QueueLimits::max_queued_requests)
    /// requests are waiting already, or twice as many if none of them is of the peer's network.
    /// Returns [`PushError::Displaced`] with an earlier request if
    /// another peer has more requests in the queue, and [`PushError::Full`] with the request itself
    /// otherwise. The server then responds with status 503 to the returned request.
    pub fn push(&self, peer: Peer, event: Event) -> Result<WakeUp, PushError> {
        let (waiting, displaced) = {
            let mut up = lock(&self.up);
            let mut displaced = None;
            let (requests, max) = (up.events.load().requests, self.limits.max_queued_requests);
            if requests >= max && event.is_request() {
                displaced = up.events.displace(peer).and_then(Event::into_exchange);
                let is_first = || !up.events.has_requests_of_network(peer);
                if displaced.is_none() && !(requests < max.saturating_mul(2) && is_first()) {
                    return event
                        .into_exchange()
                        .map_or(Ok(WakeUp::NotNeeded), |exchange| Err(PushError::Full(exchange)));
                }
            }
            if displaced.is_none() {
                self.put.fetch_add(1, Ordering::SeqCst);
            }
            up.events.push(peer, event);
            (up.events.len(), displaced)
        };
        let wake_up = self.wake_up(waiting);
        match displaced {
            None => Ok(wake_up),
            Some(exchange) => Err(PushError::Displaced { exchange, wake_up }),
        }
    }

    /// Returns how the server has to wake the application after the queue has grown to `waiting`
    /// events.
    fn wake_up(&self, waiting: usize) -> WakeUp {
        if waiting == WAKE_BATCH {
            self.wake_waiting();
        }
        if waiting != 1 {
            return WakeUp::NotNeeded;
        }
        match self.app_state.load(Ordering::SeqCst) {
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
        }
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

    /// Returns true if the server may read another message from a WebSocket of this peer, because
    /// the queue of events has capacity for it. After this method has returned false, the server is
    /// woken once the queue has capacity again, for this peer or another.
    pub fn poll_capacity(&self, peer: Peer) -> bool {
        let limit = self.limits.load();
        // An empty queue, which need not be locked, has capacity for every peer.
        if !self.has_events() && limit.messages > 0 {
            return true;
        }
        let up = lock(&self.up);
        let has_capacity = up.events.admits_message(peer, limit);
        if !has_capacity {
            // Set while the queue is locked, because the application looks whether it is set each
            // time it takes an event.
            self.wants_capacity.store(true, Ordering::SeqCst);
        }
        has_capacity
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
