//! The supervisor's record of a running worker. The pool, which assigns requests to workers, uses
//! it to choose a worker.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rookery_server::static_files::{StaticFiles, StaticPath};
use rookery_status::{Counter, QueueGauge};
use rookery_worker_protocol::rings::{RingEnd, RingWakers};
use rookery_worker_protocol::{BegunRequests, Scoreboard, SharedScoreboard, Snapshot, Ticket};

use crate::worker_id::WorkerId;

/// The availability of a worker process: whether it gets new requests, and if not, why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Availability {
    /// The worker gets new requests.
    Ready = 0,
    /// The worker finishes its requests and gets no new ones.
    Draining = 1,
    /// The worker does not respond. It gets no requests until it responds again.
    Suspended = 2,
    /// The worker process has ended.
    Dead = 3,
}

/// The supervisor's record of one worker process, which the pool uses to assign requests to
/// workers. If the worker is replaced, the new process gets a `Backend` of its own.
#[derive(Debug)]
pub struct Backend {
    /// The number of the worker's slot, from 0. A slot is the place of one worker. When a worker is
    /// replaced, the new worker takes over the slot.
    pub slot: u32,
    /// The serial number of this worker process among all worker processes that the supervisor has
    /// started.
    pub epoch: u64,
    /// The process id of the worker.
    pub pid: u32,
    /// The worker's random id. Requests of a Shiny session contain it in the parameter `w=` of
    /// their URL.
    pub id: WorkerId,
    /// The folder of the worker's temporary files.
    pub folder: PathBuf,
    /// The worker's scoreboard: shared memory in which the worker publishes its state and counters.
    pub scoreboard: SharedScoreboard,
    pub(crate) availability: AtomicU8,
    is_sticky: AtomicBool,
    sees_heads: AtomicBool,
    is_violating: AtomicBool,
    /// The requests that R was processing when the worker last exceeded the worker timeout.
    pub(crate) timed_out: Mutex<BegunRequests>,
    /// The time in milliseconds within which the pool closes the worker's WebSockets before the
    /// worker ends; 0 if the worker is not about to end.
    pub(crate) session_close_time: AtomicU64,
    /// The static paths (URL prefixes that are served from files) that the worker has announced.
    pub(crate) files: StaticFiles,
    /// The front end's end of the rings to the worker, until the pool takes it.
    rings: Mutex<Option<(RingEnd, RingWakers)>>,
    /// The worker's load, as counted by the pool, which assigns requests to workers.
    pub(crate) load: Load,
}

/// The static paths of a worker: a map from each URL prefix that is served from files to its
/// settings.
pub(crate) type StaticPaths = BTreeMap<String, StaticPath>;

/// The load of a worker that results from requests and WebSockets on the supervisor's front end.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// The number of requests that the worker has received and not finished.
    pub(crate) in_flight: AtomicUsize,
    /// The total number of requests from the supervisor that R has taken or will take. Requests
    /// that R will never take are subtracted.
    pub(crate) passed: AtomicU64,
    /// The number of open streamed responses whose chunks cross in the rings.
    pub(crate) streams: AtomicU64,
    /// The number of the worker's open WebSockets.
    pub(crate) sessions: AtomicUsize,
    /// The number of requests that the worker has responded to.
    pub(crate) responses: AtomicU64,
    /// The number of sessions that are reserved for pages. A reservation lasts from the request for
    /// a page until the page opens its WebSocket.
    pub(crate) pending_sessions: Counter,
    /// The gauge that reports how many requests wait for this particular worker, and how long the
    /// oldest of them has waited.
    pub(crate) queue: QueueGauge,
}

impl AsRef<Scoreboard> for Backend {
    fn as_ref(&self) -> &Scoreboard {
        &self.scoreboard
    }
}

impl Backend {
    /// Creates the record of a worker that is ready for requests. `slot` is the number of its slot,
    /// and `epoch` its serial number among all started workers. `rings` is the front end's end of
    /// the rings to the worker.
    pub fn new(
        (slot, epoch): (u32, u64),
        pid: u32,
        id: WorkerId,
        folder: PathBuf,
        scoreboard: SharedScoreboard,
        rings: (RingEnd, RingWakers),
    ) -> Arc<Backend> {
        let availability = AtomicU8::new(Availability::Ready as u8);
        let [is_sticky, sees_heads, is_violating] = [false; 3].map(AtomicBool::new);
        Arc::new(Backend {
            slot,
            epoch,
            pid,
            id,
            folder,
            scoreboard,
            availability,
            is_sticky,
            sees_heads,
            is_violating,
            timed_out: Mutex::default(),
            session_close_time: AtomicU64::new(0),
            files: StaticFiles::new(),
            rings: Mutex::new(Some(rings)),
            load: Load::default(),
        })
    }

    /// Returns the rings that [`take_rings`](Self::take_rings) has taken.
    pub(crate) fn return_rings(&self, rings: (RingEnd, RingWakers)) {
        *self.rings.lock().unwrap_or_else(PoisonError::into_inner) = Some(rings);
    }

    /// Removes and returns the front end's end of the rings to the worker.
    pub(crate) fn take_rings(&self) -> Option<(RingEnd, RingWakers)> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Sets whether the worker's app has sessions, that is, keeps state for each client between
    /// requests.
    pub fn set_sticky(&self, is_sticky: bool) {
        self.is_sticky.store(is_sticky, Ordering::Relaxed);
    }

    /// Returns true if the worker's app has sessions, that is, keeps state for each client between
    /// requests.
    pub fn is_sticky(&self) -> bool {
        self.is_sticky.load(Ordering::Relaxed)
    }

    /// Sets whether the app inspects the head of a request, and may refuse it, before the body has
    /// been received.
    pub fn set_sees_heads(&self, sees_heads: bool) {
        self.sees_heads.store(sees_heads, Ordering::Relaxed);
    }

    /// Returns true if the app inspects the head of a request, and may refuse it, before the body
    /// has been received.
    pub fn sees_heads(&self) -> bool {
        self.sees_heads.load(Ordering::Relaxed)
    }

    /// Returns true if R was processing this request when the worker exceeded the worker timeout.
    /// The client then gets 504, even if R still responds.
    pub(crate) fn has_timed_out(&self, ticket: Ticket) -> bool {
        self.timed_out.lock().unwrap_or_else(PoisonError::into_inner).contains(ticket)
    }

    /// Returns the numbers on the worker's scoreboard. The requests that were passed to R include
    /// those in the rings, and so do its streams.
    pub(crate) fn read_scoreboard(&self) -> Snapshot {
        let snapshot = self.scoreboard.read();
        // Read later, so that R has not taken more requests than were passed to it.
        let handed = snapshot.handed.saturating_add(self.load.passed.load(Ordering::Acquire));
        let streams = snapshot.streams.saturating_add(self.load.streams.load(Ordering::Relaxed));
        Snapshot { handed, streams, ..snapshot }
    }

    /// Records that the worker has written something to the rings that the protocol does not allow.
    pub(crate) fn set_violating(&self) {
        self.is_violating.store(true, Ordering::Relaxed);
    }

    /// Returns true if the worker has violated the protocol, so that it must be killed.
    pub fn is_violating(&self) -> bool {
        self.is_violating.load(Ordering::Relaxed)
    }

    /// Returns the time within which the worker's WebSockets are to be closed before the worker
    /// ends. Returns `None` if the worker is not about to end.
    pub(crate) fn session_close_time(&self) -> Option<Duration> {
        let time = self.session_close_time.load(Ordering::Acquire);
        (time > 0).then(|| Duration::from_millis(time))
    }

    /// Returns whether the worker gets new requests, and if not, why.
    pub fn availability(&self) -> Availability {
        match self.availability.load(Ordering::Acquire) {
            0 => Availability::Ready,
            1 => Availability::Draining,
            2 => Availability::Suspended,
            _ => Availability::Dead,
        }
    }

    /// Returns the worker's number of unfinished requests and its number of open WebSockets.
    pub fn load(&self) -> (usize, usize) {
        let Load { in_flight, sessions, .. } = &self.load;
        (in_flight.load(Ordering::Relaxed), sessions.load(Ordering::Relaxed))
    }

    /// Returns the number of requests that the worker has responded to.
    pub fn responses(&self) -> u64 {
        self.load.responses.load(Ordering::Relaxed)
    }

    pub(crate) fn static_paths(&self) -> StaticPaths {
        self.files.paths().into_iter().collect()
    }
}
