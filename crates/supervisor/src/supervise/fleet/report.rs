//! The status report of the fleet.

use rookery_status::ServerState;

use super::Fleet;
use crate::report::SupervisorState;
use crate::supervise::worker::WorkerProcess;

impl Fleet<'_> {
    /// Returns the status report of the workers.
    pub(in crate::supervise) fn report(&mut self) -> SupervisorState {
        let mut processes: Vec<_> = self.workers.iter_mut().map(WorkerProcess::report).collect();
        processes.sort_by_key(|process| (process.backend.slot, process.backend.epoch));
        let slots = (0..).zip(self.workers.slots());
        let mut report = SupervisorState {
            slots: slots.map(|(slot, place)| self.history.slot_report(slot, place)).collect(),
            processes,
            server: ServerState {
                generation: self.rollout.replacing.generation(),
                wanted: self.rollout.scaling.wanted(),
                spares: self.rollout.scaling.spares(),
                reload: self.rollout.reload().clone(),
                starts: self.launcher.starts(),
                ..ServerState::default()
            },
            ..SupervisorState::default()
        };
        self.history.write_to(&mut report);
        report
    }
}
