//! The registry of running workers. Through it, the supervisor shares what it knows about them with
//! the pool, which assigns requests to workers.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rookery_server::session_cookie::SessionCookie;
use rookery_server::static_files::{Overrides, StaticFiles, StaticPath};
use rookery_status::Counter;
use rookery_worker_protocol::{BegunRequests, SharedScoreboard, Ticket};
use tokio::sync::Notify;

use crate::pool_counters::{InFlightRoutes, PoolCounters, QueueGauge};
use crate::report::SharedReport;
use crate::worker_id::WorkerId;

/// Whether a worker process gets new requests, and if not, why.
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

/// One worker process, as the pool sees it, which assigns requests to workers. If the worker is
/// replaced, the new process is another `Backend`.
#[derive(Debug)]
pub struct Backend {
    /// The number of the worker's slot, from 0. When a worker is replaced, the new worker takes
    /// over the slot.
    pub slot: u32,
    /// The serial number of this worker process among all worker processes that the supervisor has
    /// started.
    pub epoch: u64,
    /// The process id of the worker.
    pub pid: u32,
    /// The random id by which URLs name the worker, in the parameter `w=` of the requests of a
    /// Shiny session.
    pub id: WorkerId,
    /// The path of the Unix socket that the worker listens on.
    pub socket: PathBuf,
    /// The worker's scoreboard: shared memory in which the worker publishes its state and counters.
    pub scoreboard: SharedScoreboard,
    availability: AtomicU8,
    is_sticky: AtomicBool,
    sees_heads: AtomicBool,
    /// The requests that R was processing when the worker last exceeded the worker timeout.
    timed_out: Mutex<BegunRequests>,
    /// The time in milliseconds within which the pool closes the worker's WebSockets before the
    /// worker ends; 0 if the worker is not about to end.
    session_close_time: AtomicU64,
    /// The static paths (URL prefixes that are served from files) that the worker has announced.
    static_paths: Mutex<StaticPaths>,
    /// The worker's load, as counted by the pool, which assigns requests to workers.
    pub(crate) load: Load,
}

/// The static paths of a worker: a map from each URL prefix that is served from files to its
/// settings.
type StaticPaths = BTreeMap<String, StaticPath>;

/// The load of a worker, as far as it results from requests that the supervisor's front end has
/// accepted.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// The number of requests that the worker has received and not finished.
    pub(crate) in_flight: AtomicUsize,
    /// The number of the worker's open WebSockets.
    pub(crate) sessions: AtomicUsize,
    /// The number of requests that the worker has responded to.
    pub(crate) responses: AtomicU64,
    /// The number of sessions that are reserved for pages from this worker, because they have not
    /// yet opened their WebSocket.
    pub(crate) pending_sessions: Counter,
    /// The gauge of the queue of requests that only this worker can process.
    pub(crate) queue: QueueGauge,
    /// The methods and paths of the requests to which the worker has not responded.
    pub(crate) routes: InFlightRoutes,
}

impl Backend {
    /// Creates the registry entry of a worker that is ready for requests. `slot` is the number of
    /// its slot, and `epoch` its serial number among all started workers.
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

    /// Sets whether the worker's app keeps state of each client from one request to the next
    /// (sessions).
    pub fn set_sticky(&self, is_sticky: bool) {
        self.is_sticky.store(is_sticky, Ordering::Relaxed);
    }

    /// Returns true if the worker's app keeps state of each client from one request to the next
    /// (sessions).
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

    /// Returns the worker's number of unfinished requests and its number of open WebSockets. Only
    /// the number of WebSockets includes connections that the worker itself has accepted.
    pub fn load(&self) -> (usize, usize) {
        let Load { in_flight, sessions, .. } = &self.load;
        let own = usize::try_from(self.scoreboard.read().sessions).unwrap_or(usize::MAX);
        (in_flight.load(Ordering::Relaxed), sessions.load(Ordering::Relaxed).max(own))
    }

    /// Returns the number of open connections, including WebSockets, that were accepted by the
    /// worker itself and not by the supervisor.
    pub fn connections(&self) -> usize {
        usize::try_from(self.scoreboard.read().connections).unwrap_or(usize::MAX)
    }

    /// Returns the number of requests that the worker has responded to, including those on
    /// connections that the worker itself has accepted.
    pub fn responses(&self) -> u64 {
        self.load.responses.load(Ordering::Relaxed).max(self.scoreboard.read().done)
    }

    fn lock_static_paths(&self) -> MutexGuard<'_, StaticPaths> {
        self.static_paths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the static paths (URL prefixes that are served from files) that the supervisor's front
/// end serves. `announced` contains the paths that each worker has announced. A path that differs
/// between workers is excluded, and its requests are sent to a worker.
fn common_static_paths(announced: &[&StaticPaths]) -> StaticPaths {
    let excluded = || StaticPath {
        path: PathBuf::new(),
        overrides: Overrides { exclude: Some(true), ..Overrides::default() },
    };
    let keys = announced.iter().flat_map(|paths| paths.keys());
    keys.map(|key| {
        let first = announced[0].get(key);
        let is_common = announced.iter().all(|paths| paths.get(key) == first);
        let path = first.filter(|_| is_common).cloned().unwrap_or_else(excluded);
        (key.clone(), path)
    })
    .collect()
}

/// A trait for creating session cookies, each of which names a worker.
pub(crate) trait CookieFactory: Send + Sync {
    fn cookie(&self, slot: u32, epoch: u64) -> SessionCookie;
}

/// The registry of the running workers, which the supervisor shares with the pool (the part that
/// assigns requests to workers).
#[derive(Default)]
pub struct BackendRegistry {
    /// The creator of session cookies; not set if sessions have no cookie.
    cookie_factory: OnceLock<Box<dyn CookieFactory>>,
    backends: Mutex<Vec<Arc<Backend>>>,
    /// The notification that a worker has been added, removed or changed.
    pub(crate) changed: Notify,
    /// The static paths (URL prefixes that are served from files) that the front end serves,
    /// because they are the same in all workers.
    files: StaticFiles,
    /// The counters of the pool, which assigns requests to workers.
    pub(crate) counters: PoolCounters,
    /// The state of the supervisor and its workers, as the status page and the metrics report it.
    pub(crate) report: SharedReport,
}

impl fmt::Debug for BackendRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackendRegistry").field("backends", &self.backends).finish_non_exhaustive()
    }
}

impl BackendRegistry {
    /// Sets the object that creates session cookies. Further calls have no effect.
    pub(crate) fn set_cookie_factory(&self, factory: Box<dyn CookieFactory>) {
        let _ = self.cookie_factory.set(factory);
    }

    /// Returns a session cookie that names the worker with this slot and epoch, or `None` if
    /// sessions have no cookie.
    pub(crate) fn cookie(&self, slot: u32, epoch: u64) -> Option<SessionCookie> {
        Some(self.cookie_factory.get()?.cookie(slot, epoch))
    }

    /// Adds a worker that is ready for requests to the registry.
    pub fn add(&self, backend: &Arc<Backend>) {
        let mut backends = self.lock();
        backends.push(Arc::clone(backend));
        self.publish_static_paths(&backends);
        drop(backends);
        self.changed.notify_one();
    }

    /// Drains a worker, so that it finishes its requests and gets no new ones.
    pub fn drain(&self, backend: &Backend) {
        let from = [Availability::Ready, Availability::Suspended];
        self.transition(backend, &from, Availability::Draining);
    }

    /// Suspends a worker, so that it gets no requests until [`resume`](Self::resume).
    pub fn suspend(&self, backend: &Backend) {
        self.transition(backend, &[Availability::Ready], Availability::Suspended);
    }

    /// Suspends a worker whose R process has been busy with one task for too long. The requests
    /// that R was processing get 504.
    pub fn time_out(&self, backend: &Backend) {
        let begun = backend.scoreboard.begun_requests();
        *backend.timed_out.lock().unwrap_or_else(PoisonError::into_inner) = begun;
        self.suspend(backend);
    }

    /// Makes a suspended worker ready for requests again.
    pub fn resume(&self, backend: &Backend) {
        self.transition(backend, &[Availability::Suspended], Availability::Ready);
    }

    /// Changes the availability of a worker to `to` if its current availability is in `from`.
    /// Otherwise it does nothing, so that, for example, a dead worker stays dead.
    fn transition(&self, backend: &Backend, from: &[Availability], to: Availability) {
        for from in from {
            let (from, to) = (*from as u8, to as u8);
            let _ = backend.availability.compare_exchange(
                from,
                to,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
        }
        self.changed.notify_one();
    }

    /// Makes the pool close the WebSockets of a worker one after the other, within the given time.
    /// After this time the worker will end.
    pub fn close_sessions(&self, backend: &Backend, within: Duration) {
        let time = (within.as_millis() as u64).max(1);
        if backend.session_close_time.swap(time, Ordering::AcqRel) == 0 {
            self.changed.notify_one();
        }
    }

    /// Removes a worker that has ended from the registry. Call it only when the worker can no
    /// longer write to its [`Scoreboard`](rookery_worker_protocol::Scoreboard), which shows the
    /// requests that R had begun.
    pub fn remove(&self, backend: &Backend) {
        backend.availability.store(Availability::Dead as u8, Ordering::Release);
        let mut backends = self.lock();
        backends.retain(|other| other.epoch != backend.epoch);
        self.publish_static_paths(&backends);
        drop(backends);
        self.changed.notify_one();
    }

    /// Returns a handle to the static paths (URL prefixes that are served from files) that the
    /// front end serves. The handle always refers to the current paths.
    pub fn files(&self) -> StaticFiles {
        self.files.clone()
    }

    /// Replaces the static paths (URL prefixes that are served from files) that a worker has
    /// announced. They take effect once the worker has been added to the registry.
    pub fn set_static_paths(&self, backend: &Backend, paths: BTreeMap<String, StaticPath>) {
        let backends = self.lock();
        *backend.lock_static_paths() = paths;
        self.publish_static_paths(&backends);
    }

    /// Makes the front end serve the static paths (URL prefixes that are served from files) that
    /// all workers have in common, including draining workers.
    fn publish_static_paths(&self, backends: &[Arc<Backend>]) {
        let announced: Vec<_> =
            backends.iter().map(|backend| backend.lock_static_paths()).collect();
        let announced: Vec<&StaticPaths> = announced.iter().map(|paths| &**paths).collect();
        // The paths were checked when they were read. If they are refused nevertheless, the workers
        // serve them.
        if self.files.replace(common_static_paths(&announced)).is_err() {
            let _ = self.files.replace(StaticPaths::new());
        }
    }

    /// Returns all workers in the registry. A worker is in the registry until it has ended.
    pub fn backends(&self) -> Vec<Arc<Backend>> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Backend>>> {
        self.backends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(list: &[(&str, &str)]) -> StaticPaths {
        let path = |path: &str| StaticPath { path: path.into(), ..StaticPath::default() };
        list.iter().map(|(key, at)| ((*key).to_owned(), path(at))).collect()
    }

    /// Returns the URL prefixes that the front end serves, each with its folder. The folder `-`
    /// means that the prefix is excluded.
    fn served(announced: &[&[(&str, &str)]]) -> Vec<(String, String)> {
        let announced: Vec<_> = announced.iter().map(|list| paths(list)).collect();
        let announced: Vec<_> = announced.iter().collect();
        let at = |path: StaticPath| match path.overrides.exclude {
            Some(true) => "-".to_owned(),
            _ => path.path.display().to_string(),
        };
        common_static_paths(&announced).into_iter().map(|(key, path)| (key, at(path))).collect()
    }

    #[test]
    fn excludes_paths_that_differ_between_workers() {
        let pairs = |list: &[(&str, &str)]| {
            list.iter().map(|(key, at)| ((*key).to_owned(), (*at).to_owned())).collect::<Vec<_>>()
        };
        assert!(served(&[]).is_empty());
        assert!(served(&[&[], &[]]).is_empty());
        assert_eq!(served(&[&[("/", "/w"), ("/a", "/x")]]), pairs(&[("/", "/w"), ("/a", "/x")]));
        let same: &[_] = &[("/", "/w")];
        assert_eq!(served(&[same, same, same]), pairs(same));
        // A path with another folder or none is excluded, and the shorter path does not apply.
        assert_eq!(
            served(&[&[("/", "/w"), ("/a", "/1")], &[("/", "/w"), ("/a", "/2")]]),
            pairs(&[("/", "/w"), ("/a", "-")])
        );
        assert_eq!(
            served(&[&[("/", "/w")], &[("/", "/w"), ("/a", "/2")]]),
            pairs(&[("/", "/w"), ("/a", "-")])
        );
        // A worker that has announced nothing serves everything itself.
        assert_eq!(served(&[same, &[]]), pairs(&[("/", "-")]));
    }
}
