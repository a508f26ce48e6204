//! Which workers are replaced, by one that is started beside them: for a reload, their requests, their age or their memory.

use std::time::{Duration, Instant};

use super::super::recycle::Reason;
use super::super::worker::Worker;
use super::Supervisor;
use crate::process::Exit;

impl Supervisor<'_> {
    pub(super) fn look_at_age(&mut self, now: Instant) {
        let numbers = (self.wanted, self.plan.spares);
        for (slot, place) in self.slots.iter().enumerate() {
            let slot = slot as u32;
            let Some(worker) = place.current.and_then(|current| self.workers.get_mut(&current)) else {
                continue;
            };
            if self.replacements.has(slot) || place.replacing.1.is_some_and(|until| now < until) {
                continue;
            }
            if let Some(reason) = self.plan.recycle.reason(worker, numbers, now) {
                let number = worker.start.number();
                (self.plan.tell)(&format!("worker {number} ({}) is replaced: {reason}", worker.pid));
                self.replacements.add(slot, reason);
            }
        }
    }

    pub(super) fn replace_next(&mut self) {
        while let Some((slot, _)) = self.replacements.next() {
            let place = &self.slots[slot as usize];
            if place.current.is_none() {
                // It is started anyway, and there is nothing to replace: at once then, since it may be another app now.
                self.slots[slot as usize].start_at = Some(Instant::now());
                self.replacements.finish(slot);
                continue;
            }
            let successor = self.start(slot);
            self.slots[slot as usize].successor = successor;
            if successor.is_none() {
                self.slots[slot as usize].start_at = None;
                if self.replacements.finish(slot) == Some(Reason::Reload) {
                    self.replacements.give_up_reload();
                    self.end_reload(Some(format!("the new worker {} cannot be started", slot + 1)));
                }
            }
        }
    }

    pub(super) fn failed_to_replace(&mut self, worker: &Worker, exit: Exit) {
        let (slot, number) = (worker.start.slot, worker.start.number());
        let what = format!("the new worker {number} ({}) {exit} before it was ready", worker.pid);
        // What is wrong with the one that serves does not go away: without a pause an R would be started each second.
        let now = Instant::now();
        let place = &mut self.slots[slot as usize];
        let pause = place.replacing.0.ended(Duration::ZERO, false, now, worker.start.epoch * 7919);
        place.replacing.1 = Some(now + pause.time);
        match self.replacements.finish(slot) {
            // That which has been asked for since may be of an app that has been mended.
            Some(Reason::Reload) if worker.start.generation < self.generation => self.tell(&format!(
                "{what}. The one from before serves on, until the reload that has been asked for since comes to it"
            )),
            Some(Reason::Reload) => {
                self.replacements.give_up_reload();
                self.tell(&format!("the reload has failed: {what}. Those from before serve on"));
                self.end_reload(Some(what));
            }
            _ => self.tell(&format!("{what}. The one from before serves on")),
        }
    }
}
