//! The state of the supervisor and its workers. The supervisor's thread updates it in each
//! iteration of its main loop.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rookery_status::{LastExit, READY, RProcess, ServerState, WorkerReport};
use rookery_worker_protocol::SpanCounters;

use crate::backend::Backend;

/// The state of a worker process in the status report of the supervisor.
#[derive(Debug, Clone)]
pub(crate) struct ProcessState {
    pub(crate) pid: libc::pid_t,
    pub(crate) generation: u64,
    pub(crate) state: &'static str,
    pub(crate) started: SystemTime,
    /// The fraction of the last few seconds during which the worker's R process was busy.
    pub(crate) busy_ratio: f64,
    pub(crate) backend: Arc<Backend>,
}

impl ProcessState {
    /// Returns the description of the worker process for reports.
    fn seen(&self) -> RProcess {
        let backend = &self.backend;
        let (in_flight, sessions) = backend.load();
        let read = backend.read_scoreboard();
        RProcess {
            slot: backend.slot,
            epoch: backend.epoch,
            generation: self.generation,
            state: self.state,
            requests: backend.responses(),
            sessions: sessions as u64,
            pending_sessions: backend.load.pending_sessions.get(),
            in_flight: in_flight as u64,
            busy_ratio: self.busy_ratio,
            queue: backend.load.queue.read(),
            ..RProcess::of_scoreboard(&backend.scoreboard, &read, self.pid, self.started)
        }
    }
}

/// The state of a slot. A slot is the numbered place of a worker, which its replacement takes over.
#[derive(Debug, Clone, Default)]
pub(crate) struct SlotState {
    pub(crate) number: u32,
    /// The number of times that a worker was started again in this slot.
    pub(crate) restarts: u64,
    pub(crate) last_exit: Option<LastExit>,
    /// The time at which the next worker will be started in this slot; `None` if no start is
    /// planned.
    pub(crate) start_at: Option<Instant>,
    /// The slot's worker processes, whether they are starting, serving, draining or stopping.
    pub(crate) processes: Vec<ProcessState>,
}

/// The state of the supervisor and its workers, from which the status report is made.
#[derive(Debug, Clone, Default)]
pub(crate) struct SupervisorState {
    /// The time at which the supervisor's main loop last ran.
    pub(crate) turned: Option<Instant>,
    /// The state of the server, apart from its workers.
    pub(crate) server: ServerState,
    /// The states of the slots, in the order of their numbers.
    pub(crate) slots: Vec<SlotState>,
    /// The counts of the spans of workers that have ended.
    pub(crate) past_spans: Arc<SpanCounters>,
}

impl SupervisorState {
    /// Returns all worker processes.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &ProcessState> {
        self.slots.iter().flat_map(|slot| &slot.processes)
    }

    /// Returns the number of workers that are ready for requests.
    pub(crate) fn ready(&self) -> usize {
        self.processes().filter(|process| process.state == READY).count()
    }

    /// Returns the report about each worker process, and about each slot that waits for one.
    pub(crate) fn workers(&self) -> Vec<WorkerReport> {
        let mut workers = Vec::new();
        for slot in &self.slots {
            let report = |process, starts_in| WorkerReport {
                slot: slot.number,
                process,
                starts_in,
                restarts: slot.restarts,
                last_exit: slot.last_exit.clone(),
            };
            workers.extend(slot.processes.iter().map(|process| report(Some(process.seen()), None)));
            if slot.processes.is_empty() {
                let now = Instant::now();
                workers
                    .push(report(None, slot.start_at.map(|at| at.saturating_duration_since(now))));
            }
        }
        workers
    }

    /// Returns the time since the supervisor's main loop last ran, or [`Duration::MAX`] if it has
    /// never run.
    pub(crate) fn silence(&self) -> Duration {
        self.turned.map_or(Duration::MAX, |turned| turned.elapsed())
    }
}

/// The state of the supervisor and its workers. The supervisor's thread writes it, and other
/// threads read it.
#[derive(Debug, Default)]
pub(crate) struct SharedState(Mutex<SupervisorState>);

impl SharedState {
    pub(crate) fn change(&self, change: impl FnOnce(&mut SupervisorState)) {
        change(&mut self.lock());
    }

    pub(crate) fn read(&self) -> SupervisorState {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, SupervisorState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
