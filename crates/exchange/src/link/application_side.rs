//! The methods of [`Link`], the connection between server and application, that the application
//! calls.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use rookery_fairness::{Load, Peer};

use super::queues::EventQueue;
use super::{AppState, IoState, Link, lock};
use crate::command::Command;
use crate::event::Event;
use crate::payload::ReleaseQueue;
use crate::stream_flow_control::{StreamOptions, StreamedBody};

/// The time for which a waiting application busy-polls for the next event before it sleeps. The
/// application yields the processor between two polls, so that a server on the same core can run.
const BUSY_POLL: Duration = Duration::from_micros(50);

/// The longer time for which a waiting application busy-polls for the next event, if [long
/// busy-polling](Link::enable_long_busy_poll) is enabled and the previous event arrived within this
/// time. A worker uses it, because the next request often arrives from the supervisor after more
/// than `BUSY_POLL` (50 µs).
const LONG_BUSY_POLL: Duration = Duration::from_micros(200);

impl Link {
    /// Removes and returns the next event from the server. If there is none, wakes the server so
    /// that it takes the commands that the application has sent, and returns `None`.
    pub fn next(&self) -> Option<Event> {
        let event = self.pop();
        if event.is_none() {
            self.flush();
        }
        event
    }

    /// Returns true if no event is waiting for the application.
    pub fn is_empty(&self) -> bool {
        lock(&self.up).events.is_empty() && !self.has_side_events()
    }

    /// Returns true if the server's thread has ended because of a failure.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Returns the reason why the server's thread has failed. Returns `None` if it has not failed,
    /// or if an earlier call has returned the reason. All connections and listeners of a failed
    /// server are closed.
    pub fn take_failure(&self) -> Option<String> {
        let reason = lock(&self.up).failure.take();
        self.has_failed.store(false, Ordering::SeqCst);
        reason
    }

    /// Waits until an event arrives or the server fails, but at most for `timeout`. Returns true if
    /// an event has arrived.
    pub fn wait(&self, timeout: Duration) -> bool {
        self.flush();
        if !self.is_long_busy_poll_enabled.load(Ordering::Relaxed) {
            return self.busy_poll(timeout, BUSY_POLL) || self.sleep(timeout);
        }
        let began = Instant::now();
        let look = if self.was_last_wait_short.load(Ordering::Relaxed) {
            LONG_BUSY_POLL
        } else {
            BUSY_POLL
        };
        let came = self.busy_poll(timeout, look) || self.sleep(timeout);
        self.was_last_wait_short
            .store(came && began.elapsed() <= LONG_BUSY_POLL, Ordering::Relaxed);
        came
    }

    /// Makes [`wait`](Self::wait) busy-poll for longer while events arrive in quick succession.
    pub fn enable_long_busy_poll(&self) {
        self.is_long_busy_poll_enabled.store(true, Ordering::Relaxed);
    }

    fn sleep(&self, timeout: Duration) -> bool {
        if let Some(side) = self.side.get() {
            self.app_state.store(AppState::Waiting as u8, Ordering::SeqCst);
            // A server that wakes the application resets the state. If it has done so before the
            // application has announced its sleep, it wakes nothing.
            let has_others = || {
                self.put.load(Ordering::SeqCst) != self.taken()
                    || self.has_failed()
                    || self.app_state.load(Ordering::SeqCst) != AppState::Waiting as u8
            };
            side.sleep(timeout, &has_others);
            self.app_state.store(AppState::Busy as u8, Ordering::SeqCst);
            return side.has_events() || !self.is_empty();
        }
        let mut up = lock(&self.up);
        if up.events.is_empty() && up.failure.is_none() {
            up = self
                .arrived
                .wait_timeout_while(up, timeout, |up| {
                    // Set again before every sleep, because `wake_waiting` may have reset the state
                    // although no event is in the queue.
                    let waits = up.events.is_empty() && up.failure.is_none();
                    if waits {
                        self.app_state.store(AppState::Waiting as u8, Ordering::SeqCst);
                    }
                    waits
                })
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            self.app_state.store(AppState::Busy as u8, Ordering::SeqCst);
        }
        !up.events.is_empty()
    }

    /// Polls for an event without sleeping, for at most the shorter of `timeout` and `most`.
    /// Returns true if an event is waiting. After a poll without an event, further calls do not
    /// poll until the application has taken another event. A yield of the processor
    /// that takes 1.5 ms or longer ends the poll. [`AdaptiveYield`](super::AdaptiveYield) then
    /// decides how many of the next calls do not poll.
    fn busy_poll(&self, timeout: Duration, most: Duration) -> bool {
        let taken = self.taken();
        let all_taken = self.all_taken();
        let has_come = || self.put.load(Ordering::SeqCst) != taken || self.has_side_events();
        let has_polled = self.polled_at.load(Ordering::Relaxed) == all_taken;
        if has_come() || has_polled || !self.polls.admit() {
            return has_come();
        }
        self.app_state.store(AppState::BusyPolling as u8, Ordering::SeqCst);
        let mut until = None;
        self.polls.yield_until(|now| {
            if has_come() {
                return true;
            }
            let is_over = now >= *until.get_or_insert_with(|| now + most.min(timeout));
            if is_over {
                self.polled_at.store(all_taken, Ordering::Relaxed);
            }
            is_over
        });
        self.app_state.store(AppState::Busy as u8, Ordering::SeqCst);
        has_come()
    }

    /// Announces that the application will wait for events without calling [`wait`](Self::wait),
    /// until it calls [`resume`](Self::resume). Meanwhile the server wakes it through its
    /// [`AppWaker`](crate::AppWaker). Returns false if an event is already waiting or the server
    /// has failed. The application must then not wait.
    pub fn try_park(&self) -> bool {
        self.flush();
        self.app_state.store(AppState::Parked as u8, Ordering::SeqCst);
        let may = {
            let up = lock(&self.up);
            up.events.is_empty() && up.failure.is_none()
        };
        if let Some(side) = self.side.get() {
            side.set_parked(true);
        }
        if may && !self.has_side_events() {
            return true;
        }
        self.resume();
        false
    }

    /// Announces that the application has ended the wait that it announced with
    /// [`try_park`](Self::try_park).
    pub fn resume(&self) {
        if let Some(side) = self.side.get() {
            side.set_parked(false);
        }
        self.app_state.store(AppState::Busy as u8, Ordering::SeqCst);
    }

    /// Sends a command to the server. If the server is asleep, it is woken at the next
    /// [`flush`](Self::flush), or after half a millisecond if the application does not call `flush`
    /// before. Because of this delay, a single wake-up often delivers several commands.
    ///
    /// The server is woken earlier if the waiting commands contain many bytes, if this method is
    /// called when the oldest command has waited for 0.1 ms, or if the timer for the delay cannot
    /// be set.
    pub fn send(&self, command: Command) {
        let is_due = {
            let mut down = lock(&self.down);
            let is_heavy = down.count_command(&command);
            down.commands.push_back(command);
            match self.io_state.load(Ordering::SeqCst) {
                _ if is_heavy => true,
                state if state == IoState::Awake as u8 => false,
                state if state == IoState::Immediate as u8 => true,
                _ => down.schedule.on_sent(|delay| {
                    lock(&self.io_waker).as_ref().is_some_and(|waker| waker.wake_within(delay))
                }),
            }
        };
        if is_due {
            self.wake_io();
        }
    }

    /// Wakes the server if it sleeps and commands are waiting for it.
    pub fn flush(&self) {
        if self.io_state.load(Ordering::SeqCst) != IoState::Awake as u8
            && !lock(&self.down).commands.is_empty()
        {
            self.wake_io();
        }
    }

    /// Wakes the server even if no command is waiting for it.
    pub fn wake_io(&self) {
        self.io_state.store(IoState::Awake as u8, Ordering::SeqCst);
        if let Some(waker) = &*lock(&self.io_waker) {
            waker.wake();
        }
    }

    /// Creates the body of a streamed response, whose number of waiting bytes is limited by the
    /// link's [`QueueLimits::max_stream_queue_size`](super::QueueLimits::max_stream_queue_size).
    pub fn stream(&self, rules: StreamOptions) -> StreamedBody {
        StreamedBody::new(rules, self.limits.max_stream_queue_size)
    }

    /// Returns the queue of tokens that tell the application which lent memory it may free.
    pub fn releases(&self) -> &Arc<ReleaseQueue> {
        &self.releases
    }

    fn pop(&self) -> Option<Event> {
        // An event that is being added now is found by the next call.
        if !self.has_events() {
            return None;
        }
        let (event, has_capacity) = {
            let mut up = lock(&self.up);
            let before = up.events.load();
            let (peer, event) = up.events.pop()?;
            let is_wanted = self.wants_capacity.load(Ordering::SeqCst);
            (event, is_wanted && self.has_new_capacity(&up, before, peer))
        };
        self.taken.fetch_add(1, Ordering::Relaxed);
        if has_capacity {
            self.wants_capacity.store(false, Ordering::SeqCst);
            self.wake_io();
        }
        Some(event)
    }

    /// Returns true if the queue has capacity for messages for which the server may be waiting,
    /// after an event of `peer` was taken from it: for all messages, for the first of this peer or
    /// its network, or for the first ones of any. `before` was the load of the queue until then.
    fn has_new_capacity(&self, up: &EventQueue, before: Load, peer: Peer) -> bool {
        let (limit, load) = (self.limits.load(), up.events.load());
        // A single peer fills half of the queue. Only at a quarter, so that reading does not stop
        // and start again with each message.
        let is_quarter = load.messages * 4 <= limit.messages && load.bytes * 4 <= limit.bytes;
        let was_message = load.messages < before.messages;
        was_message
            && (is_quarter
                || up.events.admits_first_message(peer, limit)
                || load.admits_first_messages(limit) != before.admits_first_messages(limit))
    }
}
