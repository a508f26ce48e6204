//! The registry of running workers. Through it, the supervisor shares what it knows about them with
//! the pool, which assigns requests to workers.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rookery_server::session_cookie::SessionCookie;
use rookery_server::static_files::{Overrides, StaticFiles, StaticPath};
use rookery_status::RecentErrors;
use rookery_trace::Tracer;
use rookery_worker_protocol::RouteTable;
use tokio::sync::Notify;

use crate::backend::{Availability, Backend, StaticPaths};
use crate::pool_counters::PoolCounters;
use crate::report::SharedReport;

/// Returns the static paths (URL prefixes that are served from files) that the supervisor's front
/// end serves. `announced` contains the paths that each worker has announced. If the settings of a
/// path differ between workers, the front end does not serve it, and requests for it are sent to a
/// worker.
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
    /// The tracer of the front end, which also records the starts of workers; not set if nothing is
    /// traced.
    tracer: OnceLock<Arc<Tracer>>,
    /// The metrics by route of the requests over connections that the front end has accepted. The
    /// front end's I/O thread writes them.
    pub(crate) routes: Arc<RouteTable>,
    /// The state of the supervisor and its workers, as the status page and the metrics report it.
    pub(crate) report: SharedReport,
    /// The last errors in the R code of all workers.
    pub(crate) errors: RecentErrors,
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

    /// Sets the tracer that records the starts of workers. Further calls have no effect.
    pub fn set_tracer(&self, tracer: Arc<Tracer>) {
        let _ = self.tracer.set(tracer);
    }

    /// Returns the tracer of the front end, if there is one.
    pub(crate) fn tracer(&self) -> Option<&Tracer> {
        self.tracer.get().map(|tracer| &**tracer)
    }

    /// Returns a session cookie that names the worker with this slot and epoch (serial number), or
    /// `None` if sessions have no cookie.
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

    /// Removes a worker that has ended from the registry. The worker must no longer be able to
    /// write to its [`Scoreboard`](rookery_worker_protocol::Scoreboard), which tells the pool the
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
    /// are the same in all workers, including draining ones.
    fn publish_static_paths(&self, backends: &[Arc<Backend>]) {
        let announced: Vec<_> =
            backends.iter().map(|backend| backend.lock_static_paths()).collect();
        let announced: Vec<&StaticPaths> = announced.iter().map(|paths| &**paths).collect();
        let common = common_static_paths(&announced);
        for (backend, own) in backends.iter().zip(&announced) {
            backend
                .set_serves_own_files(own.iter().any(|(key, path)| common.get(key) != Some(path)));
        }
        // The paths were checked when they were read. If they are refused nevertheless, the workers
        // serve them.
        if self.files.replace(common).is_err() {
            let _ = self.files.replace(StaticPaths::new());
            for (backend, own) in backends.iter().zip(&announced) {
                backend.set_serves_own_files(!own.is_empty());
            }
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

    /// Returns the URL prefixes that the front end serves, each with its folder. Each list in
    /// `announced` is announced by one worker. The folder `-` means that the prefix is excluded.
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
