//! What the supervisor's thread says of itself, anew at each of its turns.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rookery_status::{RProcess, RequestCounters, r_activity};

use crate::backend_registry::Backend;
use crate::process::Exit;

/// Where the supervisor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Lifecycle {
    /// No worker has been ready yet.
    #[default]
    Starting,
    Serving,
    /// It finishes what it has.
    Draining,
    /// Its workers end.
    Stopping,
}

impl Lifecycle {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Lifecycle::Starting => "starting",
            Lifecycle::Serving => "serving",
            Lifecycle::Draining => "draining",
            Lifecycle::Stopping => "stopping",
        }
    }
}

/// A worker's process.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) pid: libc::pid_t,
    pub(crate) generation: u64,
    pub(crate) state: &'static str,
    pub(crate) started: SystemTime,
    /// For which share of the last seconds its R was busy.
    pub(crate) busy_ratio: f64,
    pub(crate) backend: Arc<Backend>,
}

impl Process {
    /// Returns the process as reports have it.
    pub(crate) fn seen(&self) -> RProcess {
        let (in_flight, sessions) = self.backend.load();
        let read = self.backend.scoreboard.read();
        let (does, lasts) = r_activity(&read, self.started);
        RProcess {
            slot: self.backend.slot,
            pid: self.pid,
            state: self.state,
            started: self.started,
            requests: self.backend.responses(),
            sessions: sessions as u64,
            in_flight: in_flight as u64,
            busy_ratio: self.busy_ratio,
            queued: read.queued(),
            does,
            lasts,
        }
    }

    /// Returns the route of the request that its R is busy with.
    pub(crate) fn route(&self, seen: &RProcess) -> Option<String> {
        seen.busy()?;
        self.backend.load.routes.last_begun(&self.backend.scoreboard).map(|(route, _)| route)
    }
}

/// How the last of a slot's processes ended.
#[derive(Debug, Clone)]
pub(crate) struct LastExit {
    pub(crate) exit: Exit,
    pub(crate) reason: &'static str,
    pub(crate) at: SystemTime,
}

/// One of the workers that there are to be.
#[derive(Debug, Clone, Default)]
pub(crate) struct SlotReport {
    /// Starts after the first.
    pub(crate) restarts: u64,
    pub(crate) last_exit: Option<LastExit>,
    /// When it is started, if it waits for that.
    pub(crate) start_at: Option<Instant>,
    /// A worker less was asked for: there is to be none.
    pub(crate) is_given_up: bool,
}

/// How the last reload went.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reload {
    pub(crate) is_running: bool,
    pub(crate) last_error: Option<String>,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Report {
    pub(crate) course: Lifecycle,
    /// Its last turn.
    pub(crate) turned: Option<Instant>,
    pub(crate) started: Option<SystemTime>,
    pub(crate) generation: u64,
    /// How many workers are to serve, and how many more to wait.
    pub(crate) wanted: u32,
    pub(crate) spares: u32,
    pub(crate) reload: Reload,
    pub(crate) connections: usize,
    /// The start of the worker that accepts connections; `None`: the front end does.
    pub(crate) acceptor: Option<u64>,
    pub(crate) log_lines_lost: u64,
    /// All there are: those that serve, start, drain and end.
    pub(crate) processes: Vec<Process>,
    /// By slot.
    pub(crate) slots: Vec<SlotReport>,
    /// Ends of workers, by reason.
    pub(crate) exits: BTreeMap<&'static str, u64>,
    /// WebSockets that ended with their worker, by the reason of that.
    pub(crate) sessions_lost: BTreeMap<&'static str, u64>,
    pub(crate) starts: u64,
    /// The requests of workers' own clients that those have answered which have ended.
    pub(crate) past: Arc<RequestCounters>,
    /// How many became ready, and in how many seconds all of them together.
    pub(crate) readied: (u64, f64),
}

impl Report {
    /// Workers that are given requests.
    pub(crate) fn ready(&self) -> usize {
        self.processes.iter().filter(|process| process.state == READY).count()
    }

    /// How long ago its last turn was.
    pub(crate) fn silence(&self) -> Duration {
        self.turned.map_or(Duration::MAX, |turned| turned.elapsed())
    }
}

/// The state of a worker that is given requests.
pub(crate) const READY: &str = "ready";

/// A [`Report`] that one thread writes and others read.
#[derive(Debug, Default)]
pub(crate) struct SharedReport(Mutex<Report>);

impl SharedReport {
    pub(crate) fn change(&self, change: impl FnOnce(&mut Report)) {
        change(&mut self.lock());
    }

    pub(crate) fn read(&self) -> Report {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Report> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
