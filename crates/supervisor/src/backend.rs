//! A running worker, as the pool sees it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rookery_server::static_files::StaticPath;
use rookery_status::Counter;
use rookery_worker_protocol::{BegunRequests, SharedScoreboard, Ticket};

use crate::pool_counters::{InFlightRoutes, QueueGauge};
use crate::worker_id::WorkerId;

/// Whether a worker gets new requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Availability {
    /// The worker gets requests.
    Ready = 0,
    /// The worker finishes its requests and gets no new ones.
    Draining = 1,
    /// The worker does not respond and gets no requests until it does.
    Suspended = 2,
    /// The worker has ended.
    Dead = 3,
}

/// A start of a worker, as the pool sees it.
#[derive(Debug)]
pub struct Backend {
    /// The number of the worker's slot, from 0, which the next start of the worker takes over.
    pub slot: u32,
    /// The number of this start among all starts of workers.
    pub epoch: u64,
    /// The process id of the worker.
    pub pid: u32,
    /// The id of the worker in the URLs of its sessions.
    pub id: WorkerId,
    /// The path of the Unix socket that the worker listens on.
    pub socket: PathBuf,
    /// The scoreboard that the worker writes.
    pub scoreboard: SharedScoreboard,
    pub(crate) availability: AtomicU8,
    is_sticky: AtomicBool,
    sees_heads: AtomicBool,
    /// The requests that R had begun when the worker exceeded the worker timeout last.
    pub(crate) timed_out: Mutex<BegunRequests>,
    /// The time in milliseconds within which the worker's WebSockets are to be closed; 0 if they
    /// stay open.
    pub(crate) session_close_time: AtomicU64,
    /// The static paths that the worker has announced.
    static_paths: Mutex<StaticPaths>,
    /// The load that the pool counts.
    pub(crate) load: Load,
}

/// Static paths by their keys.
pub(crate) type StaticPaths = BTreeMap<String, StaticPath>;

/// The load of a worker, as far as it comes through the front end.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// The number of requests that the worker has and that have not been finished.
    pub(crate) in_flight: AtomicUsize,
    /// The number of open WebSockets.
    pub(crate) sessions: AtomicUsize,
    /// The number of requests that the worker has responded to.
    pub(crate) responses: AtomicU64,
    /// The number of pages from the worker whose WebSocket has not been opened.
    pub(crate) pending_sessions: Counter,
    /// The requests that wait for this worker only.
    pub(crate) queue: QueueGauge,
    /// The routes of the requests that the worker has not responded to.
    pub(crate) routes: InFlightRoutes,
}

impl Backend {
    /// Creates a backend that is ready, from its slot and epoch and its process id.
    pub fn new(
        (slot, epoch): (u32, u64),
        pid: u32,
        id: WorkerId,
        socket: PathBuf,
        scoreboard: SharedScoreboard,
    ) -> Arc<Backend> {
        let availability = AtomicU8::new(Availability::Ready as u8);
        let [is_sticky, sees_heads] = [false; 2].map(AtomicBool::new);
        Arc::new(Backend {
            slot,
            epoch,
            pid,
            id,
            socket,
            scoreboard,
            availability,
            is_sticky,
            sees_heads,
            timed_out: Mutex::default(),
            session_close_time: AtomicU64::new(0),
            static_paths: Mutex::default(),
            load: Load::default(),
        })
    }

    /// Sets whether the app has sessions, which are state of a client that lasts between requests.
    pub fn set_sticky(&self, is_sticky: bool) {
        self.is_sticky.store(is_sticky, Ordering::Relaxed);
    }

    /// Returns true if the app has sessions.
    pub fn is_sticky(&self) -> bool {
        self.is_sticky.load(Ordering::Relaxed)
    }

    /// Sets whether the app may refuse a request before its body has been received.
    pub fn set_sees_heads(&self, sees_heads: bool) {
        self.sees_heads.store(sees_heads, Ordering::Relaxed);
    }

    /// Returns true if the app may refuse a request before its body has been received.
    pub fn sees_heads(&self) -> bool {
        self.sees_heads.load(Ordering::Relaxed)
    }

    /// Returns true if R had begun this request when the worker exceeded the worker timeout. The
    /// request then gets 504, whatever R responds after it has been interrupted.
    pub(crate) fn has_timed_out(&self, ticket: Ticket) -> bool {
        self.timed_out.lock().unwrap_or_else(PoisonError::into_inner).contains(ticket)
    }

    /// Returns the time within which the worker's WebSockets are to be closed; `None` if they stay
    /// open.
    pub(crate) fn session_close_time(&self) -> Option<Duration> {
        let time = self.session_close_time.load(Ordering::Acquire);
        (time > 0).then(|| Duration::from_millis(time))
    }

    /// Returns whether the worker gets new requests.
    pub fn availability(&self) -> Availability {
        match self.availability.load(Ordering::Acquire) {
            0 => Availability::Ready,
            1 => Availability::Draining,
            2 => Availability::Suspended,
            _ => Availability::Dead,
        }
    }

    /// Returns the number of unfinished requests that came through the front end, and the number of
    /// all WebSockets.
    pub fn load(&self) -> (usize, usize) {
        let Load { in_flight, sessions, .. } = &self.load;
        let own = usize::try_from(self.scoreboard.read().sessions).unwrap_or(usize::MAX);
        (in_flight.load(Ordering::Relaxed), sessions.load(Ordering::Relaxed).max(own))
    }

    /// Returns the number of open connections that the worker has accepted itself, including
    /// WebSockets.
    pub fn connections(&self) -> usize {
        usize::try_from(self.scoreboard.read().connections).unwrap_or(usize::MAX)
    }

    /// Returns the number of requests that the worker has responded to, including those on
    /// connections that it has accepted itself.
    pub fn responses(&self) -> u64 {
        self.load.responses.load(Ordering::Relaxed).max(self.scoreboard.read().done)
    }

    pub(crate) fn lock_static_paths(&self) -> MutexGuard<'_, StaticPaths> {
        self.static_paths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
