//! The record of past events, which is used only for status reports and metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rookery_status::{ExitReason, LastExit};
use rookery_worker_protocol::SpanCounters;

use super::super::clock;
use super::super::worker::{Handle as _, Worker, WorkerPhase};
use crate::process::{ControlGroups, Exit};
use crate::state::SupervisorState;

/// The maximum time after an out-of-memory kill within which the killed worker must end. The
/// control group counts the kill at once, but the process ends only when all its memory has been
/// freed. If no worker ends within this time, the kill hit another process.
const KILL_MATCH_TIME: Duration = Duration::from_secs(10);

/// The record of past events that the supervisor needs only for status reports and metrics.
#[derive(Debug)]
pub(in crate::supervise) struct ReportHistory {
    /// The wall-clock time at which the supervisor started.
    started: SystemTime,
    /// The number of workers that have ended, by the name of the exit reason.
    exits: BTreeMap<&'static str, u64>,
    /// The number of WebSockets that ended with their worker, by the reason of the worker's end.
    sessions_lost: BTreeMap<&'static str, u64>,
    /// The number of workers that became ready, and the sum of their start times in seconds.
    readied: (u64, f64),
    /// The counts of the spans of workers that have ended.
    past_spans: Arc<SpanCounters>,
    groups: ControlGroups,
    /// The number of out-of-memory kills that the control group counted at the last query.
    oom_kills: Option<u64>,
    /// The number of times that a memory limit had been exceeded at the last query.
    exceeded_limits: Option<u64>,
    /// The time until which out-of-memory kills are due to an exceeded limit of a control group.
    limit_kills_until: Option<Instant>,
    /// The number of out-of-memory kills that are not attributed to a worker yet, and the time
    /// until which they can be attributed to a worker that ends.
    unmatched_kills: (u64, Option<Instant>),
}

impl ReportHistory {
    /// Creates a record without events. Out-of-memory kills are read from these control groups.
    pub(in crate::supervise) fn new(groups: ControlGroups) -> ReportHistory {
        ReportHistory {
            started: SystemTime::now(),
            exits: BTreeMap::new(),
            sessions_lost: BTreeMap::new(),
            readied: (0, 0.0),
            past_spans: Arc::default(),
            oom_kills: groups.kills_for_memory(),
            exceeded_limits: groups.exceeded_limits(),
            limit_kills_until: None,
            unmatched_kills: (0, None),
            groups,
        }
    }

    /// Returns the number of bytes of memory that the server's control group has left, or `None` if
    /// its memory is unlimited.
    pub(in crate::supervise) fn memory_left(&self) -> Option<u64> {
        self.groups.memory_left()
    }

    /// Counts a worker that has become ready, and the duration of its start.
    pub(in crate::supervise) fn on_ready(&mut self, start_time: Duration) {
        self.readied.0 += 1;
        self.readied.1 += start_time.as_secs_f64();
    }

    /// Records the end of a worker. Returns its reason, and the report about it.
    pub(in crate::supervise) fn on_exit(
        &mut self,
        worker: &Worker,
        exit: Exit,
    ) -> (ExitReason, LastExit) {
        let reason = match worker.exit_reason {
            // R's `quit()` also announces that the worker stops, even when its exit status is an
            // error.
            Some(ExitReason::AppStop) if exit != Exit::Status(0) => ExitReason::Crash,
            Some(reason) => reason,
            None => self.unrequested_exit_reason(worker, exit),
        };
        *self.exits.entry(reason.name()).or_default() += 1;
        let sessions = worker.process.load().1 as u64;
        self.past_spans.add_all(worker.process.backend.scoreboard.spans());
        if sessions > 0 {
            *self.sessions_lost.entry(reason.name()).or_default() += sessions;
        }
        let (code, signal) = match exit {
            Exit::Status(code) => (Some(code), None),
            Exit::Signal(signal) => (None, Some(signal)),
        };
        let at = SystemTime::now();
        (reason, LastExit { code, signal, how: exit.to_string(), reason, at })
    }

    /// Returns the reason why a worker process has ended although the supervisor had not requested
    /// it.
    fn unrequested_exit_reason(&mut self, worker: &Worker, exit: Exit) -> ExitReason {
        if exit != Exit::Signal(libc::SIGKILL) || worker.phase == WorkerPhase::Killed {
            return ExitReason::Crash;
        }
        self.kill_reason(clock::now())
    }

    /// Returns the reason for the end of a worker that was killed by another process or by the
    /// system: [`ExitReason::OutOfMemory`] if the control group has counted an out-of-memory kill
    /// that matches no other worker, and otherwise [`ExitReason::Killed`].
    fn kill_reason(&mut self, now: Instant) -> ExitReason {
        // If several workers are killed at once, the first call finds all their kills in the
        // counter, and saves the remaining ones for the next calls.
        let kills = self.groups.kills_for_memory();
        let before = std::mem::replace(&mut self.oom_kills, kills);
        let mut new = kills.zip(before).map_or(0, |(kills, before)| kills.saturating_sub(before));
        // The system also counts processes that it kills because the whole machine has no memory
        // left. No limit has been exceeded then.
        let limits = self.groups.exceeded_limits();
        if limits > std::mem::replace(&mut self.exceeded_limits, limits) {
            self.limit_kills_until = Some(now + KILL_MATCH_TIME);
        }
        if limits.is_some() && self.limit_kills_until.is_none_or(|until| now >= until) {
            new = 0;
        }
        let (unmatched, until) = self.unmatched_kills;
        let unmatched = if until.is_some_and(|until| now < until) { unmatched } else { 0 } + new;
        if unmatched == 0 {
            self.unmatched_kills = (0, None);
            return ExitReason::Killed;
        }
        let until = if new > 0 { Some(now + KILL_MATCH_TIME) } else { until };
        self.unmatched_kills = (unmatched - 1, until);
        ExitReason::OutOfMemory
    }

    /// Writes the recorded events into a status report.
    pub(in crate::supervise) fn write_to(&self, report: &mut SupervisorState) {
        report.server.started = Some(self.started);
        report.server.exits.clone_from(&self.exits);
        report.server.sessions_lost.clone_from(&self.sessions_lost);
        report.server.readied = self.readied;
        report.past_spans = Arc::clone(&self.past_spans);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::stand_in;

    #[test]
    fn a_killed_worker_is_out_of_memory_if_the_control_group_counts_a_kill() {
        let folder = tempfile::tempdir().unwrap();
        let count = |kills: &str| {
            stand_in(
                folder.path(),
                "0::/a\n",
                &[("a/memory.events", &format!("oom {kills}\noom_kill {kills}\n"))],
            )
        };
        let mut history = ReportHistory::new(count("3"));
        let start = Instant::now();
        assert_eq!(history.kill_reason(start), ExitReason::Killed);
        count("4");
        assert_eq!(
            (history.kill_reason(start), history.kill_reason(start)),
            (ExitReason::OutOfMemory, ExitReason::Killed)
        );
        // Three kills are counted, two of workers and one of another process.
        count("7");
        let killed =
            [0, 9, 20].map(|seconds| history.kill_reason(start + Duration::from_secs(seconds)));
        assert_eq!(killed, [ExitReason::OutOfMemory, ExitReason::OutOfMemory, ExitReason::Killed]);
        assert_eq!(history.kill_reason(start), ExitReason::Killed);
        // Without a control group, out-of-memory kills cannot be recognized.
        let mut history = ReportHistory::new(stand_in(folder.path(), "", &[]));
        assert_eq!(history.kill_reason(Instant::now()), ExitReason::Killed);
    }

    /// `oom_kill` also counts the processes of the group that the kernel kills because the whole
    /// machine has no memory left. `oom` counts only how often the limit of the group, or of a
    /// group in it, was the cause.
    #[test]
    fn a_kill_for_the_memory_of_the_machine_is_not_attributed_to_the_control_group() {
        let folder = tempfile::tempdir().unwrap();
        let count = |kills: &str| {
            stand_in(
                folder.path(),
                "0::/a\n",
                &[
                    ("memory.events", &format!("oom 0\noom_kill {kills}\n")),
                    ("a/memory.events", &format!("oom 0\noom_kill {kills}\n")),
                ],
            )
        };
        let mut history = ReportHistory::new(count("0"));
        count("1");
        assert_eq!(history.kill_reason(Instant::now()), ExitReason::Killed);
    }
}
