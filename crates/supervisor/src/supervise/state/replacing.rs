//! The replacement of workers for a reload, or for their number of requests, age or memory.

use std::time::{Duration, Instant};

use rookery_worker_protocol::Message;

use super::super::recycle::ReplaceReason;
use super::super::worker_process::{WorkerPhase, WorkerProcess};
use super::Supervisor;
use crate::process::Exit;

impl Supervisor<'_> {
    /// Queues the replacement of workers that have reached a limit of the [recycle
    /// policy](super::super::RecyclePolicy), and makes workers close to their memory limit collect
    /// garbage.
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

    /// Begins queued replacements until one is in progress or has to wait.
    pub(super) fn replace_next(&mut self) {
        while let Some((slot, reason)) = self.replacements.first() {
            if self.waits_for_others(slot, reason) {
                return;
            }
            self.replacements.next();
            let place = &mut self.slots[slot as usize];
            if place.current.is_none() {
                // The slot has no worker to replace. A new one is started now instead of after the
                // restart back-off, since a reload may have repaired the app.
                place.start_at = Some(Instant::now());
                if self.plan.surges || reason != ReplaceReason::Reload {
                    self.replacements.finish(slot);
                }
                // In a reload without overlap, this replacement stays in progress until the new
                // worker is ready. If the app is still broken, the workers that serve are then not
                // drained.
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

    /// Returns true if a second worker of the slot fits into the memory of the control group. The
    /// estimate is the memory that the current worker had when it became ready. Logs a line if the
    /// memory does not suffice.
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

    /// Returns the slots to reload, in order. Without overlap, slots whose workers serve come last,
    /// so that these workers stay if the app is broken.
    pub(super) fn reloaded_slots(&self) -> Vec<u32> {
        let mut slots = self.kept_slots();
        if !self.plan.surges {
            slots.sort_by_key(|slot| self.serves(*slot));
        }
        slots
    }

    /// Returns true if the current worker of `slot` is in service and ready.
    fn serves(&self, slot: u32) -> bool {
        let current =
            self.slots[slot as usize].current.and_then(|current| self.workers.get(&current));
        current.is_some_and(|worker| worker.is_serving && worker.phase == WorkerPhase::Ready)
    }

    /// Returns true if the replacement has to wait for other workers. Without overlap, the
    /// replacement would take one more worker out of service while too few serve, and the new
    /// worker might fail as the others do. A reload does not wait, since it may repair the others.
    fn waits_for_others(&self, slot: u32, reason: ReplaceReason) -> bool {
        !self.plan.surges && reason != ReplaceReason::Reload && self.serves(slot) && self.lacks()
    }

    /// Drains the worker of `slot`. The new worker is started when the old one has ended.
    fn end_first(&mut self, slot: u32, reason: ReplaceReason) {
        let old =
            self.slots[slot as usize].current.and_then(|current| self.workers.get_mut(&current));
        if let Some(old) = old {
            old.leaves = Some(reason.name());
            self.registry.drain(&old.backend);
            // No other worker serves in the slot until the old one has ended, so WebSockets get no
            // extra time.
            old.drain(self.plan.times.without_sessions());
        }
        self.call_on_spares();
    }

    /// Returns true if the ended `worker` was drained for a replacement that can start now.
    /// Otherwise, if `worker` was itself the replacement, ends the replacement, and fails the
    /// reload that it was part of.
    pub(super) fn end_replacement(&mut self, worker: &WorkerProcess, exit: Exit) -> bool {
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

    /// Cancels the rest of a reload and reports its failure with the reason.
    fn fail_reload(&mut self, why: String) {
        self.numbers_to_come = None;
        self.is_reload_untold = false;
        self.replacements.give_up_reload();
        self.end_reload(Some(why));
    }

    /// Handles the end of a replacement that was not ready yet. If the control group had no memory
    /// left, the replacement is tried once more without overlap.
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
        // The reason for the replacement persists, so without a pause a new R process would be
        // started every second.
        let now = Instant::now();
        let place = &mut self.slots[slot as usize];
        let pause = place.replacing.0.ended(Duration::ZERO, false, now, worker.start.epoch * 7919);
        place.replacing.1 = Some(now + pause.time);
        match self.replacements.finish(slot) {
            // A later reload has been requested and continues, since it may load a repaired app.
            Some(ReplaceReason::Reload) if worker.start.generation < self.generation => {
                self.tell(&format!(
                    "{what}. The previous worker keeps serving until the next reload replaces it"
                ));
            }
            Some(ReplaceReason::Reload) => {
                self.tell(&format!("the reload has failed: {what}. Those from before serve on"));
                self.fail_reload(what);
            }
            _ => self.tell(&format!("{what}. The one from before serves on")),
        }
    }
}
