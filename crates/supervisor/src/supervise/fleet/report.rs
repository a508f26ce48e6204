//! The status report of the fleet.

use super::Fleet;
use crate::report::Report;
use crate::supervise::worker::WorkerProcess;

impl Fleet<'_> {
    /// Returns the status report of the workers.
    pub(in crate::supervise) fn report(&mut self) -> Report {
        let mut processes: Vec<_> = self.workers.iter_mut().map(WorkerProcess::report).collect();
        processes.sort_by_key(|process| (process.backend.slot, process.backend.epoch));
        let slots = (0..).zip(self.workers.slots());
        let mut report = Report {
            slots: slots.map(|(slot, place)| self.history.slot_report(slot, place)).collect(),
            processes,
            generation: self.rollout.replacing.generation(),
            wanted: self.rollout.scaling.wanted(),
            spares: self.rollout.scaling.spares(),
            reload: self.rollout.reload().clone(),
            starts: self.launcher.starts(),
            ..Report::default()
        };
        self.history.write_to(&mut report);
        report
    }
}
