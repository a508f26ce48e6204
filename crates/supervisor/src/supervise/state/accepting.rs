//! The application of the `Acceptor`, which decides which process accepts connections, to the front
//! end and the workers.

use std::time::Instant;

use rookery_worker_protocol::Message;

use super::super::acceptor::AcceptorAction;
use super::super::worker_process::{WorkerPhase, WorkerProcess};
use super::{RunState, Supervisor};
use crate::backend::Availability;

impl Supervisor<'_> {
    /// Takes the next step towards the process that should accept connections.
    pub(super) fn look_at_accepting(&mut self) {
        let wish = self.should_accept();
        let acts = self.acceptor.turn(wish, Instant::now());
        self.carry_out(acts);
    }

    /// Handles the acknowledgement of a worker, which reports whether the worker accepts
    /// connections.
    pub(super) fn on_acknowledged(&mut self, epoch: u64, number: u64, accepts: bool) {
        let acts = self.acceptor.acknowledged(epoch, number, accepts, Instant::now());
        self.carry_out(acts);
    }

    /// Handles the end of a worker process, which may have accepted connections.
    pub(super) fn on_acceptor_ended(&mut self, epoch: u64) {
        let acts = self.acceptor.ended(epoch);
        self.carry_out(acts);
    }

    /// Carries out the actions of the acceptor in order.
    fn carry_out(&self, acts: Vec<AcceptorAction>) {
        for act in acts {
            match act {
                AcceptorAction::SetFrontEnd(is_on) => self.front.set_accepting(is_on),
                AcceptorAction::Tell(epoch, message) => {
                    if let Some(worker) = self.workers.get(&epoch) {
                        worker.say(message);
                    }
                }
            }
        }
    }

    /// Returns the epoch of the worker that should accept connections, or `None` if the front end
    /// should. A worker accepts only if a single worker is configured, that worker serves, and no
    /// other worker is starting in its slot or being drained.
    fn should_accept(&self) -> Option<u64> {
        let is_serving = matches!(self.course, RunState::Serving | RunState::Leaving { .. });
        if !is_serving
            || self.wanted != 1
            || !self.replacements.is_empty()
            || self.front.must_accept()
        {
            return None;
        }
        let is_spare = |worker: &&WorkerProcess| {
            let is_current =
                self.slots[worker.start.slot as usize].current == Some(worker.start.epoch);
            !worker.is_serving
                && is_current
                && matches!(worker.phase, WorkerPhase::Starting { .. } | WorkerPhase::Ready)
        };
        let mut others = self.workers.values().filter(|worker| !is_spare(worker));
        let worker = others.next().filter(|worker| {
            worker.start.is_public
                && worker.phase == WorkerPhase::Ready
                && worker.backend.availability() == Availability::Ready
        })?;
        others.next().is_none().then_some(worker.start.epoch)
    }

    /// Closes the connections that workers have accepted, as the front end closes its own when the
    /// server stops.
    pub(super) fn retire_all(&mut self) {
        // The address becomes free when the supervisor, the front end and the workers have closed
        // their listening sockets.
        self.plan.public = None;
        for worker in self.workers.values().filter(|worker| worker.start.is_public) {
            worker.say(Message::Retire(0));
        }
    }

    /// Returns the number of open connections of the front end and of all workers.
    pub(super) fn connections(&self) -> usize {
        let own: usize = self.workers.values().map(|worker| worker.backend.connections()).sum();
        self.front.connections() + own
    }
}
