//! The registry of running workers. Through it, the supervisor shares what it knows about them with
//! the pool, which assigns requests to workers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rookery_server::static_files::{StaticFiles, StaticPath};
use rookery_status::{PoolCounters, RecentErrors};
use rookery_trace::Tracer;
use rookery_worker_protocol::{RouteTable, ShinySessions};
use tokio::sync::Notify;

use crate::backend::{Availability, Backend, StaticPaths};
use crate::state::SharedState;

/// The static paths (URL prefixes that are served from files) that the front end serves, as the
/// last change of a worker has set them. Each of them is a path of a worker that still serves.
#[derive(Debug, Default)]
struct LastPaths(StaticPaths);

impl LastPaths {
    /// Applies the change of one worker's paths.
    fn change(&mut self, before: &StaticPaths, now: &StaticPaths) {
        self.0.retain(|key, _| !before.contains_key(key) || now.contains_key(key));
        let changed = now.iter().filter(|(key, path)| before.get(*key) != Some(*path));
        self.0.extend(changed.map(|(key, path)| (key.clone(), path.clone())));
    }

    /// Replaces the paths that no worker has any more by those of other workers with the same key.
    fn keep_only(&mut self, announced: &[&StaticPaths]) {
        self.0.retain(|key, path| {
            let mut others = announced.iter().filter_map(|paths| paths.get(key)).peekable();
            let first = others.peek().copied();
            if others.all(|other| other != path) {
                first.inspect(|first| path.clone_from(first));
            }
            first.is_some()
        });
    }
}

/// The registry of the running workers, which the supervisor shares with the pool (the part that
/// assigns requests to workers).
#[derive(Default)]
pub struct BackendRegistry {
    backends: Mutex<(Vec<Arc<Backend>>, LastPaths)>,
    /// The notification that a worker has been added, removed or changed.
    pub(crate) changed: Notify,
    /// The static paths (URL prefixes that are served from files) that the front end serves for
    /// requests that name no worker.
    files: StaticFiles,
    /// Whether the static paths differ between workers.
    has_different_files: AtomicBool,
    /// Whether no worker begins a further request, because the server ends.
    is_ending: AtomicBool,
    /// The counters of the pool, which assigns requests to workers.
    pub(crate) counters: Arc<PoolCounters>,
    /// The tracer of the front end, which also records the starts of workers; not set if nothing is
    /// traced.
    tracer: OnceLock<Arc<Tracer>>,
    /// The metrics by route of the requests over connections that the front end has accepted. The
    /// front end's I/O thread writes them.
    pub(crate) routes: Arc<RouteTable>,
    /// The sessions of Shiny whose WebSockets the front end has accepted. The front end's I/O
    /// thread writes them.
    pub(crate) sessions: Arc<ShinySessions>,
    /// The state of the supervisor and its workers, as the status page and the metrics report it.
    pub(crate) state: SharedState,
    /// The last errors in the R code of all workers.
    pub(crate) errors: RecentErrors,
}

impl fmt::Debug for BackendRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackendRegistry").field("backends", &self.backends).finish_non_exhaustive()
    }
}

impl BackendRegistry {
    /// Sets the tracer that records the starts of workers. Further calls have no effect.
    pub fn set_tracer(&self, tracer: Arc<Tracer>) {
        let _ = self.tracer.set(tracer);
    }

    /// Returns the tracer of the front end, if there is one.
    pub(crate) fn tracer(&self) -> Option<&Tracer> {
        self.tracer.get().map(|tracer| &**tracer)
    }

    /// Adds a worker that is ready for requests to the registry.
    pub fn add(&self, backend: &Arc<Backend>) {
        let mut lock = self.lock();
        lock.0.push(Arc::clone(backend));
        lock.1.change(&StaticPaths::new(), &backend.static_paths());
        self.publish_static_paths(&mut lock);
        drop(lock);
        self.changed.notify_one();
    }

    /// Drains a worker, so that it finishes its requests and gets no new ones.
    pub fn drain(&self, backend: &Backend) {
        let from = [Availability::Ready, Availability::Suspended];
        self.transition(backend, &from, Availability::Draining);
        self.publish_static_paths(&mut self.lock());
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

    /// Makes the pool refuse the requests that wait for a worker, and all later ones, with 503,
    /// because the server ends.
    pub fn refuse_requests(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Returns true if the pool must refuse the requests that wait for a worker.
    pub(crate) fn refuses_requests(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
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
        let mut lock = self.lock();
        lock.0.retain(|other| other.epoch != backend.epoch);
        self.publish_static_paths(&mut lock);
        drop(lock);
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
        let mut lock = self.lock();
        let before = backend.static_paths();
        // The paths were checked when they were read.
        if backend.files.replace(paths).is_err() {
            return;
        }
        if lock.0.iter().any(|other| other.epoch == backend.epoch) {
            lock.1.change(&before, &backend.static_paths());
            self.publish_static_paths(&mut lock);
        }
    }

    /// Makes the front end serve the static paths (URL prefixes that are served from files) of the
    /// workers. Those of draining workers apply only to the requests that name these workers.
    fn publish_static_paths(&self, (backends, last): &mut (Vec<Arc<Backend>>, LastPaths)) {
        let is_staying = |it: &&Arc<Backend>| it.availability() != Availability::Draining;
        let paths = |backend: &Arc<Backend>| backend.static_paths();
        let mut announced: Vec<_> = backends.iter().filter(is_staying).map(paths).collect();
        if announced.is_empty() {
            announced = backends.iter().map(paths).collect();
        }
        last.keep_only(&announced.iter().collect::<Vec<_>>());
        let is_different = backends.iter().any(|backend| backend.static_paths() != last.0);
        self.has_different_files.store(is_different, Ordering::Relaxed);
        let _ = self.files.replace(last.0.clone());
    }

    /// Returns true if the static paths differ between workers.
    pub(crate) fn has_different_files(&self) -> bool {
        self.has_different_files.load(Ordering::Relaxed)
    }

    /// Returns all workers in the registry. A worker is in the registry until it has ended.
    pub fn backends(&self) -> Vec<Arc<Backend>> {
        self.lock().0.clone()
    }

    fn lock(&self) -> MutexGuard<'_, (Vec<Arc<Backend>>, LastPaths)> {
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

    #[test]
    fn the_last_change_of_a_path_wins_while_its_worker_serves() {
        let mut last = LastPaths::default();
        let [one, two] = [paths(&[("/", "/w"), ("/a", "/1")]), paths(&[("/", "/w"), ("/a", "/2")])];
        last.change(&StaticPaths::new(), &one);
        last.change(&StaticPaths::new(), &two);
        assert_eq!(last.0, two);
        // A path that one worker removes is not served, although another worker still has it.
        let none = paths(&[("/", "/w")]);
        last.change(&two, &none);
        assert_eq!(last.0, none);
        last.change(&none, &two);
        last.keep_only(&[&one, &two]);
        assert_eq!(last.0, two);
        last.keep_only(&[&one]);
        assert_eq!(last.0, one);
        last.keep_only(&[]);
        assert!(last.0.is_empty());
    }
}
