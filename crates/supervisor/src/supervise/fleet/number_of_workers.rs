//! Changes of the numbers of workers and spares.

use super::super::MOST_WORKERS;
use super::super::scaling::ScalingStep;
use super::Fleet;

impl Fleet<'_> {
    /// Applies the numbers of workers and spares that a reload has requested, once all workers have
    /// been reloaded.
    pub(in crate::supervise) fn apply_scaling(&mut self) {
        for step in self.rollout.take_scaling_steps(&self.workers) {
            match step {
                ScalingStep::AddWorker => self.add_worker(),
                ScalingStep::RemoveWorker => self.remove_worker(),
                ScalingStep::AddSpare => self.add_slot(),
                ScalingStep::RemoveSpare => self.remove_slot(),
            }
        }
    }

    /// Adds one worker, up to [`MOST_WORKERS`].
    pub(in crate::supervise) fn add_worker(&mut self) {
        if !self.rollout.scaling.add_worker() {
            return self
                .log(&format!("no worker is added: {MOST_WORKERS} workers are the maximum"));
        }
        self.add_slot();
        self.log(&format!("added one worker: {} in total", self.rollout.scaling.wanted()));
        // A ready spare goes into service at once, and the new worker becomes the spare.
        self.workers.start_spares(&self.rollout.scaling);
    }

    /// Removes one worker, unless it is the last.
    pub(in crate::supervise) fn remove_worker(&mut self) {
        if !self.rollout.scaling.remove_worker() {
            return self.log("no worker is removed: one worker is the minimum");
        }
        self.log(&format!("removed one worker: {} in total", self.rollout.scaling.wanted()));
        self.remove_slot();
    }

    /// Schedules the start of an additional worker.
    fn add_slot(&mut self) {
        let slot = self.workers.add_slot();
        self.history.reset_slot(slot);
        self.rollout.replacing.reset_backoff(slot);
    }

    /// Drains the worker that can be spared most easily, for example one that does not respond or
    /// has few WebSockets. No other worker is started in its place.
    fn remove_slot(&mut self) {
        if let Some(slot) = self.rollout.scaling.slot_to_remove(&self.workers.slot_workers()) {
            self.rollout.replacing.remove_slot(slot);
            self.workers.give_up(slot, self.config.times);
        }
    }
}
