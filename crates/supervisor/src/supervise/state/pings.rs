//! Workers that do not answer the supervisor.

use std::time::Instant;

use rookery_worker::Message;

use super::super::health::{self, Verdict};
use super::super::worker::{Phase, Worker};
use super::Supervisor;

impl Supervisor<'_> {
    pub(super) fn look_at_health(&mut self, now: Instant) {
        for worker in self.workers.values_mut().filter(|worker| worker.phase == Phase::Ready) {
            let (number, pid) = (worker.start.slot, worker.pid);
            let suspend = |worker: &mut Worker, why: &str| {
                if !std::mem::replace(&mut worker.health.is_suspended, true) {
                    self.roster.suspend(&worker.member);
                    (self.plan.tell)(&format!(
                        "worker {number} ({pid}) {why}: it is given nothing until it answers"
                    ));
                }
            };
            match worker.health.look(now, || health::is_stopped(pid)) {
                Verdict::Ping(number) => worker.say(Message::Ping(number)),
                Verdict::Wait => {}
                Verdict::Stopped => suspend(worker, "has been stopped, by a signal or a debugger"),
                Verdict::Silent => suspend(worker, "does not answer"),
                Verdict::Stuck => {
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
