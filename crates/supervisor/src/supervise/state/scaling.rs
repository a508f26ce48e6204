//! Changes of the number of workers and spares.

use std::cmp::Reverse;
use std::time::Instant;

use super::super::worker_process::WorkerPhase;
use super::super::{MOST_WORKERS, SupervisorConfig};
use super::{Slot, Supervisor};
use crate::backend::Availability;

impl Supervisor<'_> {
    /// Returns the slots that should have a worker.
    pub(super) fn kept_slots(&self) -> Vec<u32> {
        (0..).zip(&self.slots).filter(|(_, slot)| !slot.is_given_up).map(|(slot, _)| slot).collect()
    }

    /// Applies another configuration. Its numbers of workers and spares take effect when the reload
    /// has succeeded, so that an app that does not start neither stops workers nor starts more of
    /// them.
    pub(super) fn change(&mut self, plan: SupervisorConfig) {
        let numbers = (plan.workers, plan.spares);
        let before = &mut self.plan;
        self.numbers_to_come = (numbers != (before.workers, before.spares)).then_some(numbers);
        self.plan = SupervisorConfig {
            workers: before.workers,
            spares: before.spares,
            public: before.public.take(),
            folder: std::mem::take(&mut before.folder),
            files: before.files,
            is_on_terminal: before.is_on_terminal,
            ..plan
        };
    }

    /// Returns the numbers of serving workers and of spares that apply once a reload in progress
    /// has succeeded.
    pub(super) fn numbers(&self) -> (u32, u32) {
        match self.numbers_to_come {
            Some((workers, spares)) if workers != self.plan.workers => (workers, spares),
            Some((_, spares)) => (self.wanted, spares),
            None => (self.wanted, self.plan.spares),
        }
    }

    /// Applies the numbers of workers and spares that a reload has requested, once all workers have
    /// been reloaded. A number of workers that was changed by signals stays, unless the new
    /// configuration has another number than the previous one.
    pub(super) fn apply_numbers(&mut self) {
        if self.replacements.is_reloading() || !self.all_are_of(self.generation) {
            return;
        }
        let Some((workers, spares)) = self.numbers_to_come.take() else { return };
        if workers != std::mem::replace(&mut self.plan.workers, workers) {
            while self.wanted < workers {
                self.want_more();
            }
            while self.wanted > workers {
                self.want_fewer();
            }
        }
        let before = std::mem::replace(&mut self.plan.spares, spares);
        for _ in before..spares {
            self.add_slot();
        }
        for _ in spares..before {
            if let Some(slot) = self.dispensable() {
                self.give_up(slot);
            }
        }
    }

    /// Adds one worker, up to [`MOST_WORKERS`].
    pub(super) fn want_more(&mut self) {
        if self.wanted >= MOST_WORKERS {
            return self.tell(&format!("there are {MOST_WORKERS} workers, and not to be more"));
        }
        self.wanted += 1;
        self.add_slot();
        self.tell(&format!("one worker more: {}", self.wanted));
        // A ready spare goes into service at once, and the new worker becomes the spare.
        self.call_on_spares();
    }

    /// Schedules the start of an additional worker, in a free slot or a new one.
    fn add_slot(&mut self) {
        let place = Slot { start_at: Some(Instant::now()), ..Slot::default() };
        let is_free = |slot: &u32| {
            self.slots[*slot as usize].is_given_up
                && self.workers.values().all(|it| it.start.slot != *slot)
        };
        match (0..self.slots.len() as u32).find(is_free) {
            Some(slot) => {
                self.history.forget(slot);
                self.slots[slot as usize] = place;
            }
            None => self.slots.push(place),
        }
    }

    /// Removes one worker, unless it is the last.
    pub(super) fn want_fewer(&mut self) {
        if self.wanted <= 1 {
            return self.tell("there is one worker, which stays");
        }
        self.wanted -= 1;
        self.tell(&format!("one worker less: {}", self.wanted));
        if let Some(slot) = self.dispensable() {
            self.give_up(slot);
        }
    }

    /// Returns the slot whose worker should be removed. If more workers serve than should, the slot
    /// is that of the serving worker with the fewest WebSockets, and among equals of the youngest.
    /// Otherwise the slot is one whose worker does not serve yet.
    fn dispensable(&self) -> Option<u32> {
        let current =
            |slot: u32| self.slots[slot as usize].current.and_then(|it| self.workers.get(&it));
        let slots = self.kept_slots();
        let serving = slots.iter().filter_map(|slot| {
            let worker =
                current(*slot).filter(|it| it.is_serving && it.phase == WorkerPhase::Ready)?;
            // A worker that does not respond serves no requests, so it is removed first.
            let is_well = worker.backend.availability() == Availability::Ready;
            Some((is_well, worker.backend.load().1, Reverse(worker.start.epoch), *slot))
        });
        let serving: Vec<_> = serving.collect();
        if serving.len() > self.wanted as usize {
            return serving.into_iter().min().map(|(_, _, _, slot)| slot);
        }
        // The preferred slot has no process. The next choices are a starting worker and a spare.
        let others = slots.into_iter().filter_map(|slot| match current(slot) {
            None => Some((0, Reverse(0), slot)),
            Some(worker) if worker.phase != WorkerPhase::Ready => {
                Some((1, Reverse(worker.start.epoch), slot))
            }
            Some(worker) if !worker.is_serving => Some((2, Reverse(worker.start.epoch), slot)),
            Some(_) => None,
        });
        others.min().map(|(_, _, slot)| slot)
    }

    /// Drains the workers of `slot`, in which no other worker is started.
    fn give_up(&mut self, slot: u32) {
        self.replacements.forget(slot);
        self.hurry_those_before(slot);
        let place = &mut self.slots[slot as usize];
        place.is_given_up = true;
        place.start_at = None;
        for epoch in place.successor.take().into_iter().chain(place.current) {
            if let Some(worker) = self.workers.get_mut(&epoch) {
                worker.leaves.get_or_insert("fewer");
                self.registry.drain(&worker.backend);
                worker.drain(self.plan.times);
            }
        }
    }
}
