//! The status report of an app.

use std::time::Instant;

use rookery_status::ServerState;

use super::App;
use crate::state::{SlotState, SupervisorState};
use crate::supervise::clock;
use crate::supervise::slot::Slot;
use crate::supervise::worker::Worker;

impl App<'_> {
    /// Returns the status report of the workers.
    pub(in crate::supervise) fn report(&mut self) -> SupervisorState {
        let mut report = SupervisorState {
            slots: self.pool.slots_mut().iter_mut().map(slot_state).collect(),
            server: ServerState {
                generation: self.pool.generation(),
                wanted: self.pool.scaling.wanted(),
                spares: self.pool.scaling.spares(),
                reload: self.reload.clone(),
                starts: self.origin.starts,
                ..ServerState::default()
            },
            ..SupervisorState::default()
        };
        self.history.write_to(&mut report);
        report
    }

    /// Returns the number of workers that should serve, and the number of workers that failed
    /// within the last minute.
    pub(in crate::supervise) fn heartbeat(&mut self, now: Instant) -> (usize, usize) {
        (self.pool.scaling.wanted() as usize, self.failures.expire(now))
    }
}

/// Returns the status report of a slot. A preloaded worker has no part in it.
fn slot_state(slot: &mut Slot) -> SlotState {
    let (number, restarts) = (slot.number, slot.starts.saturating_sub(1));
    let (last_exit, start_at) = (slot.last_exit.clone(), slot.start_at.map(clock::to_system));
    let workers = slot.workers_mut().filter(|worker| !worker.is_gated());
    let mut processes: Vec<_> = workers.map(Worker::report).collect();
    processes.sort_by_key(|process| process.backend.epoch);
    SlotState { number, restarts, last_exit, start_at, processes }
}
