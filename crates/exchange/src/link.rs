//! The two queues between server and application, and who wakes whom.
//!
//! # The wake protocol
//! *EventQueue.* Only the step from an empty queue to a non-empty one wakes the application, and how depends on what it is
//! doing ([`AppState`]): waiting here (the condition variable, once the connections that are ready now have been read:
//! [`Link::wake_waiting`]), parked in somebody else's wait (its [`AppWaker`]),
//! or busy. When it is busy nobody is woken at once; the server looks again a millisecond later
//! ([`Link::wake_if_stalled`]), because "busy" may mean that the application went elsewhere and will not come back.
//!
//! *CommandQueue.* A reply wakes the server only if the server sleeps and the oldest unsent reply has waited
//! [`COALESCE`], or the queue up is empty ([`Link::next`] says so by flushing). A server that has seen the
//! application take longer than that sleeps in [`IoState::Immediate`] and is woken by every reply. The application may
//! also work on after it has sent something, for seconds: so the first of a group sets an alarm ([`IoWaker::wake_within`])
//! that no later one moves, and what nobody flushes leaves in [`MAX_DELAY`] all the same.
//!
//! # Why no wake-up is lost
//! Each side publishes that it sleeps *before* it looks into its queue under the queue's mutex for the last time;
//! the other side puts its item in under the same mutex *before* it reads that state. Whoever comes second in the
//! mutex sees what the first did.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

mod application_side;
mod buffer_pool;
mod queues;
mod server_side;

use self::buffer_pool::BufferPool;
use self::queues::{CommandQueue, EventQueue};
use crate::exchange::Exchange;
use crate::payload::ReleaseQueue;
use crate::wakers::{AppWaker, IoWaker};

/// What the application is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum AppState {
    /// Running a handler, or gone elsewhere.
    Busy = 0,
    /// In [`Link::wait`].
    Waiting = 1,
    /// In a wait of its own that its [`AppWaker`] ends.
    Parked = 2,
    /// In [`Link::wait`], and still awake: it finds what comes by itself.
    BusyPolling = 3,
}

/// Bounds of the queue up.
#[derive(Debug, Clone, Copy)]
pub struct QueueLimits {
    /// HTTP requests (and opening handshakes) that may wait for the application: past that the server says 503.
    /// Default 1,024: a second of work at a millisecond each, which is as long as a client should wait unasked.
    pub requests: usize,
    /// Bytes of WebSocket messages that may wait: past that the server stops reading WebSockets. Default 8 MiB: what the application
    /// deals with in a good part of a second. With what may wait for one client it bounds what one that never reads makes it hold.
    pub message_bytes: usize,
    /// WebSocket messages that may wait, likewise. Default 4,096.
    pub messages: usize,
    /// Bytes of one stream that may wait to be written, on whatever side: past that its client is too slow, and it is cut.
    /// Default 16 MiB: seconds of what a program writes, and more than a socket's buffer.
    pub stream_bytes: usize,
}

impl Default for QueueLimits {
    fn default() -> QueueLimits {
        QueueLimits {
            requests: 1024,
            message_bytes: 8 << 20,
            messages: 4096,
            stream_bytes: 16 << 20,
        }
    }
}

/// Why an event was not taken.
#[derive(Debug)]
#[non_exhaustive]
pub enum PushError {
    /// The queue of requests is full; the exchange comes back.
    Full(Box<Exchange>),
}

/// What to do after an event was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum WakeUp {
    /// Nothing.
    NotNeeded,
    /// The application is busy: call [`Link::wake_if_stalled`] in a millisecond, and until it says that all is well.
    Watch,
    /// The application waits: call [`Link::wake_waiting`] when the other connections that have something to say have said it.
    AfterBatch,
}

/// How the server sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum IoState {
    Awake = 0,
    Coalesce = 1,
    Immediate = 2,
}

/// The meeting point of a server and an application.
pub struct Link {
    limits: QueueLimits,
    up: Mutex<EventQueue>,
    arrived: Condvar,
    app_state: AtomicU8,
    app_waker: Arc<dyn AppWaker>,
    taken: AtomicU64,
    /// Whether there is a failure, for who looks without the mutex.
    has_failed: AtomicBool,
    /// Events that have been put in, for who looks without the mutex.
    put: AtomicU64,
    /// [`taken`](Self::taken) when the application last polled_at in vain.
    polled_at: AtomicU64,
    /// Whether the application may look for [`LONG_BUSY_POLL`], and whether what it waited for last had come by then.
    is_long_busy_poll_enabled: AtomicBool,
    was_last_wait_short: AtomicBool,
    down: Mutex<CommandQueue>,
    io_state: AtomicU8,
    io_waker: Mutex<Option<Arc<dyn IoWaker>>>,
    wants_capacity: AtomicBool,
    buffers: Mutex<BufferPool>,
    releases: Arc<ReleaseQueue>,
}

impl Link {
    /// Makes a link. `app_waker` is how a parked or absent application is woken.
    pub fn new(limits: QueueLimits, app_waker: Box<dyn AppWaker>) -> Arc<Link> {
        let app_waker: Arc<dyn AppWaker> = app_waker.into();
        let releases = Arc::new(ReleaseQueue::telling(Arc::clone(&app_waker)));
        Arc::new(Link {
            limits,
            up: Mutex::default(),
            arrived: Condvar::new(),
            app_state: AtomicU8::new(AppState::Busy as u8),
            app_waker,
            taken: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
            put: AtomicU64::new(0),
            polled_at: AtomicU64::new(0),
            is_long_busy_poll_enabled: AtomicBool::new(false),
            was_last_wait_short: AtomicBool::new(false),
            down: Mutex::default(),
            io_state: AtomicU8::new(IoState::Awake as u8),
            io_waker: Mutex::default(),
            wants_capacity: AtomicBool::new(false),
            buffers: Mutex::default(),
            releases,
        })
    }

    /// An empty buffer for a message.
    pub fn buffer(&self) -> Vec<u8> {
        lock(&self.buffers).take()
    }

    /// Gives a message's buffer back.
    pub fn recycle(&self, buffer: Vec<u8>) {
        if buffer_pool::is_kept(&buffer) {
            lock(&self.buffers).give(buffer);
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (up, down) = (lock(&self.up).events.len(), lock(&self.down).commands.len());
        f.debug_struct("Link")
            .field("limits", &self.limits)
            .field("up", &up)
            .field("down", &down)
            .finish_non_exhaustive()
    }
}

/// A panic while a queue was held left it whole: every critical section above is a push or a pop.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
