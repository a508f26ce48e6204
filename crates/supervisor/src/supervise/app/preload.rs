//! The preloaded worker: during development, a reserve worker that has loaded the packages of the
//! app and waits at its gate for the next change of the app's files. A reload then need not start R
//! and load the packages.

use std::time::{Duration, Instant};

use super::App;
use crate::supervise::clock;
use crate::supervise::worker::Worker;

/// The time after which a worker is preloaded once the app is ready. The page is rendered first, so
/// that it need not share the processors. The list of the packages is complete only then.
const DELAY: Duration = Duration::from_millis(2500);

impl App<'_> {
    /// Schedules the start of a preloaded worker during development, because the app is ready.
    pub(super) fn schedule_preload(&mut self) {
        if self.config.is_dev {
            self.preload_at = Some((clock::now() + DELAY, self.pool.generation()));
        }
    }

    /// Preloads a worker if that is due, with the packages of the only worker. Does nothing if
    /// there are several workers or not enough memory.
    pub(super) fn preload_due(&mut self, now: Instant) {
        let [slot] = self.pool.slots() else { return };
        let Some(worker) = slot.current.as_ref().filter(|_| slot.reserve.is_none()) else { return };
        if self.preload_at.take_if(|due| now >= due.0).is_none() {
            return;
        }
        let (number, packages) = (slot.number, worker.process.packages());
        let needed = worker.process.memory_at_start.unwrap_or_default();
        let start = self.next_start(number, self.pool.generation() + 1);
        if start.workers != 1 || self.history.memory_left().is_some_and(|left| left < needed) {
            return;
        }
        // Without a preloaded worker, the next reload takes longer, and reports why.
        let started = self.origin.start(start, Some(&packages), &self.config, &self.registry);
        if let Some(slot) = self.pool.slot_mut(number) {
            slot.reserve = started.ok();
        }
    }

    /// Takes the preloaded worker of this slot and lets it read the app, if it was preloaded for
    /// the current generation. Ends one of an older generation, because no reload can use it any
    /// more.
    pub(super) fn take_preloaded(&mut self, number: u32) -> Option<Worker> {
        let (generation, times) = (self.pool.generation(), self.config.times);
        // A worker that only replaces one that has ended does not change the schedule.
        self.preload_at.take_if(|due| due.1 < generation);
        let slot = self.pool.slot_mut(number)?;
        let preloaded_for = slot.reserve.as_ref().filter(|it| it.is_gated())?.start.generation;
        if preloaded_for < generation {
            slot.discard_preloaded();
        }
        let mut worker = slot.reserve.take_if(|_| preloaded_for == generation)?;
        worker.open_gate(times);
        Some(worker)
    }

    /// Ends the preloaded worker, because it was started with former settings.
    pub(super) fn discard_preloaded(&mut self) {
        self.preload_at = None;
        for slot in self.pool.slots_mut() {
            slot.discard_preloaded();
        }
    }
}
