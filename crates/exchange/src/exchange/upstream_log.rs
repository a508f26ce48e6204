//! The data in the access log about the workers to which a request was sent: the number of
//! attempts, the times, and the reason of a failure.

use std::time::{Duration, Instant};

/// A worker process to which a request was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamWorker {
    /// The number of the worker's slot, that is, its place among the workers. When a worker is
    /// replaced, the new worker takes over the slot.
    pub slot: u32,
    /// The process id of the worker.
    pub pid: u32,
    /// The serial number of this worker process among all worker processes that the supervisor has
    /// started.
    pub epoch: u64,
}

/// The reason why a request was not completed normally. The access log shows it as a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TerminationState {
    /// The request was rejected because the queue was full, because it waited too long in the
    /// queue, or because the maximum number of sessions was reached.
    Queue,
    /// The worker process ended before it had completed the response.
    WorkerDied,
    /// The request exceeded its time limit.
    Timeout,
    /// The client disconnected or did not read the response.
    ClientDisconnected,
}

impl TerminationState {
    /// Returns the letter by which the access log shows the reason.
    pub fn letter(self) -> char {
        match self {
            TerminationState::Queue => 'Q',
            TerminationState::WorkerDied => 'D',
            TerminationState::Timeout => 'T',
            TerminationState::ClientDisconnected => 'C',
        }
    }
}

/// The data about the workers of one request that the access log will show. The application updates
/// it while the request is processed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UpstreamLog {
    /// The worker to which the request was sent last.
    pub worker: Option<UpstreamWorker>,
    /// The number of times the request was sent to a worker.
    pub attempts: u32,
    /// The total time that the request has waited for workers.
    pub queued: Duration,
    /// The start of the request's current wait for a worker; `None` if the request is not waiting.
    pub queued_since: Option<Instant>,
    /// The time from sending the request to the worker until the head of the response arrived.
    pub response_time: Option<Duration>,
    /// The reason why the request was not completed normally, if the application knows it.
    pub termination_state: Option<TerminationState>,
    /// A number that identifies the session of the request in the access log and does not reveal
    /// the session's cookie.
    pub session: Option<u64>,
}

impl UpstreamLog {
    /// Records that the request has begun to wait for a worker.
    pub fn on_queued(&mut self, since: Instant) {
        self.queued_since = Some(since);
    }

    /// Records that the request is being sent to a worker at the time `now`. This ends the
    /// request's wait for a worker.
    pub fn on_assigned(&mut self, worker: UpstreamWorker, now: Instant) {
        self.stop_waiting(now);
        self.worker = Some(worker);
        self.attempts += 1;
    }

    /// Records that the application has responded to the request at the time `now`, without a
    /// worker. `termination_state` is the reason that the access log shows, or `None` to show no
    /// reason.
    pub fn on_terminated(&mut self, termination_state: Option<TerminationState>, now: Instant) {
        self.stop_waiting(now);
        self.termination_state = termination_state;
    }

    /// Returns the number of attempts after the first one, that is, how often the request was sent
    /// to a worker again.
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
    fn queue_times_of_all_attempts_are_summed() {
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
