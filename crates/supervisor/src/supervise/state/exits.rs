//! What the end of a worker means: its requests go elsewhere, and another is started in its place.

use std::time::{Duration, Instant};

use rookery_status::format_count;

use super::super::Outcome;
use super::super::restart_backoff::RestartBackoff;
use super::super::worker_process::{WorkerPhase, WorkerProcess};
use super::events::had;
use super::report::OOM;
use super::{ASKED, RunState, Slot, Supervisor};
use crate::process::{Exit, reap};

/// The exit status of a start that another start cannot mend (`EX_CONFIG` of sysexits.h).
const MISCONFIGURED: i32 = 78;

/// Within what time failures are counted for [`SupervisorEvent::Turned`](crate::SupervisorEvent::Turned).
const RECENT: Duration = Duration::from_secs(60);

/// How long replies of a worker that has ended are still sent where no other worker serves.
const LAST_REPLIES: Duration = Duration::from_secs(2);

/// The most failures that are counted.
const MOST_FAILURES: usize = 1000;

impl Supervisor<'_> {
    /// Ends it all where that is wanted, and no worker has anything to show but ends.
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

    /// Returns how the server ends because a worker has, if it does: one that nobody has asked to end
    /// has finished where its status is 0, and is not started again without [`SupervisorConfig::restarts`].
    ///
    /// [`SupervisorConfig::restarts`]: crate::SupervisorConfig::restarts
    fn outcome_of(&self, worker: &WorkerProcess, exit: Exit) -> Option<Outcome> {
        match worker.leaves {
            None | Some(ASKED) if exit == Exit::Status(0) => Some(Outcome::Ended(exit)),
            _ if self.plan.restarts => None,
            None | Some(ASKED) => Some(Outcome::Ended(exit)),
            // We have ended it: its status says nothing of the app.
            Some(_) if !self.was_ready => Some(Outcome::NeverReady),
            Some(_) => Some(Outcome::Ended(Exit::Status(1))),
        }
    }

    /// Finishes what is in hand, and then ends with `outcome`.
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
            // Nobody answers what waits.
            self.course = RunState::Draining {
                until: Instant::now() + self.plan.times.drain.min(LAST_REPLIES),
            };
        }
    }

    fn note_failure(&mut self, now: Instant) {
        if self.failures.len() == MOST_FAILURES {
            self.failures.pop_front();
        }
        self.failures.push_back(now);
    }

    /// Returns how many workers have failed within the last minute.
    pub(super) fn recent_failures(&mut self, now: Instant) -> usize {
        while self.failures.front().is_some_and(|at| now.duration_since(*at) > RECENT) {
            self.failures.pop_front();
        }
        self.failures.len()
    }

    pub(super) fn ended(&mut self, epoch: u64, pid: libc::pid_t) {
        let ended = reap(pid);
        let exit = ended.exit;
        let Some(mut worker) = self.workers.remove(&epoch) else { return };
        // At once: whoever connects waits for it.
        self.on_acceptor_ended(epoch);
        // What the pool knows of it is gone when it has heard of the end.
        let route = worker.backend.load.routes.last_begun(&worker.backend.scoreboard);
        // Before anything else: requests that it had wait for this.
        self.registry.remove(&worker.backend);
        let reason = self.history.has_ended(&worker, exit);
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
                // It served until another took its place: failures from before it are no loop.
                place.backoff = RestartBackoff::default();
            }
            return self.tell_of_end(&worker, &ended);
        }
        place.current = place.successor.take();
        if place.current.is_some() && self.outcome_of(&worker, exit).is_none() {
            // The one that was to take its place serves when it is ready, which ends the replacement.
            self.note_failure(now);
            let had = had(&worker, &ended);
            let what = "the one that takes its place is being started";
            return self
                .tell(&format!("worker {number} ({}) {exit}; {what}. It had {had}", worker.pid));
        }
        if self.has_ended_first(&worker, exit) {
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
        // The others fail alike: one line for each round of starts, and none for the last.
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
