//! Log lines for the operator about starts, ends and drains.

use std::time::{Duration, Instant};

use rookery_status::thread_time;
use rookery_worker_protocol::now as scoreboard_time;

use super::super::slow_log::SlowLogEntry;
use super::super::worker_process::{WorkerPhase, WorkerProcess};
use super::{RunState, Supervisor};
use crate::process::ProcessEnd;

/// The interval of log lines about the drain of the server.
const ENDING_EVERY: Duration = Duration::from_secs(5);

/// The time after which the first line about the drain of a worker is logged. The interval doubles
/// with each line, because sessions may last for hours.
const DRAINING_FIRST: Duration = Duration::from_secs(5);

impl Supervisor<'_> {
    /// Logs that a worker is ready, and how long its start took.
    pub(super) fn tell_of_start(&self, worker: &WorkerProcess) {
        let took = worker.began.elapsed().as_millis();
        let (number, pid) = (worker.start.slot, worker.pid);
        let as_what = if worker.is_serving { "" } else { ", a spare" };
        self.tell(&format!("worker {number} ({pid}){as_what} is ready, {took} ms after its start"));
    }

    /// Logs the end of a worker that was requested to end, with its resource usage.
    pub(super) fn tell_of_end(&self, worker: &WorkerProcess, ended: &ProcessEnd) {
        let (number, pid, exit) = (worker.start.slot, worker.pid, ended.exit);
        self.tell(&format!(
            "worker {number} ({pid}) {exit}, as it was to; it had {}",
            had(worker, ended)
        ));
    }

    /// Logs workers whose R process is busy with one task for a long time, and kills workers that
    /// have missed a wake-up.
    pub(super) fn look_at_slow(&mut self, now: Instant) {
        let time = scoreboard_time();
        for worker in self.workers.values_mut() {
            if !matches!(worker.phase, WorkerPhase::Ready | WorkerPhase::Draining { .. }) {
                continue;
            }
            let (number, pid) = (worker.start.slot, worker.pid);
            let scoreboard = worker.backend.scoreboard.read();
            match worker.slow.look(&scoreboard, time, || thread_time(pid, scoreboard.r_thread)) {
                SlowLogEntry::Nothing => {}
                SlowLogEntry::Long(lasts, computes) => {
                    let route = worker.backend.load.routes.last_begun(&worker.backend.scoreboard);
                    let route = route.map_or(String::new(), |(route, _)| format!(" with {route}"));
                    let how = match computes {
                        Some(true) => ": it computes",
                        Some(false) => ": it waits, for a file, a database or a lock",
                        None => "",
                    };
                    (self.plan.tell)(&format!(
                        "the R of worker {number} ({pid}) has been busy for {} s{route}{how}",
                        lasts.as_secs()
                    ));
                }
                SlowLogEntry::Over(lasts) => (self.plan.tell)(&format!(
                    "the R of worker {number} ({pid}) has come to an end with that, after {} s",
                    lasts.as_secs()
                )),
            }
            if worker.phase == WorkerPhase::Ready && worker.stalled.look(&scoreboard, now, time) {
                (self.plan.tell)(&format!(
                    "the R process of worker {number} ({pid}) is idle with {} waiting for it \
                     (passed to it: {}, taken: {}). This is a bug in Rookery, please report it. \
                     The worker is killed, and its waiting requests go to another worker",
                    several(scoreboard.queued(), "request"),
                    scoreboard.handed,
                    scoreboard.taken
                ));
                worker.leaves = Some("stalled");
                worker.kill();
            }
        }
    }

    /// Logs what the drain of the server or of each draining worker waits for.
    pub(super) fn tell_of_drains(&mut self, now: Instant) {
        if let RunState::Draining { until } = self.course {
            let connections = self.connections();
            if connections > 0 && self.told_of_drain.is_none_or(|at| now >= at) {
                self.told_of_drain = Some(now + ENDING_EVERY);
                self.tell(&format!(
                    "ending: waiting for {}, {} s at the most",
                    several(connections as u64, "connection"),
                    until.saturating_duration_since(now).as_secs()
                ));
            }
            return;
        }
        for worker in self.workers.values_mut().filter(|worker| !worker.is_between_servers()) {
            let WorkerPhase::Draining { until, sessions } = worker.phase else { continue };
            let (at, pause) =
                *worker.tells_at.get_or_insert((now + DRAINING_FIRST, DRAINING_FIRST));
            if now < at {
                continue;
            }
            worker.tells_at = Some((now + pause, pause * 2));
            let (requests, sockets) = worker.backend.load();
            // The requests on connections that the worker has accepted itself are not counted
            // separately, so those connections are counted.
            let requests = requests.max(worker.backend.connections().saturating_sub(sockets));
            let until = if sockets > 0 { until.max(sessions) } else { until };
            (self.plan.tell)(&format!(
                "worker {} ({}) is to end: waiting for {} and {}, {} s at the most",
                worker.start.slot,
                worker.pid,
                several(requests as u64, "request"),
                several(sockets as u64, "WebSocket"),
                until.saturating_duration_since(now).as_secs()
            ));
        }
    }
}

/// Returns the lifetime and the resource usage of an ended worker, as text.
pub(super) fn had(worker: &WorkerProcess, ended: &ProcessEnd) -> String {
    format!(
        "{} s, {}, {} MB of memory at the most, {:.1} s of processor time",
        worker.began.elapsed().as_secs(),
        several(worker.backend.responses(), "request"),
        ended.memory / 1_000_000,
        ended.time.as_secs_f64()
    )
}

/// Returns a number with its noun, in the plural unless the number is 1.
fn several(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
