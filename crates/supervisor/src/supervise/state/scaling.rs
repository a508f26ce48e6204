//! One worker more, or one less.

use std::cmp::Reverse;
use std::time::Instant;

use super::super::worker_process::WorkerPhase;
use super::super::{MOST_WORKERS, SupervisorConfig};
use super::{Slot, Supervisor};
use crate::backend_registry::Availability;

impl Supervisor<'_> {
    /// The slots that are to have a worker.
    pub(super) fn kept_slots(&self) -> Vec<u32> {
        (0..).zip(&self.slots).filter(|(_, slot)| !slot.is_given_up).map(|(slot, _)| slot).collect()
    }

    /// Goes on by another plan. Its numbers of workers and spares wait until the reload has
    /// succeeded: an app that does not start is to end no worker and to start no more of them.
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

    /// Returns the numbers of workers that are to serve and of spares, as they are once a reload that
    /// is under way has succeeded.
    pub(super) fn numbers(&self) -> (u32, u32) {
        match self.numbers_to_come {
            Some((workers, spares)) if workers != self.plan.workers => (workers, spares),
            Some((_, spares)) => (self.wanted, spares),
            None => (self.wanted, self.plan.spares),
        }
    }

    /// Has as many workers and spares as a reload has asked for, once all workers are of that
    /// reload. The number of workers that signals have asked for stays, unless the new plan has
    /// another number than the one before.
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

    pub(super) fn want_more(&mut self) {
        if self.wanted >= MOST_WORKERS {
            return self.tell(&format!("there are {MOST_WORKERS} workers, and not to be more"));
        }
        self.wanted += 1;
        self.add_slot();
        self.tell(&format!("one worker more: {}", self.wanted));
        // One that is ready need not be waited for; the new one is a spare then.
        self.call_on_spares();
    }

    /// Has another worker started.
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

    /// Whose place is given up: of too many that serve the one with the fewest WebSockets, and of those the youngest. Where no more serve than
    /// are to, one that does not yet.
    fn dispensable(&self) -> Option<u32> {
        let current =
            |slot: u32| self.slots[slot as usize].current.and_then(|it| self.workers.get(&it));
        let slots = self.kept_slots();
        let serving = slots.iter().filter_map(|slot| {
            let worker =
                current(*slot).filter(|it| it.is_serving && it.phase == WorkerPhase::Ready)?;
            // One that does not answer now serves nobody.
            let is_well = worker.backend.availability() == Availability::Ready;
            Some((is_well, worker.backend.load().1, Reverse(worker.start.epoch), *slot))
        });
        let serving: Vec<_> = serving.collect();
        if serving.len() > self.wanted as usize {
            return serving.into_iter().min().map(|(_, _, _, slot)| slot);
        }
        // One without a process, one that starts, a spare.
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

    /// What it has in hand is finished, and no other is started there.
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
