//! The choice of workers that serve requests and of spares that replace workers that end.

use std::cmp::Reverse;

use super::super::worker_process::WorkerPhase;
use super::Supervisor;

impl Supervisor<'_> {
    /// Returns true if fewer workers serve than should.
    pub(super) fn lacks(&self) -> bool {
        let serving = self
            .workers
            .values()
            .filter(|it| it.is_serving && it.phase == WorkerPhase::Ready)
            .count();
        serving < self.wanted as usize
    }

    /// Puts a ready worker into service, so that it gets requests.
    pub(super) fn have_serve(&mut self, epoch: u64) {
        if let Some(worker) = self.workers.get_mut(&epoch) {
            worker.is_serving = true;
            self.registry.add(&worker.backend);
        }
    }

    /// Puts spares into service while too few workers serve. Spares of the newest generation come
    /// first.
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
