//! What the fleet does only while the app is being developed: it preloads a worker, and reports
//! failed starts.

use std::os::fd::AsFd as _;

use rookery_worker_protocol::Gate;

use super::super::clock;
use super::super::launcher::Launch;
use super::super::preload::{Preload, STALE_STATUS};
use super::super::worker::ExitedWorker;
use super::super::workers::SlotRole;
use super::super::{StartReport, SupervisorEvent};
use super::Fleet;
use crate::process::Exit;

impl Fleet<'_> {
    /// Starts a spare R process, which loads the packages of the only worker and waits for the next
    /// reload. Does nothing if there are several workers or not enough memory.
    pub(super) fn start_preloaded(&mut self) {
        let (serving, spares) = self.rollout.scaling.after_reload();
        let Some(worker) = self.workers.current(0).filter(|_| (serving, spares) == (1, 0)) else {
            return;
        };
        let needed = worker.memory_at_start.unwrap_or_default();
        if self.history.memory_left().is_some_and(|left| left < needed) {
            return;
        }
        let packages = worker.packages();
        let generation = self.rollout.replacing.generation() + 1;
        let launch = Launch { slot: 0, generation, serving, spares };
        let Ok((sender, receiver)) = Preload::gate() else { return };
        let gate = Gate { descriptor: receiver.as_fd(), packages: &packages };
        // Without a preloaded worker, the next reload takes longer, and reports why.
        if let Ok(worker) = self.launcher.start(launch, Some(gate), &self.config) {
            self.preload.set(worker, sender);
        }
    }

    /// Handles a worker that has ended before it was ready, and whose start is part of the latest
    /// reload. Returns true if another worker is started in its place at once.
    pub(super) fn on_failed_start(
        &mut self,
        exited: &ExitedWorker,
        role: SlotRole,
        report: Option<&StartReport>,
    ) -> bool {
        let slot = exited.process.start.slot;
        // Any app may end with this status, and an app that always does must not be started again
        // at once.
        if exited.process.was_preloaded && exited.exit() == Exit::Status(STALE_STATUS) {
            // The packages that the worker has loaded are no longer those of the library.
            match role {
                SlotRole::Former => {}
                SlotRole::Successor => self.start_successor(slot),
                SlotRole::Current { .. } => {
                    self.workers.slot_mut(slot).start_at = Some(clock::now());
                }
            }
            return true;
        }
        if role != SlotRole::Former {
            let exit = exited.exit().to_string();
            self.frontend.on_event(SupervisorEvent::StartFailed { exit: &exit, report });
        }
        false
    }
}
