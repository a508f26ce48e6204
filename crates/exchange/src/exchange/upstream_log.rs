//! What became of a request at the workers behind an application: for the access log.

use std::time::{Duration, Instant};

/// A start of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamWorker {
    /// Which of the workers it is; its next start has the same.
    pub slot: u32,
    /// The number of its process.
    pub pid: u32,
    /// Which start of all workers it is.
    pub epoch: u64,
}

/// What termination_state a request that was not simply answered, by the letters of `HAProxy`'s log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TerminationState {
    /// Too many waited, or it waited too long, or there are as many sessions as there may be.
    Queue,
    /// Its worker termination_state.
    WorkerDied,
    /// It took longer than it may.
    Timeout,
    /// Its client left, or did not take the reply.
    ClientDisconnected,
}

impl TerminationState {
    /// As a log has it.
    pub fn letter(self) -> char {
        match self {
            TerminationState::Queue => 'Q',
            TerminationState::WorkerDied => 'D',
            TerminationState::Timeout => 'T',
            TerminationState::ClientDisconnected => 'C',
        }
    }
}

/// See the module. Written by the application as the request goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UpstreamLog {
    /// The worker that it was given to last.
    pub worker: Option<UpstreamWorker>,
    /// How often it was given to one.
    pub attempts: u32,
    /// How long it has waited for workers.
    pub queued: Duration,
    /// Since when it waits for one, if it does.
    pub queued_since: Option<Instant>,
    /// From its going to the worker to the head of the reply.
    pub response_time: Option<Duration>,
    /// What termination_state it, where the application knows.
    pub termination_state: Option<TerminationState>,
    /// A number by which requests of one client are known that come back to their worker. It says nothing of the cookie.
    pub session: Option<u64>,
}

impl UpstreamLog {
    /// It waits for a worker.
    pub fn on_queued(&mut self, since: Instant) {
        self.queued_since = Some(since);
    }

    /// It is given to a worker.
    pub fn on_assigned(&mut self, worker: UpstreamWorker, now: Instant) {
        self.stop_waiting(now);
        self.worker = Some(worker);
        self.attempts += 1;
    }

    /// It is answered in place of a worker.
    pub fn on_terminated(&mut self, termination_state: Option<TerminationState>, now: Instant) {
        self.stop_waiting(now);
        self.termination_state = termination_state;
    }

    /// How often it was given to another worker.
    pub fn retries(&self) -> u32 {
        self.attempts.saturating_sub(1)
    }

    pub(crate) fn stop_waiting(&mut self, now: Instant) {
        if let Some(since) = self.queued_since.take() {
            self.queued += now.saturating_duration_since(since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_waits_for_each_worker_is_added_up() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut upstream = UpstreamLog::default();
        assert_eq!(upstream.retries(), 0);
        for (at, slot) in [(0, 3), (10, 4)] {
            let since = start + second * at;
            upstream.on_queued(since);
            upstream.on_assigned(UpstreamWorker { slot, pid: 1, epoch: 2 }, since + second * 2);
        }
        upstream.on_terminated(Some(TerminationState::WorkerDied), start + second * 100);
        let slot = upstream.worker.unwrap().slot;
        assert_eq!((upstream.queued, upstream.retries(), slot), (second * 4, 1, 4));
        upstream.on_queued(start);
        upstream.on_terminated(Some(TerminationState::Queue), start + second);
        assert_eq!((upstream.queued, upstream.queued_since), (second * 5, None));
    }
}
