//! Workers that serve, and those that wait, ready, to take the place of one that ends.

use std::cmp::Reverse;

use super::super::worker_process::WorkerPhase;
use super::Supervisor;

impl Supervisor<'_> {
    /// Whether fewer workers serve than are to.
    pub(super) fn lacks(&self) -> bool {
        let serving = self
            .workers
            .values()
            .filter(|it| it.is_serving && it.phase == WorkerPhase::Ready)
            .count();
        serving < self.wanted as usize
    }

    /// Gives a worker that is ready requests from now on.
    pub(super) fn have_serve(&mut self, epoch: u64) {
        if let Some(worker) = self.workers.get_mut(&epoch) {
            worker.is_serving = true;
            self.registry.add(&worker.backend);
        }
    }

    /// Has spares take the places of those that serve no more: of the last generation first.
    pub(super) fn call_on_spares(&mut self) {
        while self.lacks() {
            let spare = self.slots.iter().filter_map(|slot| self.workers.get(&slot.current?));
            let spare = spare.filter(|it| {
                it.phase == WorkerPhase::Ready && !it.is_serving && !it.health.is_suspended
            });
            let Some(spare) = spare.max_by_key(|it| (it.start.generation, Reverse(it.start.slot)))
            else {
                return;
            };
            let (epoch, number, pid) = (spare.start.epoch, spare.start.slot, spare.pid);
            self.have_serve(epoch);
            self.tell(&format!("worker {number} ({pid}), a spare, serves in its place"));
        }
    }
}
