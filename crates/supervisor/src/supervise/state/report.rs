//! The reports of the supervisor about itself and its workers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rookery_status::RequestCounters;
use rookery_worker_protocol::now;

use super::super::worker_process::{WorkerPhase, WorkerProcess};
use super::{ASKED, RunState, SELDOM, Supervisor};
use crate::backend::Availability;
use crate::process::{ControlGroups, Exit};
use crate::report::{self, LastExit, Process, READY, Reload, SlotReport};
use crate::supervise::SupervisorEvent;

/// The time for which an out-of-memory kill that the control group has counted is attributed to the
/// next killed worker. The end of a killed worker is reported only after all its memory has been
/// freed. A kill that matches no worker within this time hit another process.
const HEARD_WITHIN: Duration = Duration::from_secs(10);

/// The reason of a worker that was killed because its control group had no memory left.
pub(super) const OOM: &str = "oom";

/// The record of past events that the supervisor needs only for reports.
#[derive(Debug)]
pub(super) struct ReportHistory {
    started: SystemTime,
    reload: Reload,
    /// The number of starts and the last exit of each slot.
    slots: BTreeMap<u32, (u64, Option<LastExit>)>,
    exits: BTreeMap<&'static str, u64>,
    sessions_lost: BTreeMap<&'static str, u64>,
    readied: (u64, f64),
    past: Arc<RequestCounters>,
    /// The number of out-of-memory kills of the control group when last read.
    kills_for_memory: Option<u64>,
    /// The number of out-of-memory kills that match no worker's end yet, and the time until which
    /// they can match one.
    unheard: (u64, Option<Instant>),
    pub(super) groups: ControlGroups,
    connections: usize,
    asked: Option<Instant>,
}

impl ReportHistory {
    pub(super) fn begin(groups: ControlGroups) -> ReportHistory {
        ReportHistory {
            started: SystemTime::now(),
            reload: Reload::default(),
            slots: BTreeMap::new(),
            exits: BTreeMap::new(),
            sessions_lost: BTreeMap::new(),
            readied: (0, 0.0),
            past: Arc::default(),
            kills_for_memory: groups.kills_for_memory(),
            unheard: (0, None),
            groups,
            connections: 0,
            asked: None,
        }
    }

    /// Counts the start of a worker in `slot`.
    pub(super) fn starts(&mut self, slot: u32) {
        self.slots.entry(slot).or_default().0 += 1;
    }

    /// Drops what is kept for `slot`, which has been reassigned.
    pub(super) fn forget(&mut self, slot: u32) {
        self.slots.remove(&slot);
    }

    /// Counts a worker that has become ready, and the duration of its start.
    pub(super) fn on_ready(&mut self, worker: &WorkerProcess) {
        self.readied.0 += 1;
        self.readied.1 += worker.began.elapsed().as_secs_f64();
    }

    /// Records the end of a worker and returns its reason.
    pub(super) fn on_exit(&mut self, worker: &WorkerProcess, exit: Exit) -> &'static str {
        let reason = match worker.leaves {
            // R's `quit()` also announces that the worker stops, even when its exit status is an
            // error.
            Some(ASKED) if exit != Exit::Status(0) => "crash",
            Some(reason) => reason,
            None => self.reason(worker, exit),
        };
        *self.exits.entry(reason).or_default() += 1;
        let sessions = worker.backend.scoreboard.read().sessions;
        self.past.add_all(worker.backend.scoreboard.request_counters());
        if sessions > 0 {
            *self.sessions_lost.entry(reason).or_default() += sessions;
        }
        let last = LastExit { exit, reason, at: SystemTime::now() };
        self.slots.entry(worker.start.slot).or_default().1 = Some(last);
        reason
    }

    /// Returns the reason of an end that the supervisor has not requested.
    fn reason(&mut self, worker: &WorkerProcess, exit: Exit) -> &'static str {
        if exit != Exit::Signal(libc::SIGKILL) || worker.phase == WorkerPhase::Killed {
            return "crash";
        }
        self.killed(Instant::now())
    }

    /// Returns [`OOM`] if the control group has counted an out-of-memory kill that matches no other
    /// worker, and `"killed"` otherwise. If several workers are killed at once, the counter
    /// includes all of them when the first end is reported, so the remaining count is kept for the
    /// others.
    fn killed(&mut self, now: Instant) -> &'static str {
        let kills = self.groups.kills_for_memory();
        let were = std::mem::replace(&mut self.kills_for_memory, kills);
        let new = kills.zip(were).map_or(0, |(kills, were)| kills.saturating_sub(were));
        let (unheard, until) = self.unheard;
        let unheard = if until.is_some_and(|until| now < until) { unheard } else { 0 } + new;
        if unheard == 0 {
            self.unheard = (0, None);
            return "killed";
        }
        let until = if new > 0 { Some(now + HEARD_WITHIN) } else { until };
        self.unheard = (unheard - 1, until);
        OOM
    }
}

impl Supervisor<'_> {
    /// Records and reports the beginning of a reload.
    pub(super) fn begin_reload(&mut self) {
        self.history.reload.is_running = true;
        self.front.hear(SupervisorEvent::Reloading);
    }

    /// Records and reports the end of a reload, with the error if the reload has failed.
    pub(super) fn end_reload(&mut self, error: Option<String>) {
        let reload = &mut self.history.reload;
        if !std::mem::take(&mut reload.is_running) {
            return;
        }
        *if error.is_some() { &mut reload.failed } else { &mut reload.succeeded } += 1;
        reload.last_error = error;
        self.front.hear(SupervisorEvent::Reloaded);
    }

    /// Reports a reload that was refused. A reload in progress continues.
    pub(super) fn refuse_reload(&mut self, why: String) {
        self.tell(&format!("the reload is refused, and what runs stays as it is: {why}"));
        let is_running = self.history.reload.is_running;
        self.begin_reload();
        self.end_reload(Some(why));
        self.history.reload.is_running = is_running;
        if is_running {
            self.front.hear(SupervisorEvent::Reloading);
        }
    }

    /// Publishes the supervisor's current state, and completes a reload whose replacements are
    /// finished.
    pub(super) fn report(&mut self) {
        if !self.replacements.is_reloading() {
            self.end_reload(None);
        }
        let now = Instant::now();
        // Events cause iterations in addition to the periodic ones. The number of connections is
        // costly to query, so it is read only about once a second.
        if self.history.asked.is_none_or(|asked| now.duration_since(asked) + LATE >= SELDOM) {
            self.history.asked = Some(now);
            self.history.connections = self.connections();
        }
        let course = match self.course {
            RunState::Serving if self.was_ready => report::Lifecycle::Serving,
            RunState::Serving => report::Lifecycle::Starting,
            RunState::Leaving { .. } | RunState::Draining { .. } => report::Lifecycle::Draining,
            RunState::Ending(_) => report::Lifecycle::Stopping,
        };
        let mut processes: Vec<Process> = self.workers.values_mut().map(process).collect();
        processes.sort_by_key(|process| (process.backend.slot, process.backend.epoch));
        let slots = self.slots.iter().enumerate().map(|(slot, place)| {
            let (starts, last_exit) =
                self.history.slots.get(&(slot as u32)).cloned().unwrap_or_default();
            SlotReport {
                restarts: starts.saturating_sub(1),
                last_exit,
                start_at: place.start_at,
                is_given_up: place.is_given_up,
            }
        });
        let slots = slots.collect();
        let history = &self.history;
        let log_lines_lost = self.front.log_lines_lost();
        let mut ready = 0;
        self.registry.report.change(|report| {
            report.course = course;
            report.turned = Some(now);
            report.started = Some(history.started);
            report.generation = self.generation;
            report.wanted = self.wanted;
            report.spares = self.plan.spares;
            report.reload = history.reload.clone();
            report.connections = history.connections;
            report.acceptor = self.acceptor.worker();
            report.log_lines_lost = log_lines_lost;
            report.processes = processes;
            report.slots = slots;
            report.exits.clone_from(&history.exits);
            report.sessions_lost.clone_from(&history.sessions_lost);
            report.starts = self.epochs;
            report.readied = history.readied;
            report.past = Arc::clone(&history.past);
            ready = report.ready();
        });
        let failures = self.recent_failures(now);
        self.front.hear(SupervisorEvent::Turned { ready, workers: self.wanted as usize, failures });
    }
}

/// The tolerance by which a periodic iteration may come early and still read the connections.
const LATE: Duration = Duration::from_millis(50);

/// Returns the report of a worker process.
fn process(worker: &mut WorkerProcess) -> Process {
    let time = now();
    let busy_ratio = worker.share.look(worker.backend.scoreboard.read().busy_time(time), time);
    let state = match worker.phase {
        WorkerPhase::Starting { .. } if worker.is_warming => "warming",
        WorkerPhase::Starting { .. } => "starting",
        WorkerPhase::Ready if !worker.is_serving => "spare",
        WorkerPhase::Ready if worker.backend.availability() == Availability::Suspended => {
            "suspended"
        }
        WorkerPhase::Ready => READY,
        WorkerPhase::Draining { .. } => "draining",
        WorkerPhase::Stopping { .. } | WorkerPhase::Killed => "stopping",
    };
    Process {
        pid: worker.pid,
        generation: worker.start.generation,
        state,
        started: worker.started,
        busy_ratio,
        backend: worker.backend.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::stand_in;

    #[test]
    fn who_was_killed_was_so_for_memory_where_the_group_has_counted_one() {
        let folder = tempfile::tempdir().unwrap();
        let count = |kills: &str| {
            stand_in(
                folder.path(),
                "0::/a\n",
                &[("a/memory.events", &format!("oom 1\noom_kill {kills}\n"))],
            )
        };
        let mut history = ReportHistory::begin(count("3"));
        let start = Instant::now();
        assert_eq!(history.killed(start), "killed");
        count("4");
        assert_eq!((history.killed(start), history.killed(start)), (OOM, "killed"));
        // Three kills are counted, two of workers and one of another process.
        count("7");
        let killed = [0, 9, 20].map(|seconds| history.killed(start + Duration::from_secs(seconds)));
        assert_eq!(killed, [OOM, OOM, "killed"]);
        assert_eq!(history.killed(start), "killed");
        // Without a control group, out-of-memory kills cannot be recognized.
        let mut history = ReportHistory::begin(stand_in(folder.path(), "", &[]));
        assert_eq!(history.killed(Instant::now()), "killed");
    }
}
