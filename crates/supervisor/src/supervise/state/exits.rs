//! The reaction to the end of a worker, whose requests are retried elsewhere and whose slot gets
//! another worker.

use std::time::{Duration, Instant};

use rookery_status::format_count;

use super::super::Outcome;
use super::super::restart_backoff::RestartBackoff;
use super::super::worker_process::{WorkerPhase, WorkerProcess};
use super::events::had;
use super::report::OOM;
use super::{ASKED, RunState, Slot, Supervisor};
use crate::process::{Exit, reap};

/// The exit status of a start that failed with an error of the configuration, which another start
/// cannot fix (`EX_CONFIG` of sysexits.h).
const MISCONFIGURED: i32 = 78;

/// The period for which failures are counted for
/// [`SupervisorEvent::Turned`](crate::SupervisorEvent::Turned).
const RECENT: Duration = Duration::from_secs(60);

/// The time for which responses of an ended worker are still sent to clients while no other worker
/// serves.
const LAST_REPLIES: Duration = Duration::from_secs(2);

/// The maximum number of failures that are counted.
const MOST_FAILURES: usize = 1000;

impl Supervisor<'_> {
    /// Ends the server if [`SupervisorConfig::fails_fast`](crate::SupervisorConfig::fails_fast) is
    /// true and all slots are in a crash loop.
    pub(super) fn end_if_all_loop(&mut self, now: Instant) {
        let loops = |slot: &Slot| {
            let current = slot.current.and_then(|current| self.workers.get(&current));
            let life = current.map_or(Duration::ZERO, |worker| now.duration_since(worker.began));
            slot.backoff.is_loop(life)
                && current.is_none_or(|worker| worker.backend.responses() == 0)
        };
        if self.plan.fails_fast && self.slots.iter().filter(|slot| !slot.is_given_up).all(loops) {
            self.end(Outcome::CrashLoop);
        }
    }

    /// Returns the outcome with which the server ends because a worker has ended, or `None` if the
    /// server continues. A worker that ends with status 0 without a request to end has finished. No
    /// worker is started again if [`SupervisorConfig::restarts`] is false.
    ///
    /// [`SupervisorConfig::restarts`]: crate::SupervisorConfig::restarts
    fn outcome_of(&self, worker: &WorkerProcess, exit: Exit) -> Option<Outcome> {
        match worker.leaves {
            None | Some(ASKED) if exit == Exit::Status(0) => Some(Outcome::Ended(exit)),
            _ if self.plan.restarts => None,
            None | Some(ASKED) => Some(Outcome::Ended(exit)),
            // The supervisor has stopped the worker, so the exit status gives no information about
            // the app.
            Some(_) if !self.was_ready => Some(Outcome::NeverReady),
            Some(_) => Some(Outcome::Ended(Exit::Status(1))),
        }
    }

    /// Finishes the requests in progress, then ends the server with `outcome`.
    fn finish(&mut self, outcome: Outcome) {
        for slot in &mut self.slots {
            slot.start_at = None;
        }
        if !self.was_ready {
            return self.end(outcome);
        }
        self.outcome = outcome;
        if !matches!(self.course, RunState::Draining { .. }) {
            self.drain();
        }
        if self.registry.backends().is_empty() {
            // No worker is left to respond to waiting requests, so the drain is short.
            self.course = RunState::Draining {
                until: Instant::now() + self.plan.times.drain.min(LAST_REPLIES),
            };
        }
    }

    /// Records a failure of a worker.
    fn note_failure(&mut self, now: Instant) {
        if self.failures.len() == MOST_FAILURES {
            self.failures.pop_front();
        }
        self.failures.push_back(now);
    }

    /// Returns the number of workers that failed within the last minute.
    pub(super) fn recent_failures(&mut self, now: Instant) -> usize {
        while self.failures.front().is_some_and(|at| now.duration_since(*at) > RECENT) {
            self.failures.pop_front();
        }
        self.failures.len()
    }

    /// Reaps a worker process that has ended, and schedules another one for its slot where needed.
    pub(super) fn ended(&mut self, epoch: u64, pid: libc::pid_t) {
        let ended = reap(pid);
        let exit = ended.exit;
        let Some(mut worker) = self.workers.remove(&epoch) else { return };
        // First, because clients may be waiting for a process that accepts their connections.
        self.on_acceptor_ended(epoch);
        // The route must be read before the pool processes the end of the worker and discards it.
        let route = worker.backend.load.routes.last_begun(&worker.backend.scoreboard);
        // Early, because requests that the worker had in flight wait for this.
        self.registry.remove(&worker.backend);
        let reason = self.history.on_exit(&worker, exit);
        let now = Instant::now();
        self.outputs.extend(worker.clean_up().into_iter().map(|output| (output, now)));
        if let RunState::Ending(_) = self.course {
            return;
        }
        if worker.is_serving {
            self.call_on_spares();
        }
        let (slot, number) = (worker.start.slot, worker.start.slot);
        let place = &mut self.slots[slot as usize];
        if place.is_given_up {
            place.current.take_if(|current| *current == epoch);
            return self.tell_of_end(&worker, &ended);
        }
        if place.successor == Some(epoch) {
            place.successor = None;
            return self.failed_to_replace(&worker, exit, reason == OOM);
        }
        if place.current != Some(epoch) {
            if worker.backend.responses() > 0 {
                // The worker served until it was replaced, so earlier failures are no crash loop.
                place.backoff = RestartBackoff::default();
            }
            return self.tell_of_end(&worker, &ended);
        }
        place.current = place.successor.take();
        if place.current.is_some() && self.outcome_of(&worker, exit).is_none() {
            // The starting replacement will serve as soon as it is ready, which completes the
            // replacement.
            self.note_failure(now);
            let had = had(&worker, &ended);
            let what = "the one that takes its place is being started";
            return self
                .tell(&format!("worker {number} ({}) {exit}; {what}. It had {had}", worker.pid));
        }
        if self.end_replacement(&worker, exit) {
            self.slots[slot as usize].start_at = Some(now);
            return self.tell_of_end(&worker, &ended);
        }
        if let Some(outcome) = self.outcome_of(&worker, exit) {
            let what = if exit == Exit::Status(0) { "has finished" } else { "has failed" };
            let had = had(&worker, &ended);
            self.tell(&format!("worker {number} ({}) {what}: it {exit}. It had {had}", worker.pid));
            return self.finish(outcome);
        }
        self.note_failure(now);
        let place = &mut self.slots[slot as usize];
        let has_answered = worker.backend.responses() > 0;
        let has_failed = matches!(worker.phase, WorkerPhase::Starting { .. }) || !self.was_ready;
        place.failed_starts += u32::from(has_failed);
        place.is_misconfigured = has_failed && exit == Exit::Status(MISCONFIGURED);
        let starts = place.failed_starts;
        let pause =
            place.backoff.ended(now.duration_since(worker.began), has_answered, now, epoch * 7919);
        place.start_at = Some(now + pause.time);
        if self.is_hopeless() {
            let starts = format_count(starts as usize, "start");
            self.tell(&format!(
                "no worker became ready after {starts}: worker {number} ({}) {exit}",
                worker.pid
            ));
            return self.end(Outcome::NeverReady);
        }
        // All workers usually fail in the same way, so one line is logged for each round of starts,
        // and none for the last round.
        let failed_as_often = self.slots.iter().filter(|slot| slot.failed_starts >= starts).count();
        if !self.was_ready && (failed_as_often > 1 || starts > self.plan.start_retries) {
            return self.end_if_all_loop(now);
        }
        let cause = match (exit, worker.phase) {
            _ if reason == OOM => ": the control group had no memory left",
            (Exit::Signal(libc::SIGKILL), phase) if phase != WorkerPhase::Killed => {
                ", which nobody here has sent: perhaps out of memory"
            }
            (_, WorkerPhase::Starting { .. }) => " before it was ready",
            _ => "",
        };
        let when = match pause.time {
            Duration::ZERO => "at once".to_owned(),
            time => format!("in {:.1} s", time.as_secs_f64()),
        };
        let asked = route.map_or(String::new(), |(route, _)| format!("; R had begun with {route}"));
        self.tell(&format!(
            "worker {number} ({}) {exit}{cause}{asked}; it is started again {when}. It had {}",
            worker.pid,
            had(&worker, &ended)
        ));
        if pause.is_news_of_loop {
            self.tell(&format!(
                "worker {number} ends again and again without having answered anything: see what it said above. It is tried on, ever \
                 more seldom; requests that no other worker takes get 503"
            ));
        }
        self.end_if_all_loop(now);
    }
}
