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

/// What ended a request that was not simply answered, by the letters of `HAProxy`'s log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Too many waited, or it waited too long, or there are as many sessions as there may be.
    Queue,
    /// Its worker ended.
    Died,
    /// It took longer than it may.
    Time,
    /// Its client left, or did not take the reply.
    Client,
}

impl Ended {
    /// As a log has it.
    pub fn letter(self) -> char {
        match self {
            Ended::Queue => 'Q',
            Ended::Died => 'D',
            Ended::Time => 'T',
            Ended::Client => 'C',
        }
    }
}

/// See the module. Written by the application as the request goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Upstream {
    /// The worker that it was given to last.
    pub worker: Option<UpstreamWorker>,
    /// How often it was given to one.
    pub given: u32,
    /// How long it has waited for workers.
    pub queued: Duration,
    /// Since when it waits for one, if it does.
    pub waits_since: Option<Instant>,
    /// From its going to the worker to the head of the reply.
    pub took: Option<Duration>,
    /// What ended it, where the application knows.
    pub ended: Option<Ended>,
    /// A number by which requests of one client are known that come back to their worker. It says nothing of the cookie.
    pub session: Option<u64>,
}

impl Upstream {
    /// It waits for a worker.
    pub fn waits(&mut self, since: Instant) {
        self.waits_since = Some(since);
    }

    /// It is given to a worker.
    pub fn goes(&mut self, worker: UpstreamWorker, now: Instant) {
        self.stops_waiting(now);
        self.worker = Some(worker);
        self.given += 1;
    }

    /// It is answered in place of a worker.
    pub fn ends(&mut self, ended: Option<Ended>, now: Instant) {
        self.stops_waiting(now);
        self.ended = ended;
    }

    /// How often it was given to another worker.
    pub fn retries(&self) -> u32 {
        self.given.saturating_sub(1)
    }

    pub(crate) fn stops_waiting(&mut self, now: Instant) {
        if let Some(since) = self.waits_since.take() {
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
        let mut upstream = Upstream::default();
        assert_eq!(upstream.retries(), 0);
        for (at, slot) in [(0, 3), (10, 4)] {
            let since = start + second * at;
            upstream.waits(since);
            upstream.goes(UpstreamWorker { slot, pid: 1, epoch: 2 }, since + second * 2);
        }
        upstream.ends(Some(Ended::Died), start + second * 100);
        let slot = upstream.worker.unwrap().slot;
        assert_eq!((upstream.queued, upstream.retries(), slot), (second * 4, 1, 4));
        upstream.waits(start);
        upstream.ends(Some(Ended::Queue), start + second);
        assert_eq!((upstream.queued, upstream.waits_since), (second * 5, None));
    }
}
