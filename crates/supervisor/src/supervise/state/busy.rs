//! The enforcement of the worker timeout, for workers whose R process is busy with one task for too
//! long.

use std::time::Instant;

use rookery_worker_protocol::{Message, now as scoreboard_time};

use super::super::health::is_stopped;
use super::super::worker_process::WorkerPhase;
use super::super::worker_timeout::{TO_END, TimeoutStep};
use super::Supervisor;

impl Supervisor<'_> {
    /// Stops workers whose R process has been busy with one task for too long. R is interrupted
    /// first only if [`Timeouts::interrupts`](crate::Timeouts::interrupts) is true.
    pub(super) fn look_at_busy(&mut self, now: Instant) {
        let Some(most) = self.plan.times.busy else { return };
        let interrupts = self.plan.times.interrupts;
        for worker in self.workers.values_mut().filter(|worker| worker.phase == WorkerPhase::Ready)
        {
            let (number, pid) = (worker.start.slot, worker.pid);
            let scoreboard = worker.backend.scoreboard.read();
            match worker
                .stuck
                .look(most, interrupts, &scoreboard, now, scoreboard_time(), || is_stopped(pid))
            {
                TimeoutStep::Nothing => {}
                TimeoutStep::Interrupt(lasts) => {
                    // Requests that wait for a response get 504 now, whether R reacts to the
                    // interrupt or not.
                    self.registry.time_out(&worker.backend);
                    worker.say(Message::Interrupt);
                    (self.plan.tell)(&format!(
                        "the R process of worker {number} ({pid}) has been busy with one task for {} s: interrupting it",
                        lasts.as_secs()
                    ));
                }
                TimeoutStep::GoesOn => {
                    if !worker.health.is_suspended {
                        self.registry.resume(&worker.backend);
                    }
                    (self.plan.tell)(&format!(
                        "the R process of worker {number} ({pid}) has finished the task that took too long"
                    ));
                }
                TimeoutStep::End(lasts) => {
                    self.registry.time_out(&worker.backend);
                    (self.plan.tell)(&format!(
                        "the R process of worker {number} ({pid}) has been busy with one task for {} s: ending it",
                        lasts.as_secs()
                    ));
                    worker.leaves = Some("stuck");
                    worker.stop(TO_END.min(self.plan.times.stop));
                }
                TimeoutStep::EndInterrupted => {
                    (self.plan.tell)(&format!(
                        "the R process of worker {number} ({pid}) is still busy with the same task: ending it"
                    ));
                    worker.leaves = Some("stuck");
                    worker.stop(TO_END.min(self.plan.times.stop));
                }
            }
        }
        self.call_on_spares();
    }
}
