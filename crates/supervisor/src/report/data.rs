//! The state that the supervisor's thread publishes in each iteration of its loop.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rookery_status::{RProcess, RequestCounters, r_activity};

use crate::backend::Backend;
use crate::process::Exit;

/// The phase in the life of the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Lifecycle {
    /// No worker has been ready yet.
    #[default]
    Starting,
    Serving,
    /// The server shuts down and finishes its requests. Until the shutdown delay is over, the
    /// server still accepts connections.
    Draining,
    /// The supervisor ends the workers.
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

/// A worker process.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) pid: libc::pid_t,
    pub(crate) generation: u64,
    pub(crate) state: &'static str,
    pub(crate) started: SystemTime,
    /// The fraction of the last seconds in which R was busy.
    pub(crate) busy_ratio: f64,
    pub(crate) backend: Arc<Backend>,
}

impl Process {
    /// Returns the description of the process for reports.
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

    /// Returns the route of the request that R is busy with.
    pub(crate) fn route(&self, seen: &RProcess) -> Option<String> {
        seen.busy()?;
        self.backend.load.routes.last_begun(&self.backend.scoreboard).map(|(route, _)| route)
    }
}

/// The end of the last process of a slot.
#[derive(Debug, Clone)]
pub(crate) struct LastExit {
    pub(crate) exit: Exit,
    pub(crate) reason: &'static str,
    pub(crate) at: SystemTime,
}

/// The state of a worker's slot.
#[derive(Debug, Clone, Default)]
pub(crate) struct SlotReport {
    /// The number of starts after the first one.
    pub(crate) restarts: u64,
    pub(crate) last_exit: Option<LastExit>,
    /// The time of the next start, if the slot waits for one.
    pub(crate) start_at: Option<Instant>,
    /// Whether the slot is no longer used, because the number of workers was reduced.
    pub(crate) is_given_up: bool,
}

/// The state of the current or last reload, and the counts of reloads.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reload {
    pub(crate) is_running: bool,
    pub(crate) last_error: Option<String>,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
}

/// The state of the supervisor and its workers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Report {
    pub(crate) course: Lifecycle,
    /// The time of the last iteration of the supervisor's loop.
    pub(crate) turned: Option<Instant>,
    pub(crate) started: Option<SystemTime>,
    pub(crate) generation: u64,
    /// The number of workers that should serve, and the number of spares.
    pub(crate) wanted: u32,
    pub(crate) spares: u32,
    pub(crate) reload: Reload,
    pub(crate) connections: usize,
    /// The epoch of the worker that accepts connections; `None` if the front end accepts them.
    pub(crate) acceptor: Option<u64>,
    pub(crate) log_lines_lost: u64,
    /// All worker processes: those that start, serve, drain and stop.
    pub(crate) processes: Vec<Process>,
    /// The states of the slots, by number.
    pub(crate) slots: Vec<SlotReport>,
    /// The number of workers that have ended, by reason.
    pub(crate) exits: BTreeMap<&'static str, u64>,
    /// The number of WebSockets that ended with their worker, by the reason of the worker's end.
    pub(crate) sessions_lost: BTreeMap<&'static str, u64>,
    pub(crate) starts: u64,
    /// The counters of workers that have ended, for requests on connections that those workers had
    /// accepted themselves.
    pub(crate) past: Arc<RequestCounters>,
    /// The number of workers that became ready, and the sum of their start times in seconds.
    pub(crate) readied: (u64, f64),
}

impl Report {
    /// Returns the number of workers that get requests.
    pub(crate) fn ready(&self) -> usize {
        self.processes.iter().filter(|process| process.state == READY).count()
    }

    /// Returns the time since the last iteration of the supervisor's loop.
    pub(crate) fn silence(&self) -> Duration {
        self.turned.map_or(Duration::MAX, |turned| turned.elapsed())
    }
}

/// The state of a worker that gets requests.
pub(crate) const READY: &str = "ready";

/// A [`Report`] that the supervisor's thread writes and other threads read.
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
