//! The calls of the application's side.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::{AppState, IoState, Link, lock};
use crate::command::Command;
use crate::event::Event;
use crate::payload::ReleaseQueue;
use crate::streamed_body::{StreamOptions, StreamedBody};

/// How long a waiting application stays awake after its last event. It gives the processor away meanwhile: where it
/// shares a core with the server, the two take turns without a system call that wakes the other.
const BUSY_POLL: Duration = Duration::from_micros(50);

/// The same for one that [stays](Link::enable_long_busy_poll) awake, when what came last came within this time: what comes to it has gone
/// through another process, which takes longer than a look, and to be woken is most of what that costs. What comes more seldom is not awaited so.
const LONG_BUSY_POLL: Duration = Duration::from_micros(200);

/// How long a reply may wait for others to leave with it.
pub(super) const COALESCE: Duration = Duration::from_micros(100);

/// How long anything may wait that is neither flushed nor followed by another. Setting the alarm is a system call, which
/// this makes one per half a millisecond; and what the application sends must leave within one.
pub(super) const MAX_DELAY: Duration = Duration::from_micros(500);

/// When the server should take what was sent.
enum Due {
    /// When it looks by itself, or is flushed.
    Whenever,
    Within(Duration),
    Now,
}

impl Link {
    /// Takes the next event. When there is none, what has been answered is sent.
    pub fn next(&self) -> Option<Event> {
        let event = self.pop();
        if event.is_none() {
            self.flush();
        }
        event
    }

    /// Whether an event waits.
    pub fn is_empty(&self) -> bool {
        lock(&self.up).events.is_empty()
    }

    /// Whether the server's thread has ended for no good reason. One load of an atomic.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Why the server's thread has ended; told once. Its connections are closed, and its listeners no longer listen.
    pub fn take_failure(&self) -> Option<String> {
        let reason = lock(&self.up).failure.take();
        self.has_failed.store(false, Ordering::SeqCst);
        reason
    }

    /// Waits until an event waits or the server has failed, at most `timeout`; says whether an event does.
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

    /// Has the application stay awake for longer in [`wait`](Self::wait), where something comes again and again.
    pub fn enable_long_busy_poll(&self) {
        self.is_long_busy_poll_enabled.store(true, Ordering::Relaxed);
    }

    fn sleep(&self, timeout: Duration) -> bool {
        let mut up = lock(&self.up);
        if up.events.is_empty() && up.failure.is_none() {
            up = self
                .arrived
                .wait_timeout_while(up, timeout, |up| {
                    // Before every sleep: who set_awake it for nothing has taken the word back.
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

    /// Stays awake for a moment before it sleeps, once after each time that something came.
    fn busy_poll(&self, timeout: Duration, most: Duration) -> bool {
        let taken = self.taken();
        let has_come = || self.put.load(Ordering::SeqCst) != taken;
        if has_come() || self.polled_at.load(Ordering::Relaxed) == taken {
            return has_come();
        }
        self.app_state.store(AppState::BusyPolling as u8, Ordering::SeqCst);
        let until = Instant::now() + most.min(timeout);
        while !has_come() {
            if Instant::now() >= until {
                self.polled_at.store(taken, Ordering::Relaxed);
                break;
            }
            std::thread::yield_now();
        }
        self.app_state.store(AppState::Busy as u8, Ordering::SeqCst);
        has_come()
    }

    /// Says that the application goes into a wait of its own, and whether it may: `false` when an event waits, or the
    /// server has failed.
    /// [`resume`](Self::resume) ends it.
    pub fn try_park(&self) -> bool {
        self.flush();
        self.app_state.store(AppState::Parked as u8, Ordering::SeqCst);
        let may = {
            let up = lock(&self.up);
            up.events.is_empty() && up.failure.is_none()
        };
        if may {
            return true;
        }
        self.resume();
        false
    }

    /// Says that the application is back from its own wait.
    pub fn resume(&self) {
        self.app_state.store(AppState::Busy as u8, Ordering::SeqCst);
    }

    /// Gives a command to the server. It leaves at once with [`flush`](Self::flush), and in half a millisecond in any
    /// case, whatever the application does next.
    ///
    /// Two clocks, for two kinds of sender, and neither does for both. One that sends on and on looks at the age of the group
    /// (`oldest`) as it sends, and from `COALESCE` on wakes the server, which writes while the sender works: that costs
    /// no timer. One that sends and then does not come back for long is served by the alarm alone; were that to go off
    /// after `COALESCE`, each such interval of sending would cost a system call to set it, five times as many.
    pub fn send(&self, command: Command) {
        let due = {
            let mut down = lock(&self.down);
            let is_heavy = down.count_command(&command);
            down.commands.push_back(command);
            match self.io_state.load(Ordering::SeqCst) {
                _ if is_heavy => Due::Now,
                state if state == IoState::Awake as u8 => Due::Whenever,
                state if state == IoState::Immediate as u8 => Due::Now,
                _ => {
                    let now = Instant::now();
                    if now - *down.oldest.get_or_insert(now) >= COALESCE {
                        Due::Now
                    } else if down.alarm.is_none_or(|alarm| alarm <= now) {
                        down.alarm = Some(now + MAX_DELAY);
                        Due::Within(MAX_DELAY)
                    } else {
                        Due::Whenever
                    }
                }
            }
        };
        match due {
            Due::Whenever => {}
            Due::Now => self.wake_io(),
            Due::Within(delay) => {
                if let Some(waker) = &*lock(&self.io_waker) {
                    waker.wake_within(delay);
                }
            }
        }
    }

    /// Wakes the server if it sleeps and commands wait.
    pub fn flush(&self) {
        if self.io_state.load(Ordering::SeqCst) != IoState::Awake as u8
            && !lock(&self.down).commands.is_empty()
        {
            self.wake_io();
        }
    }

    /// Wakes the server, whatever waits.
    pub fn wake_io(&self) {
        self.io_state.store(IoState::Awake as u8, Ordering::SeqCst);
        if let Some(waker) = &*lock(&self.io_waker) {
            waker.wake();
        }
    }

    /// A stream for the body of a reply.
    pub fn stream(&self, rules: StreamOptions) -> StreamedBody {
        StreamedBody::new(rules, self.limits.stream_bytes)
    }

    /// Where the tokens of ended leases are collected.
    pub fn releases(&self) -> &Arc<ReleaseQueue> {
        &self.releases
    }

    fn pop(&self) -> Option<Event> {
        let (event, has_capacity) = {
            let mut up = lock(&self.up);
            let event = up.events.pop_front()?;
            match &event {
                Event::Request(_) | Event::Head(_) => up.requests -= 1,
                Event::Message { payload, .. } => {
                    up.messages -= 1;
                    up.message_bytes -= payload.held();
                }
                _ => {}
            }
            // Half empty, so that reading does not stop and start for each message.
            let limits = &self.limits;
            (
                event,
                up.messages * 2 <= limits.messages && up.message_bytes * 2 <= limits.message_bytes,
            )
        };
        self.taken.fetch_add(1, Ordering::Relaxed);
        if has_capacity && self.wants_capacity.load(Ordering::SeqCst) {
            self.wants_capacity.store(false, Ordering::SeqCst);
            self.wake_io();
        }
        Some(event)
    }
}
