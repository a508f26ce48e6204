//! The counters of the pool (the part that assigns requests to workers), which other threads read
//! for metrics and reports. Only the pool's thread writes them.

use std::time::{Duration, Instant};

use rookery_worker_protocol::{Counter, RequestCounters};

/// The length of a queue of requests at one moment, and the waiting time of its oldest request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueReading {
    /// The number of requests in the queue.
    pub length: u64,
    /// The time that the oldest request in the queue has waited, if it is known.
    pub oldest: Option<Duration>,
}

/// A gauge for a queue of requests. It stores the length of the queue and the time at which its
/// oldest request began to wait.
#[derive(Debug)]
pub struct QueueGauge {
    created: Instant,
    length: Counter,
    /// The time at which the oldest request began to wait, in nanoseconds after this gauge was
    /// created.
    first: Counter,
}

impl Default for QueueGauge {
    fn default() -> QueueGauge {
        QueueGauge {
            created: Instant::now(),
            length: Counter::default(),
            first: Counter::default(),
        }
    }
}

impl QueueGauge {
    /// Sets the length of the queue, and the time at which its oldest request began to wait.
    pub fn set(&self, length: usize, first: Option<Instant>) {
        self.length.set(length as u64);
        if let Some(first) = first {
            let nanoseconds = first.duration_since(self.created).as_nanos();
            self.first.set(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        }
    }

    /// Returns the current length and age of the queue.
    pub fn read(&self) -> QueueReading {
        let length = self.length.get();
        let first = self.created + Duration::from_nanos(self.first.get());
        let oldest = if length == 0 { Duration::ZERO } else { first.elapsed() };
        QueueReading { length, oldest: Some(oldest) }
    }
}

/// The counters of the pool, which assigns requests to workers.
#[derive(Debug, Default)]
pub struct PoolCounters {
    /// The gauge of the queue of requests that any worker may process.
    pub queue: QueueGauge,
    /// The maximum number of requests that may wait for workers in the queue.
    pub queue_limit: Counter,
    /// The metrics of the requests that workers have responded to.
    pub requests: RequestCounters,
    /// The maximum number of sessions (WebSockets) that one worker may have; 0 for no limit.
    pub sessions_limit: Counter,
    /// The number of requests that were rejected because the queue for workers was full.
    pub rejected_full: Counter,
    /// The number of requests that were rejected because they had waited too long for a worker.
    pub rejected_timeout: Counter,
    /// The number of requests that were rejected because all workers had the maximum number of
    /// sessions.
    pub rejected_sessions: Counter,
    /// The number of times that a request was sent to another worker because its first worker ended
    /// before R had begun to process it.
    pub retries_unbegun: Counter,
    /// The number of times that a page lost its WebSocket and reconnected to the worker that had
    /// served the page.
    pub reconnected_same_worker: Counter,
    /// The number of times that a page lost its WebSocket and reconnected to another worker than
    /// the one that had served the page.
    pub reconnected_new_worker: Counter,
    /// The number of requests with a session cookie whose signature was invalid.
    pub invalid_cookies: Counter,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_queue_has_no_oldest_request() {
        let gauge = QueueGauge::default();
        gauge.set(2, Some(Instant::now()));
        std::thread::sleep(Duration::from_millis(2));
        assert!(gauge.read().length == 2 && gauge.read().oldest >= Some(Duration::from_millis(2)));
        gauge.set(0, None);
        assert_eq!(gauge.read(), QueueReading { length: 0, oldest: Some(Duration::ZERO) });
    }
}
