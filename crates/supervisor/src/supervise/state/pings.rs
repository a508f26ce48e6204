//! The health checks of workers, with the suspension of workers that do not respond.

use std::time::Instant;

use rookery_worker_protocol::Message;

use super::super::health::{self, HealthVerdict};
use super::super::worker_process::{WorkerPhase, WorkerProcess};
use super::Supervisor;

impl Supervisor<'_> {
    /// Sends health checks, suspends workers that do not respond, and kills those that stay silent
    /// for a minute.
    pub(super) fn look_at_health(&mut self, now: Instant) {
        for worker in self.workers.values_mut().filter(|worker| worker.phase == WorkerPhase::Ready)
        {
            let (number, pid) = (worker.start.slot, worker.pid);
            let suspend = |worker: &mut WorkerProcess, why: &str| {
                if !std::mem::replace(&mut worker.health.is_suspended, true) {
                    self.registry.suspend(&worker.backend);
                    (self.plan.tell)(&format!(
                        "worker {number} ({pid}) {why}: it is given nothing until it answers"
                    ));
                }
            };
            match worker.health.look(now, || health::is_stopped(pid)) {
                HealthVerdict::Ping(number) => worker.say(Message::Ping(number)),
                HealthVerdict::Wait => {}
                HealthVerdict::Stopped => {
                    suspend(worker, "has been stopped, by a signal or a debugger");
                }
                HealthVerdict::Silent => suspend(worker, "does not answer"),
                HealthVerdict::Unresponsive => {
                    (self.plan.tell)(&format!(
                        "worker {number} ({pid}) has not answered for a minute: it is killed"
                    ));
                    worker.leaves = Some("stuck");
                    worker.kill();
                }
            }
        }
    }
}
