//! What the end of a worker means: its requests go elsewhere, and another is started in its place.

use std::time::{Duration, Instant};

use super::super::Outcome;
use super::super::worker::Phase;
use super::events::had;
use super::report::OOM;
use super::{Course, Slot, Supervisor};
use crate::process::{Exit, reap};

impl Supervisor<'_> {
    /// Ends it all where that is wanted, and no worker has anything to show but ends.
    pub(super) fn end_if_all_loop(&mut self, now: Instant) {
        let loops = |slot: &Slot| {
            let current = slot.current.and_then(|current| self.workers.get(&current));
            let life = current.map_or(Duration::ZERO, |worker| now.duration_since(worker.began));
            slot.backoff.is_loop(life) && current.is_none_or(|worker| worker.member.answered() == 0)
        };
        if self.plan.fails_fast && self.slots.iter().filter(|slot| !slot.is_given_up).all(loops) {
            self.end(Outcome::CrashLoop);
        }
    }

    pub(super) fn ended(&mut self, epoch: u64, pid: libc::pid_t) {
        let ended = reap(pid);
        let exit = ended.exit;
        let Some(mut worker) = self.workers.remove(&epoch) else { return };
        // At once: whoever connects waits for it.
        self.on_acceptor_ended(epoch);
        // What the pool knows of it is gone when it has heard of the end.
        let route = worker.member.load.asked.begun(&worker.member.board);
        // Before anything else: requests that it had wait for this.
        self.roster.leave(&worker.member);
        let reason = self.history.has_ended(&worker, exit);
        let now = Instant::now();
        self.outputs.extend(worker.clean_up().into_iter().map(|output| (output, now)));
        if let Course::Ending(_) = self.course {
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
            return self.failed_to_replace(&worker, exit);
        }
        if place.current != Some(epoch) {
            return self.tell_of_end(&worker, &ended);
        }
        place.current = place.successor.take();
        if place.current.is_some() {
            // The one that was to take its place does so when it is ready.
            self.replacements.finish(slot);
            return;
        }
        if self.has_ended_first(&worker, exit) {
            self.slots[slot as usize].start_at = Some(now);
            return self.tell_of_end(&worker, &ended);
        }
        let place = &mut self.slots[slot as usize];
        let has_answered = worker.member.answered() > 0;
        let has_failed = matches!(worker.phase, Phase::Starting { .. }) || !self.was_ready;
        place.failed_starts += u32::from(has_failed);
        let pause = place.backoff.ended(now.duration_since(worker.began), has_answered, now, epoch * 7919);
        place.start_at = Some(now + pause.time);
        if self.is_hopeless() {
            self.tell(&format!(
                "worker {number} ({}) {exit} before it was ready, as all others did and all retries",
                worker.pid
            ));
            return self.end(Outcome::NeverReady);
        }
        let cause = match (exit, worker.phase) {
            _ if reason == OOM => ": the control group had no memory left",
            (Exit::Signal(libc::SIGKILL), phase) if phase != Phase::Killed => {
                ", which nobody here has sent: perhaps out of memory"
            }
            (_, Phase::Starting { .. }) => " before it was ready",
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
