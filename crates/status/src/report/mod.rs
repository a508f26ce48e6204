//! The report about a server, from which its JSON, table, metrics and live page are made. A
//! supervisor fills it for itself and its workers, and a single R process for itself.

mod json;
mod metrics;
mod sessions;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rookery_server::tls::ServedCertificate;
use rookery_worker_protocol::{
    Histogram, RejectionCounters, RequestCounters, RouteTable, SessionsReading,
};

use crate::exit_reason::ExitReason;
use crate::format::routes::MESSAGES;
use crate::pool_counters::{PoolCounters, QueueReading};
use crate::r_process::{READY, RProcess};

/// The maximum number of sessions of Shiny that a report names. Further ones are only counted.
pub const MAX_SHOWN_SESSIONS: usize = 50;

/// The phase of a server: starting, serving, draining or stopping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Lifecycle {
    /// The server is starting: no R process has been ready yet.
    #[default]
    Starting,
    /// The app accepts connections.
    Serving,
    /// The server shuts down and finishes its requests. It still accepts connections until the
    /// shutdown delay is over.
    Draining,
    /// The supervisor stops its worker processes.
    Stopping,
}

impl Lifecycle {
    /// Returns the name of the phase in reports.
    pub fn name(self) -> &'static str {
        match self {
            Lifecycle::Starting => "starting",
            Lifecycle::Serving => "serving",
            Lifecycle::Draining => "draining",
            Lifecycle::Stopping => "stopping",
        }
    }
}

/// The app's path and the server's address, as status reports show them.
#[derive(Debug, Clone, Default)]
pub struct ServerInfo {
    /// The path of the app's file or folder.
    pub target: String,
    /// The address at which clients reach the app.
    pub address: String,
}

/// The state of the current or last reload of the app, and the counts of reloads.
#[derive(Debug, Clone, Default)]
pub struct Reload {
    /// Whether a reload is in progress.
    pub is_running: bool,
    /// The reason for which the last reload failed; `None` if it succeeded.
    pub last_error: Option<String>,
    /// The number of reloads that have succeeded.
    pub succeeded: u64,
    /// The number of reloads that have failed.
    pub failed: u64,
}

/// The last end of a process in a worker's slot: how, why and when the process ended.
#[derive(Debug, Clone)]
pub struct LastExit {
    /// The exit status of the process, unless a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended the process, if any.
    pub signal: Option<i32>,
    /// The exit status or signal as text for people, such as `was ended by SIGKILL`.
    pub how: String,
    /// The reason why the process ended.
    pub reason: ExitReason,
    /// The time at which the process ended.
    pub at: SystemTime,
}

/// The state of a server, apart from its R processes and requests. The value 0 stands for what an R
/// process without a supervisor does not have.
#[derive(Debug, Clone, Default)]
pub struct ServerState {
    /// The phase of the server.
    pub phase: Lifecycle,
    /// The time at which the server was started.
    pub started: Option<SystemTime>,
    /// The number of the current generation of workers, which grows with each reload.
    pub generation: u64,
    /// The number of workers that should serve at the same time.
    pub wanted: u32,
    /// The number of started workers that should be held in reserve.
    pub spares: u32,
    /// The current or last reload.
    pub reload: Reload,
    /// The number of open connections of clients.
    pub connections: u64,
    /// The number of lines of logs and output that were lost.
    pub log_lines_lost: u64,
    /// The number of worker processes that have ended, for each reason.
    pub exits: BTreeMap<&'static str, u64>,
    /// The number of WebSockets that ended because their worker ended, for each reason of the
    /// worker's end.
    pub sessions_lost: BTreeMap<&'static str, u64>,
    /// The number of workers that were started.
    pub starts: u64,
    /// The number of workers that have become ready, and the sum of the seconds that their starts
    /// took.
    pub readied: (u64, f64),
}

/// A slot (the numbered place of a worker, which its replacement takes over) with one of its
/// processes, or without a process.
#[derive(Debug, Clone)]
pub struct WorkerReport {
    /// The number of the slot, from 0.
    pub slot: u32,
    /// The R process in the slot; `None` if it has ended and is not yet replaced.
    pub process: Option<RProcess>,
    /// The time until the next process is started in the slot; `None` if no start is planned.
    pub starts_in: Option<Duration>,
    /// The number of times that a worker was started again in this slot.
    pub restarts: u64,
    /// The end of the previous process in this slot.
    pub last_exit: Option<LastExit>,
}

/// The report about a server and its R processes.
#[derive(Debug)]
pub struct Report {
    /// The app and the address of the server.
    pub about: ServerInfo,
    /// The state of the server, apart from its R processes and requests.
    pub server: ServerState,
    /// The queue of requests that any R process may take.
    pub queue: QueueReading,
    /// The R processes, and the slots that wait for one.
    pub workers: Vec<WorkerReport>,
    /// The metrics of all requests.
    pub requests: RequestCounters,
    /// The numbers of rejected requests and connections.
    pub rejections: RejectionCounters,
    /// The metrics of all requests by route.
    pub routes: Box<RouteTable>,
    /// The sessions of Shiny, at most [`MAX_SHOWN_SESSIONS`] of them by name.
    pub sessions: SessionsReading,
    /// The counters of the pool, which assigns requests to R processes.
    pub pool: Arc<PoolCounters>,
    /// The certificates with which the server serves HTTPS.
    pub certificates: Vec<ServedCertificate>,
    /// The number of failed attempts to get a certificate from an authority, or `None` if the
    /// certificates do not come from one.
    pub acme_failures: Option<u64>,
}

impl Default for Report {
    fn default() -> Report {
        Report {
            about: ServerInfo::default(),
            server: ServerState::default(),
            queue: QueueReading::default(),
            workers: Vec::new(),
            requests: RequestCounters::default(),
            rejections: RejectionCounters::default(),
            routes: Box::new(RouteTable::new()),
            sessions: SessionsReading::default(),
            pool: Arc::default(),
            certificates: Vec::new(),
            acme_failures: None,
        }
    }
}

impl Report {
    /// Returns the R processes.
    fn processes(&self) -> impl Iterator<Item = &RProcess> {
        self.workers.iter().filter_map(|worker| worker.process.as_ref())
    }

    /// Returns the times in which all R processes were busy with messages of WebSockets.
    fn messages(&self) -> Histogram {
        let all = Histogram::new();
        self.processes().for_each(|process| all.add_all(&process.messages));
        all
    }

    /// Returns the name, the number of requests and the durations of each route, and of the
    /// messages of WebSockets.
    pub(crate) fn traffic(&self) -> Vec<(String, u64, Histogram)> {
        let copy = |durations: &Histogram| {
            let copy = Histogram::new();
            copy.add_all(durations);
            copy
        };
        let mut traffic: Vec<_> = self
            .routes
            .routes()
            .into_iter()
            .map(|(name, route)| (name, route.requests.get(), copy(&route.duration)))
            .collect();
        let messages = self.messages();
        let (_, count, _) = messages.read();
        if count > 0 {
            traffic.push((MESSAGES.to_owned(), count, messages));
        }
        traffic
    }

    /// Returns the share of the last seconds in which each R process was busy, by slot.
    pub(crate) fn busy_ratios(&self) -> impl Iterator<Item = (u32, f64)> {
        self.processes().map(|process| (process.slot, process.busy_ratio))
    }

    /// Returns the number of R processes that are ready for requests.
    fn ready(&self) -> usize {
        self.processes().filter(|process| process.state == READY).count()
    }
}
