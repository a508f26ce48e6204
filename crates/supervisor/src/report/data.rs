//! The report about the state of the supervisor and its workers. The supervisor's thread updates it
//! in each iteration of its main loop.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rookery_status::{RProcess, r_activity, r_task};
use rookery_worker_protocol::SpanCounters;

use crate::backend::Backend;
use crate::process::Exit;

/// The phase of the supervisor: starting, serving, draining or stopping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Lifecycle {
    /// The supervisor is starting: no worker has been ready yet.
    #[default]
    Starting,
    Serving,
    /// The server shuts down and finishes its requests. It still accepts connections until the
    /// shutdown delay is over.
    Draining,
    /// The supervisor stops its worker processes.
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

/// The state of a worker process in the status report of the supervisor.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) pid: libc::pid_t,
    pub(crate) generation: u64,
    pub(crate) state: &'static str,
    pub(crate) started: SystemTime,
    /// The fraction of the last few seconds during which the worker's R process was busy.
    pub(crate) busy_ratio: f64,
    pub(crate) backend: Arc<Backend>,
}

impl Process {
    /// Returns the current state of the worker process for reports.
    pub(crate) fn seen(&self) -> RProcess {
        let (in_flight, sessions) = self.backend.load();
        let read = self.backend.read_scoreboard();
        let (does, lasts) = r_activity(&read, self.started);
        RProcess {
            slot: self.backend.slot,
            pid: self.pid,
            state: self.state,
            started: self.started,
            requests: self.backend.responses(),
            sessions: sessions as u64,
            streams: read.streams,
            in_flight: in_flight as u64,
            busy_ratio: self.busy_ratio,
            queued: read.queued(),
            r_thread: read.r_thread,
            does,
            lasts,
        }
    }

    /// Returns what R is busy with, such as the method and path of a request. Returns `None` if R
    /// is not busy, or if it is unknown what R does.
    pub(crate) fn route(&self, seen: &RProcess) -> Option<String> {
        seen.busy()?;
        r_task(&self.backend.scoreboard)
    }
}

/// The last end of a process in a worker's slot: how, why and when the process ended.
#[derive(Debug, Clone)]
pub(crate) struct LastExit {
    pub(crate) exit: Exit,
    pub(crate) reason: &'static str,
    pub(crate) at: SystemTime,
}

/// The state of a slot. A slot is the numbered place of a worker, which its replacement takes over.
#[derive(Debug, Clone, Default)]
pub(crate) struct SlotReport {
    /// The number of times that a worker was started again in this slot.
    pub(crate) restarts: u64,
    pub(crate) last_exit: Option<LastExit>,
    /// The time at which the next worker will be started in this slot; `None` if no start is
    /// planned.
    pub(crate) start_at: Option<Instant>,
    /// Whether the slot is no longer used, because the number of workers was reduced.
    pub(crate) is_given_up: bool,
}

/// The state of the current or last reload of the app, and the counts of reloads.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reload {
    pub(crate) is_running: bool,
    pub(crate) last_error: Option<String>,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
}

/// The state of the supervisor and its workers, as the status page, the metrics and the probes show
/// it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Report {
    pub(crate) course: Lifecycle,
    /// The time at which the supervisor's main loop last ran.
    pub(crate) turned: Option<Instant>,
    pub(crate) started: Option<SystemTime>,
    pub(crate) generation: u64,
    /// The number of workers that should serve at the same time.
    pub(crate) wanted: u32,
    /// The number of started workers that should be held in reserve.
    pub(crate) spares: u32,
    pub(crate) reload: Reload,
    pub(crate) connections: usize,
    pub(crate) log_lines_lost: u64,
    /// All worker processes, whether they are starting, serving, draining or stopping.
    pub(crate) processes: Vec<Process>,
    /// The states of the workers' slots, in the order of their numbers.
    pub(crate) slots: Vec<SlotReport>,
    /// The number of worker processes that have ended, for each reason.
    pub(crate) exits: BTreeMap<&'static str, u64>,
    /// The number of WebSockets that ended because their worker ended, for each reason of the
    /// worker's end.
    pub(crate) sessions_lost: BTreeMap<&'static str, u64>,
    pub(crate) starts: u64,
    /// The counts of the spans of workers that have ended.
    pub(crate) past_spans: Arc<SpanCounters>,
    /// The number of workers that have become ready, and the sum of the seconds that their starts
    /// took.
    pub(crate) readied: (u64, f64),
}

impl Report {
    /// Returns the number of workers that are ready for requests.
    pub(crate) fn ready(&self) -> usize {
        self.processes.iter().filter(|process| process.state == READY).count()
    }

    /// Returns the time since the supervisor's main loop last ran, or [`Duration::MAX`] if it has
    /// never run.
    pub(crate) fn silence(&self) -> Duration {
        self.turned.map_or(Duration::MAX, |turned| turned.elapsed())
    }
}

/// The name of the state of a worker that is ready for requests, as reports show it.
pub(crate) const READY: &str = "ready";

/// The state of the supervisor and its workers. The supervisor's thread writes it, and other
/// threads read it.
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
