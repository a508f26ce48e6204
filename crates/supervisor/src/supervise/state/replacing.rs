//! Which workers are replaced, by one that is started beside them: for a reload, their requests, their age or their memory.

use std::time::{Duration, Instant};

use rookery_worker_protocol::Message;

use super::super::recycle::ReplaceReason;
use super::super::worker_process::{WorkerPhase, WorkerProcess};
use super::Supervisor;
use crate::process::Exit;

impl Supervisor<'_> {
    pub(super) fn look_at_age(&mut self, now: Instant) {
        let workers = self.wanted + self.plan.spares + u32::from(self.plan.surges);
        for (slot, place) in self.slots.iter().enumerate() {
            let slot = slot as u32;
            let Some(worker) = place.current.and_then(|current| self.workers.get_mut(&current))
            else {
                continue;
            };
            if self.replacements.has(slot) || place.replacing.1.is_some_and(|until| now < until) {
                continue;
            }
            if let Some(reason) = self.plan.recycle.reason(worker, workers, now) {
                let number = worker.start.slot;
                (self.plan.tell)(&format!(
                    "worker {number} ({}) is replaced: {reason}",
                    worker.pid
                ));
                self.replacements.add(slot, reason);
            }
            if worker.age.asks_to_collect() {
                worker.say(Message::Collect);
            }
        }
    }

    pub(super) fn replace_next(&mut self) {
        while let Some((slot, reason)) = self.replacements.first() {
            if self.waits_for_others(slot, reason) {
                return;
            }
            self.replacements.next();
            let place = &mut self.slots[slot as usize];
            if place.current.is_none() {
                // It is started anyway, and there is nothing to replace: at once then, since it may be another app now.
                place.start_at = Some(Instant::now());
                if self.plan.surges || reason != ReplaceReason::Reload {
                    self.replacements.finish(slot);
                }
                // Else the next one ends only when this one serves: if the app is still broken, those that serve are the last.
                continue;
            }
            if !self.plan.surges || !self.fits_beside(slot, reason) {
                self.end_first(slot, reason);
                continue;
            }
            let successor = self.start(slot);
            self.slots[slot as usize].successor = successor;
            if successor.is_none() {
                self.slots[slot as usize].start_at = None;
                if self.replacements.finish(slot) == Some(ReplaceReason::Reload) {
                    self.fail_reload(format!("the new worker {slot} cannot be started"));
                }
            }
        }
    }

    /// Returns whether another worker of the slot fits into the control group, as far as the one
    /// that serves shows how much memory it takes to start one; says so where it does not.
    fn fits_beside(&self, slot: u32, reason: ReplaceReason) -> bool {
        let current =
            self.slots[slot as usize].current.and_then(|current| self.workers.get(&current));
        let Some(needed) = current.and_then(|worker| worker.memory_at_start) else { return true };
        let Some(left) = self.history.groups.memory_left() else { return true };
        if needed <= left {
            return true;
        }
        self.tell(&format!(
            "worker {slot} is replaced without overlap ({reason}): a second R process takes about {} MB, and the control group \
             has {} MB left",
            needed / 1_000_000,
            left / 1_000_000
        ));
        false
    }

    /// The slots that are reloaded, in that order. Where the old one ends first, those that serve are the last: if the app is broken, they stay.
    pub(super) fn reloaded_slots(&self) -> Vec<u32> {
        let mut slots = self.kept_slots();
        if !self.plan.surges {
            slots.sort_by_key(|slot| self.serves(*slot));
        }
        slots
    }

    fn serves(&self, slot: u32) -> bool {
        let current =
            self.slots[slot as usize].current.and_then(|current| self.workers.get(&current));
        current.is_some_and(|worker| worker.is_serving && worker.phase == WorkerPhase::Ready)
    }

    /// Whether it would be one less of too few, where the old one ends first: what is wrong with those that do not serve may be wrong with the
    /// one that would take its place. A reload does not wait, since it may mend them.
    fn waits_for_others(&self, slot: u32, reason: ReplaceReason) -> bool {
        !self.plan.surges && reason != ReplaceReason::Reload && self.serves(slot) && self.lacks()
    }

    /// The old one finishes what it has; the new one is started when it has ended.
    fn end_first(&mut self, slot: u32, reason: ReplaceReason) {
        let old =
            self.slots[slot as usize].current.and_then(|current| self.workers.get_mut(&current));
        if let Some(old) = old {
            old.leaves = Some(reason.name());
            self.registry.drain(&old.backend);
            // Nobody is in its place until it has ended.
            old.drain(self.plan.times.without_sessions());
        }
        self.call_on_spares();
    }

    /// Whether a worker that has ended was to end first, and another to take its place now. One that was to take such a place has failed.
    pub(super) fn has_ended_first(&mut self, worker: &WorkerProcess, exit: Exit) -> bool {
        let slot = worker.start.slot;
        let Some(reason) = self.replacements.current_of(slot) else { return false };
        if worker.leaves == Some(reason.name()) {
            return true;
        }
        self.replacements.finish(slot);
        if reason == ReplaceReason::Reload {
            let what = format!(
                "the new worker {} ({}) {exit} before it was ready",
                worker.start.slot, worker.pid
            );
            self.tell(&format!(
                "the reload has failed: {what}. Those that it has not come to serve on"
            ));
            self.fail_reload(what);
        }
        false
    }

    /// Gives up what a reload has not come to.
    fn fail_reload(&mut self, why: String) {
        self.numbers_to_come = None;
        self.is_reload_untold = false;
        self.replacements.give_up_reload();
        self.end_reload(Some(why));
    }

    /// A worker has ended that was to take another's place. For want of memory it is tried once more
    /// without overlap.
    pub(super) fn failed_to_replace(
        &mut self,
        worker: &WorkerProcess,
        exit: Exit,
        has_no_memory: bool,
    ) {
        let (slot, number) = (worker.start.slot, worker.start.slot);
        if let Some(reason) = self.replacements.current_of(slot).filter(|_| has_no_memory) {
            self.tell(&format!(
                "the new worker {number} ({}) was ended since the control group had no memory left: worker {number} is replaced \
                 without overlap ({reason})",
                worker.pid
            ));
            return self.end_first(slot, reason);
        }
        let what = format!("the new worker {number} ({}) {exit} before it was ready", worker.pid);
        // What is wrong with the one that serves does not go away: without a pause an R would be started each second.
        let now = Instant::now();
        let place = &mut self.slots[slot as usize];
        let pause = place.replacing.0.ended(Duration::ZERO, false, now, worker.start.epoch * 7919);
        place.replacing.1 = Some(now + pause.time);
        match self.replacements.finish(slot) {
            // That which has been asked for since may be of an app that has been mended.
            Some(ReplaceReason::Reload) if worker.start.generation < self.generation => self.tell(&format!(
                "{what}. The one from before serves on, until the reload that has been asked for since comes to it"
            )),
            Some(ReplaceReason::Reload) => {
                self.tell(&format!("the reload has failed: {what}. Those from before serve on"));
                self.fail_reload(what);
            }
            _ => self.tell(&format!("{what}. The one from before serves on")),
        }
    }
}
