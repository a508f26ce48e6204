//! The workers that there are, as the supervisor tells the pool: state, not orders, so that it does not matter when the pool
//! looks.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rookery_server::session_cookie::SessionCookie;
use rookery_server::static_files::{Overrides, StaticFiles, StaticPath};
use rookery_status::Counter;
use rookery_worker_protocol::SharedScoreboard;
use tokio::sync::Notify;

use crate::pool_counters::{InFlightRoutes, PoolCounters, QueueGauge};
use crate::report::ReportCell;
use crate::worker_id::WorkerId;

/// Whether a worker is given requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Availability {
    /// It is given requests.
    Ready = 0,
    /// It finishes what it has, and is given nothing new.
    Draining = 1,
    /// It does not answer, and is given nothing until it does.
    Suspended = 2,
    /// It is not there any more.
    Dead = 3,
}

/// One start of a worker.
#[derive(Debug)]
pub struct Backend {
    /// Which of the workers it is, from 0. Its next start has the same.
    pub slot: u32,
    /// Which start of all workers it is: no two have the same.
    pub epoch: u64,
    /// The number of its process.
    pub pid: u32,
    /// What its sessions' URLs call it.
    pub id: WorkerId,
    /// Where it listens.
    pub socket: PathBuf,
    /// What its R has done.
    pub scoreboard: SharedScoreboard,
    standing: AtomicU8,
    is_sticky: AtomicBool,
    sees_heads: AtomicBool,
    is_given_up: AtomicBool,
    /// Milliseconds within which its WebSockets are to be closed; 0: they are not.
    ends_within: AtomicU64,
    /// The static paths that the worker has announced.
    paths: Mutex<StaticPaths>,
    /// Of the pool.
    pub(crate) load: Load,
}

/// Static paths by their keys.
type StaticPaths = BTreeMap<String, StaticPath>;

/// What a worker has of ours, counted by the pool.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// Requests that it has been sent and not answered.
    pub(crate) in_flight: AtomicUsize,
    /// WebSockets that it has.
    pub(crate) sessions: AtomicUsize,
    /// Requests that it has answered.
    pub(crate) answered: AtomicU64,
    /// Pages that it was given whose WebSocket has not come.
    pub(crate) pending_sessions: Counter,
    /// Requests that wait for it alone.
    pub(crate) queue: QueueGauge,
    /// What it has been asked and has not answered.
    pub(crate) asked: InFlightRoutes,
}

impl Backend {
    /// A worker that is ready: its slot and its start, and the number of its process.
    pub fn new(
        (slot, epoch): (u32, u64),
        pid: u32,
        id: WorkerId,
        socket: PathBuf,
        scoreboard: SharedScoreboard,
    ) -> Arc<Backend> {
        let standing = AtomicU8::new(Availability::Ready as u8);
        let [is_sticky, sees_heads, is_given_up] = [false; 3].map(AtomicBool::new);
        Arc::new(Backend {
            slot,
            epoch,
            pid,
            id,
            socket,
            scoreboard,
            standing,
            is_sticky,
            sees_heads,
            is_given_up,
            ends_within: AtomicU64::new(0),
            paths: Mutex::default(),
            load: Load::default(),
        })
    }

    /// Its app keeps something for each client, between requests.
    pub fn set_sticky(&self, is_sticky: bool) {
        self.is_sticky.store(is_sticky, Ordering::Relaxed);
    }

    /// Whether its app does.
    pub fn is_sticky(&self) -> bool {
        self.is_sticky.load(Ordering::Relaxed)
    }

    /// Its app may refuse a request before its body has been taken.
    pub fn set_sees_heads(&self, sees_heads: bool) {
        self.sees_heads.store(sees_heads, Ordering::Relaxed);
    }

    /// Whether its app may.
    pub fn sees_heads(&self) -> bool {
        self.sees_heads.load(Ordering::Relaxed)
    }

    /// Whether what its R does takes too long: what it has begun will have no answer.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire)
    }

    /// Its R has come out of it.
    pub(crate) fn goes_on(&self) {
        self.is_given_up.store(false, Ordering::Release);
    }

    /// Within what time its WebSockets are to be closed, if they are.
    pub(crate) fn ends_within(&self) -> Option<Duration> {
        let time = self.ends_within.load(Ordering::Acquire);
        (time > 0).then(|| Duration::from_millis(time))
    }

    /// Whether it is given requests.
    pub fn standing(&self) -> Availability {
        match self.standing.load(Ordering::Acquire) {
            0 => Availability::Ready,
            1 => Availability::Draining,
            2 => Availability::Suspended,
            _ => Availability::Dead,
        }
    }

    /// Requests that it has been given by the front end and has not answered, and all WebSockets.
    pub fn load(&self) -> (usize, usize) {
        let Load { in_flight, sessions, .. } = &self.load;
        let own = usize::try_from(self.scoreboard.read().sessions).unwrap_or(usize::MAX);
        (in_flight.load(Ordering::Relaxed), sessions.load(Ordering::Relaxed).max(own))
    }

    /// Connections that it has accepted itself, WebSockets among them.
    pub fn connections(&self) -> usize {
        usize::try_from(self.scoreboard.read().connections).unwrap_or(usize::MAX)
    }

    /// Requests that it has answered, those of its own clients among them.
    pub fn answered(&self) -> u64 {
        self.load.answered.load(Ordering::Relaxed).max(self.scoreboard.read().done)
    }

    fn paths(&self) -> MutexGuard<'_, StaticPaths> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the static paths as they are served in front of workers that have announced these: a path that is not
/// the same for all of them is excluded, so that its requests go to a worker, and not to a shorter path.
fn agreed(announced: &[&StaticPaths]) -> StaticPaths {
    let left_to_workers = || StaticPath {
        path: PathBuf::new(),
        overrides: Overrides { exclude: Some(true), ..Overrides::default() },
    };
    let keys = announced.iter().flat_map(|paths| paths.keys());
    keys.map(|key| {
        let first = announced[0].get(key);
        let is_common = announced.iter().all(|paths| paths.get(key) == first);
        let path = first.filter(|_| is_common).cloned().unwrap_or_else(left_to_workers);
        (key.clone(), path)
    })
    .collect()
}

/// Makes the cookie that names a start of a worker.
pub(crate) trait MakeCookie: Send + Sync {
    fn cookie(&self, slot: u32, epoch: u64) -> SessionCookie;
}

/// See the module.
#[derive(Default)]
pub struct BackendRegistry {
    /// What the front end knows clients by, if by anything.
    cookies: OnceLock<Box<dyn MakeCookie>>,
    backends: Mutex<Vec<Arc<Backend>>>,
    pub(crate) changed: Notify,
    /// The static paths that are served without asking a worker: those that are the same in all
    /// workers.
    files: StaticFiles,
    /// What the pool counts.
    pub(crate) counts: PoolCounters,
    /// What the supervisor says.
    pub(crate) told: ReportCell,
}

impl fmt::Debug for BackendRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackendRegistry").field("backends", &self.backends).finish_non_exhaustive()
    }
}

impl BackendRegistry {
    /// Sets what makes the cookies of workers; once.
    pub(crate) fn set_cookies(&self, cookies: Box<dyn MakeCookie>) {
        let _ = self.cookies.set(cookies);
    }

    /// Returns the cookie that names a start of a worker, if clients come back to their worker by one.
    pub(crate) fn cookie(&self, slot: u32, epoch: u64) -> Option<SessionCookie> {
        Some(self.cookies.get()?.cookie(slot, epoch))
    }

    /// A worker is ready.
    pub fn join(&self, backend: &Arc<Backend>) {
        let mut backends = self.lock();
        backends.push(Arc::clone(backend));
        self.publish(&backends);
        drop(backends);
        self.changed.notify_one();
    }

    /// It is to be given nothing new.
    pub fn drain(&self, backend: &Backend) {
        self.change(
            backend,
            &[Availability::Ready, Availability::Suspended],
            Availability::Draining,
        );
    }

    /// It is to be given nothing for the time being.
    pub fn suspend(&self, backend: &Backend) {
        self.change(backend, &[Availability::Ready], Availability::Suspended);
    }

    /// What its R does takes too long: nobody waits for the answer to what it has begun, and it is given nothing.
    pub fn give_up_on(&self, backend: &Backend) {
        backend.is_given_up.store(true, Ordering::Release);
        self.suspend(backend);
    }

    /// It answers again.
    pub fn resume(&self, backend: &Backend) {
        self.change(backend, &[Availability::Suspended], Availability::Ready);
    }

    /// One that is dead stays so, and one that drains does not come back.
    fn change(&self, backend: &Backend, from: &[Availability], to: Availability) {
        for from in from {
            let (from, to) = (*from as u8, to as u8);
            let _ =
                backend.standing.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
        }
        self.changed.notify_one();
    }

    /// Its WebSockets are to be closed, one after the other, within this time: it ends then.
    pub fn end_sessions(&self, backend: &Backend, within: Duration) {
        let time = (within.as_millis() as u64).max(1);
        if backend.ends_within.swap(time, Ordering::AcqRel) == 0 {
            self.changed.notify_one();
        }
    }

    /// It has ended: what it did is on its [`Scoreboard`](rookery_worker_protocol::Scoreboard), and that does not change any more.
    pub fn leave(&self, backend: &Backend) {
        backend.standing.store(Availability::Dead as u8, Ordering::Release);
        let mut backends = self.lock();
        backends.retain(|other| other.epoch != backend.epoch);
        self.publish(&backends);
        drop(backends);
        self.changed.notify_one();
    }

    /// A handle to the static paths that can be served without asking a worker. They change with the workers.
    pub fn files(&self) -> StaticFiles {
        self.files.clone()
    }

    /// Takes the static paths that a worker serves, in place of those that it has announced before.
    pub fn announce(&self, backend: &Backend, paths: BTreeMap<String, StaticPath>) {
        let backends = self.lock();
        *backend.paths() = paths;
        // A worker that does not serve yet changes nothing before it joins.
        self.publish(&backends);
    }

    /// Serves the static paths that all workers agree on, those that drain among them: their clients still come.
    fn publish(&self, backends: &[Arc<Backend>]) {
        let announced: Vec<_> = backends.iter().map(|backend| backend.paths()).collect();
        let announced: Vec<&StaticPaths> = announced.iter().map(|paths| &**paths).collect();
        // They have been checked when they were read; what is refused all the same is left to the workers.
        if self.files.replace(agreed(&announced)).is_err() {
            let _ = self.files.replace(StaticPaths::new());
        }
    }

    /// Those that have not ended.
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

    /// Returns the keys that are served with their folders; `-` stands for what goes to a worker.
    fn served(announced: &[&[(&str, &str)]]) -> Vec<(String, String)> {
        let announced: Vec<_> = announced.iter().map(|list| paths(list)).collect();
        let announced: Vec<_> = announced.iter().collect();
        let at = |path: StaticPath| match path.overrides.exclude {
            Some(true) => "-".to_owned(),
            _ => path.path.display().to_string(),
        };
        agreed(&announced).into_iter().map(|(key, path)| (key, at(path))).collect()
    }

    #[test]
    fn what_differs_between_workers_goes_to_a_worker() {
        let pairs = |list: &[(&str, &str)]| {
            list.iter().map(|(key, at)| ((*key).to_owned(), (*at).to_owned())).collect::<Vec<_>>()
        };
        assert!(served(&[]).is_empty());
        assert!(served(&[&[], &[]]).is_empty());
        assert_eq!(served(&[&[("/", "/w"), ("/a", "/x")]]), pairs(&[("/", "/w"), ("/a", "/x")]));
        let same: &[_] = &[("/", "/w")];
        assert_eq!(served(&[same, same, same]), pairs(same));
        // Another folder, or none: the shorter path does not take its place.
        assert_eq!(
            served(&[&[("/", "/w"), ("/a", "/1")], &[("/", "/w"), ("/a", "/2")]]),
            pairs(&[("/", "/w"), ("/a", "-")])
        );
        assert_eq!(
            served(&[&[("/", "/w")], &[("/", "/w"), ("/a", "/2")]]),
            pairs(&[("/", "/w"), ("/a", "-")])
        );
        // One that has announced nothing serves everything itself.
        assert_eq!(served(&[same, &[]]), pairs(&[("/", "-")]));
    }
}
