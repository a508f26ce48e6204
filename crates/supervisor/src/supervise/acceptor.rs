//! The choice of the process that accepts connections: either the front end (the supervisor) or, if
//! there is only one worker, that worker.
//!
//! Both processes have the listening sockets and keep them open while they do not accept. A client
//! that connects while the accepting process changes is therefore not refused, but waits in the
//! kernel's queue. A process gets the command to accept only after the other one has acknowledged
//! that it no longer accepts, or has ended.
//!
//! There is one exception: if a worker does not acknowledge a command within
//! [`ACKNOWLEDGEMENT_TIMEOUT`], the front end accepts nevertheless. Until that worker has read the
//! command to stop, both processes may accept connections. This does no harm, because the worker
//! serves all connections that it accepts.

use std::time::{Duration, Instant};

use rookery_worker_protocol::Message;

/// The time within which a worker must acknowledge a command to start or stop accepting
/// connections. Normally a worker acknowledges the command at once.
pub(super) const ACKNOWLEDGEMENT_TIMEOUT: Duration = Duration::from_secs(1);

/// The time for which a worker that has refused to accept connections, or has not responded, gets
/// no new command to accept.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(10);

/// The process that accepts connections, the front end or a worker, or the progress of a change
/// between the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    FrontEnd,
    /// The front end has stopped accepting connections, and the worker has not yet acknowledged the
    /// command to accept them.
    HandingToWorker {
        epoch: u64,
        number: u64,
        until: Instant,
    },
    Worker {
        epoch: u64,
    },
    /// The worker got a command to stop accepting connections and has not yet acknowledged it.
    TakingBack {
        epoch: u64,
        number: u64,
        until: Instant,
    },
}

/// A step by which the supervisor makes another process accept connections. Several steps are
/// carried out in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AcceptorAction {
    /// Makes the front end start (true) or stop (false) accepting connections. The supervisor waits
    /// for that before the next step.
    SetFrontEnd(bool),
    /// Sends a message to the worker with this epoch, which is the number of its start.
    Send(u64, Message),
}

/// The state machine that decides whether the front end or a worker accepts connections, and which
/// commands they get.
#[derive(Debug)]
pub(super) struct Acceptor {
    state: State,
    /// The number of the last command that a worker got to start or stop accepting connections.
    number: u64,
    /// The epoch (the number of the start) of the worker that last refused to accept connections,
    /// and the time until which it gets no new command to accept them.
    refused: Option<(u64, Instant)>,
}

impl Acceptor {
    pub(super) fn new() -> Acceptor {
        Acceptor { state: State::FrontEnd, number: 0, refused: None }
    }

    /// Returns the epoch (the number of the start) of the worker that accepts connections, or
    /// `None` while the front end does.
    pub(super) fn worker(&self) -> Option<u64> {
        match self.state {
            State::Worker { epoch } => Some(epoch),
            _ => None,
        }
    }

    /// Returns true unless a worker still has to acknowledge a command to start or stop accepting
    /// connections.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self.state, State::FrontEnd | State::Worker { .. })
    }

    /// Takes the next step to make the wanted process accept connections, and returns the actions
    /// that this requires. `wanted` is the epoch (the number of the start) of the worker that
    /// should accept, or `None` for the front end.
    pub(super) fn update(&mut self, wanted: Option<u64>, now: Instant) -> Vec<AcceptorAction> {
        match (self.state, wanted) {
            (State::FrontEnd, Some(epoch)) if !self.has_refused(epoch, now) => {
                let number = self.next();
                self.state =
                    State::HandingToWorker { epoch, number, until: now + ACKNOWLEDGEMENT_TIMEOUT };
                vec![
                    AcceptorAction::SetFrontEnd(false),
                    AcceptorAction::Send(epoch, Message::Accept(number)),
                ]
            }
            (State::HandingToWorker { epoch, until, .. }, _) if now >= until => {
                self.refused = Some((epoch, now + RETRY_AFTER));
                self.state = State::FrontEnd;
                let number = self.next();
                vec![
                    AcceptorAction::Send(epoch, Message::StopAccepting(number)),
                    AcceptorAction::SetFrontEnd(true),
                ]
            }
            (State::HandingToWorker { epoch, .. } | State::Worker { epoch }, wanted)
                if wanted != Some(epoch) =>
            {
                let number = self.next();
                self.state =
                    State::TakingBack { epoch, number, until: now + ACKNOWLEDGEMENT_TIMEOUT };
                vec![AcceptorAction::Send(epoch, Message::StopAccepting(number))]
            }
            (State::TakingBack { epoch, until, .. }, _) if now >= until => {
                self.refused = Some((epoch, now + RETRY_AFTER));
                self.return_to_front_end()
            }
            _ => Vec::new(),
        }
    }

    /// Handles a worker's acknowledgement of the command with the number `command`. `accepts` is
    /// true if the worker now accepts connections.
    pub(super) fn on_acknowledgement(
        &mut self,
        worker: u64,
        command: u64,
        accepts: bool,
        now: Instant,
    ) -> Vec<AcceptorAction> {
        match self.state {
            State::HandingToWorker { epoch, number, .. }
                if (epoch, number) == (worker, command) =>
            {
                if accepts {
                    self.state = State::Worker { epoch };
                    return Vec::new();
                }
                self.refused = Some((epoch, now + RETRY_AFTER));
                self.return_to_front_end()
            }
            State::TakingBack { epoch, number, .. }
                if (epoch, number) == (worker, command) && !accepts =>
            {
                self.return_to_front_end()
            }
            // The acknowledged command has been superseded by a later one.
            _ => Vec::new(),
        }
    }

    /// Handles the end of a worker process. If the worker accepted connections or was about to, the
    /// front end takes over.
    pub(super) fn on_worker_exit(&mut self, worker: u64) -> Vec<AcceptorAction> {
        match self.state {
            State::HandingToWorker { epoch, .. }
            | State::Worker { epoch }
            | State::TakingBack { epoch, .. }
                if epoch == worker =>
            {
                self.return_to_front_end()
            }
            _ => Vec::new(),
        }
    }

    /// Makes the front end accept connections again.
    fn return_to_front_end(&mut self) -> Vec<AcceptorAction> {
        self.state = State::FrontEnd;
        vec![AcceptorAction::SetFrontEnd(true)]
    }

    /// Returns true while the worker with this epoch (the number of its start) gets no new command
    /// to accept connections, because it has refused one.
    fn has_refused(&self, epoch: u64, now: Instant) -> bool {
        self.refused.is_some_and(|(refused, until)| refused == epoch && now < until)
    }

    /// Returns the number of the next command to start or stop accepting connections.
    fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }
}

#[cfg(test)]
mod tests;
