//! The link between the server and the application. It contains a queue of events for the
//! application and a queue of commands for the server, and decides when one side wakes the other.
//!
//! # Waking the application
//! An event wakes the application only if the queue was empty before. How the application is woken
//! depends on what it is doing ([`AppState`]):
//!
//! - If it waits in [`Link::wait`], it is woken once the server has read all connections that are
//!   ready now ([`Link::wake_waiting`]), so that it finds several events at once.
//! - If it waits outside the link and has announced this, its [`AppWaker`] is called at once.
//! - If it is busy, it is not woken at once. If it has still taken no event a millisecond later,
//!   its [`AppWaker`] is called ([`Link::wake_if_stalled`]), because it may have begun to wait
//!   outside the link without announcing this.
//!
//! # Waking the server
//! A sleeping server is not woken for each command, so that one wake-up delivers several commands.
//! It is woken by the first of these:
//!
//! - The application finds no further event ([`Link::next`]).
//! - The application sends a command while the oldest command has waited for 0.1 ms
//!   ([`WakeSchedule`]).
//! - A timer that the first command has set ([`IoWaker::wake_within`]) expires after 0.5 ms. If the
//!   timer cannot be set, the first command wakes the server at once. Without either, the command
//!   would wait for seconds if the application computes that long after sending it.
//!
//! If the application has taken no event for a millisecond or longer, the server sleeps in
//! [`IoState::Immediate`]. Every command then wakes it at once.
//!
//! # Why no wake-up is lost
//! A side that is about to sleep first publishes this, and then checks its queue for the last time.
//! The other side first adds its item to the queue, and then reads whether the first side sleeps.
//! Both lock the queue's mutex to access the queue. Whichever side locks it second sees what the
//! other side did.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};

mod adaptive_yield;
mod application_side;
mod buffer_pool;
mod queues;
mod server_side;
mod wake_schedule;

pub use self::adaptive_yield::AdaptiveYield;
pub use self::buffer_pool::BufferPool;
use rookery_fairness::Load;
use rookery_system::lock;

use self::queues::{CommandQueue, EventQueue};
pub use self::wake_schedule::WakeSchedule;
use crate::exchange::Exchange;
use crate::payload::ReleaseQueue;
use crate::wakers::{AppWaker, IoWaker, SideQueue};

/// The current activity of the application, which tells the server how to wake it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum AppState {
    /// The application is busy: it runs a handler, or waits for something outside the link.
    Busy = 0,
    /// The application sleeps in [`Link::wait`] until an event arrives.
    Waiting = 1,
    /// The application waits in a way of its own, outside [`Link::wait`]. Its [`AppWaker`] ends
    /// that wait.
    Parked = 2,
    /// The application polls the queue of events in [`Link::wait`] without sleeping, so it needs no
    /// wake-up.
    BusyPolling = 3,
}

/// Limits for the data that waits between server and application: the queue of events, and the
/// chunks of each streamed response.
#[derive(Debug, Clone, Copy)]
pub struct QueueLimits {
    /// The maximum number of HTTP requests and opening handshakes that wait for the application.
    /// At this number, the server responds with status 503 to a further request, or to the
    /// newest request of a client that has more of them. A network of which no request waits may
    /// add one until twice as many wait. The default is 1,024.
    pub max_queued_requests: usize,
    /// The number of bytes in WebSocket messages that wait for the application at which the queue
    /// is full ([`FairQueue::admits_message`](crate::FairQueue::admits_message)). The server then
    /// stops reading from WebSockets. The default is 8 MiB.
    pub ws_max_receive_queue_size: usize,
    /// The number of WebSocket messages that wait for the application at which the queue is full.
    /// The server then stops reading from WebSockets. The default is 4,096.
    pub ws_max_receive_queue_messages: usize,
    /// The maximum number of bytes of one streamed response that wait to be written to the client.
    /// If a response exceeds this limit, it is aborted, because the client is too slow. The default
    /// is 16 MiB.
    pub max_stream_queue_size: usize,
}

impl QueueLimits {
    /// Returns the load at which the queue of events is full.
    pub(crate) fn load(&self) -> Load {
        Load {
            requests: self.max_queued_requests,
            messages: self.ws_max_receive_queue_messages,
            bytes: self.ws_max_receive_queue_size,
        }
    }
}

impl Default for QueueLimits {
    fn default() -> QueueLimits {
        QueueLimits {
            max_queued_requests: 1024,
            ws_max_receive_queue_size: 8 << 20,
            ws_max_receive_queue_messages: 4096,
            max_stream_queue_size: 16 << 20,
        }
    }
}

/// The error that [`Link::push`] returns if the queue does not accept an event.
#[derive(Debug)]
#[non_exhaustive]
pub enum PushError {
    /// The queue already contains the maximum number of requests. Gives the [`Exchange`]
    /// of the rejected request back to the caller.
    Full(Box<Exchange>),
    /// The queue contains the maximum number of requests. It has accepted the request, and has
    /// dropped an earlier request of a client that had more requests in the queue.
    Displaced {
        /// The exchange of the earlier request.
        exchange: Box<Exchange>,
        /// How the caller has to wake the application.
        wake_up: WakeUp,
    },
}

/// The action by which the server still has to wake the application after it has added an event to
/// the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum WakeUp {
    /// The application needs no wake-up.
    NotNeeded,
    /// The application is busy. Call [`Link::wake_if_stalled`] after a millisecond, and again until
    /// it returns `None`.
    Watch,
    /// The application is waiting. Call [`Link::wake_waiting`] after the events of all other ready
    /// connections have been pushed.
    AfterBatch,
}

/// The state of the server's thread: awake, or asleep and to be woken by a command at once or after
/// a short delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum IoState {
    /// The server is awake and checks for commands without being woken.
    Awake = 0,
    /// The server sleeps. Commands may wait a short time, so that one wake-up delivers several of
    /// them.
    Coalesce = 1,
    /// The server sleeps. The next command wakes it at once.
    Immediate = 2,
}

/// The link between a server and an application. It contains their queues of events and commands,
/// and the state that tells each side how to wake the other.
pub struct Link {
    limits: QueueLimits,
    up: Mutex<EventQueue>,
    arrived: Condvar,
    app_state: AtomicU8,
    app_waker: Arc<dyn AppWaker>,
    taken: AtomicU64,
    /// Whether the server's thread has failed.
    has_failed: AtomicBool,
    /// The total number of events that the server has added to the event queue.
    put: AtomicU64,
    /// The total number of events that the application had [taken](Self::taken) when it last polled
    /// the queue and found no event.
    polled_at: AtomicU64,
    /// Decides whether a waiting application polls before it sleeps.
    polls: AdaptiveYield,
    /// Whether a waiting application may busy-poll for `LONG_BUSY_POLL` (200 µs) before it sleeps.
    is_long_busy_poll_enabled: AtomicBool,
    /// Whether the application's last wait for an event took less than `LONG_BUSY_POLL` (200 µs).
    was_last_wait_short: AtomicBool,
    down: Mutex<CommandQueue>,
    io_state: AtomicU8,
    io_waker: Mutex<Option<Arc<dyn IoWaker>>>,
    /// Whether the server waits until the queue of events accepts WebSocket messages again.
    wants_capacity: AtomicBool,
    buffers: Mutex<BufferPool>,
    releases: Arc<ReleaseQueue>,
    /// The queue of a worker's requests from the supervisor, if there is one.
    side: OnceLock<Arc<dyn SideQueue>>,
    /// The number of events that the application has taken from `side`.
    side_taken: AtomicU64,
}

impl Link {
    /// Creates a link between a server and an application. `app_waker` wakes the application while
    /// it is not waiting in [`Link::wait`].
    pub fn new(limits: QueueLimits, app_waker: Box<dyn AppWaker>) -> Arc<Link> {
        let app_waker: Arc<dyn AppWaker> = app_waker.into();
        let releases = Arc::new(ReleaseQueue::with_waker(Arc::clone(&app_waker)));
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
            polls: AdaptiveYield::default(),
            is_long_busy_poll_enabled: AtomicBool::new(false),
            was_last_wait_short: AtomicBool::new(false),
            down: Mutex::default(),
            io_state: AtomicU8::new(IoState::Awake as u8),
            io_waker: Mutex::default(),
            wants_capacity: AtomicBool::new(false),
            buffers: Mutex::default(),
            releases,
            side: OnceLock::new(),
            side_taken: AtomicU64::new(0),
        })
    }

    /// Makes the application wait for the events of `side` as well. Must be called before the
    /// application waits.
    pub fn set_side_queue(&self, side: Arc<dyn SideQueue>) {
        let _ = self.side.set(side);
    }

    /// Counts an event that the application has taken from the side queue.
    pub fn count_taken_from_side(&self) {
        self.side_taken.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the total number of events that the application has taken from both queues.
    pub fn all_taken(&self) -> u64 {
        self.taken() + self.side_taken.load(Ordering::Relaxed)
    }

    fn has_side_events(&self) -> bool {
        self.side.get().is_some_and(|side| side.has_events())
    }

    /// Returns an empty buffer for a message, from the pool of unused buffers if there is one.
    pub fn buffer(&self) -> Vec<u8> {
        lock(&self.buffers).take()
    }

    /// Returns the buffer of a message to the pool for reuse.
    pub fn recycle(&self, buffer: Vec<u8>) {
        lock(&self.buffers).give(buffer);
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

#[cfg(test)]
mod side_model;
#[cfg(test)]
mod tests;
