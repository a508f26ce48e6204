//! The queue of spans that wait for their export.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// The maximum number of bytes of all spans in the queue. The usual limit is the number of spans,
/// but the paths of requests may be long.
const MAX_BYTES: usize = 8 << 20;

/// How many spans were exported, and how many were not.
#[derive(Debug, Default)]
pub struct SpanCounters {
    /// The number of spans that the collector has accepted.
    pub exported: AtomicU64,
    /// The number of spans that were dropped because the queue was full: the collector is too slow,
    /// or not there.
    pub dropped: AtomicU64,
    /// The number of spans that the collector has not accepted.
    pub failed: AtomicU64,
}

impl SpanCounters {
    /// Returns the numbers of exported, dropped and failed spans.
    pub fn read(&self) -> [u64; 3] {
        [&self.exported, &self.dropped, &self.failed].map(|it| it.load(Ordering::Relaxed))
    }
}

/// The bounded queue of encoded spans. Adding a span never waits for the export.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Notified when there is a reason for the exporter to look at the queue.
    changed: Notify,
    max_spans: usize,
    batch_size: usize,
}

#[derive(Debug, Default)]
struct State {
    spans: VecDeque<Vec<u8>>,
    bytes: usize,
    /// The time by which the export must end, once the queue is closed.
    closed_until: Option<Instant>,
}

impl Queue {
    pub(crate) fn new(max_spans: usize, batch_size: usize) -> Queue {
        Queue { state: Mutex::default(), changed: Notify::new(), max_spans, batch_size }
    }

    /// Adds a span. Returns false if the queue is full or closed.
    pub(crate) fn push(&self, span: Vec<u8>) -> bool {
        let mut state = self.lock();
        if state.spans.len() >= self.max_spans
            || state.bytes + span.len() > MAX_BYTES
            || state.closed_until.is_some()
        {
            return false;
        }
        state.bytes += span.len();
        state.spans.push_back(span);
        // The first span begins the delay, and a full batch ends it. Others wake nobody.
        let len = state.spans.len();
        drop(state);
        if len == 1 || len == self.batch_size {
            self.changed.notify_one();
        }
        true
    }

    /// Closes the queue. The spans in it may be exported until `deadline`.
    pub(crate) fn close(&self, deadline: Instant) {
        self.lock().closed_until.get_or_insert(deadline);
        self.changed.notify_one();
    }

    /// Returns the time by which the export must end, if the queue is closed.
    pub(crate) fn closed_until(&self) -> Option<Instant> {
        self.lock().closed_until
    }

    /// Waits until the queue is closed, and returns the time by which the export must end.
    pub(crate) async fn closed(&self) -> Instant {
        loop {
            if let Some(deadline) = self.closed_until() {
                return deadline;
            }
            self.changed.notified().await;
        }
    }

    /// Waits for the next batch: until it is full, `delay` has passed since its first span, or the
    /// queue is closed. Returns `None` once the queue is closed and empty.
    pub(crate) async fn next_batch(&self, delay: Duration) -> Option<Vec<Vec<u8>>> {
        while !self.has_any_or_is_closed() {
            self.changed.notified().await;
        }
        let full = async {
            while !self.has_batch_or_is_closed() {
                self.changed.notified().await;
            }
        };
        // The result is the same whether the time or the number has ended the wait.
        let _ = tokio::time::timeout(delay, full).await;
        let mut state = self.lock();
        let count = state.spans.len().min(self.batch_size);
        let batch: Vec<_> = state.spans.drain(..count).collect();
        state.bytes -= batch.iter().map(Vec::len).sum::<usize>();
        (!batch.is_empty()).then_some(batch)
    }

    /// Removes all spans, and returns how many there were.
    pub(crate) fn clear(&self) -> u64 {
        let mut state = self.lock();
        state.bytes = 0;
        state.spans.drain(..).len() as u64
    }

    fn has_any_or_is_closed(&self) -> bool {
        let state = self.lock();
        !state.spans.is_empty() || state.closed_until.is_some()
    }

    fn has_batch_or_is_closed(&self) -> bool {
        let state = self.lock();
        state.spans.len() >= self.batch_size || state.closed_until.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A poisoned lock can be used, because no panic leaves the data inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(future)
    }

    #[test]
    fn refuses_spans_beyond_either_limit() {
        let queue = Queue::new(3, 2);
        assert!(queue.push(vec![1]) && queue.push(vec![2]) && queue.push(vec![3]));
        assert!(!queue.push(vec![4]), "the number is limited");
        let queue = Queue::new(1000, 2);
        for _ in 0..8 {
            assert!(queue.push(vec![0; 1 << 20]));
        }
        assert!(!queue.push(vec![0]), "the bytes are limited");
        block_on(queue.next_batch(Duration::ZERO)).unwrap();
        assert!(queue.push(vec![0; 2 << 20]) && !queue.push(vec![0]), "the bytes are free again");
        assert_eq!(queue.clear(), 7);
    }

    #[test]
    fn a_batch_is_full_or_late_or_the_last() {
        let queue = Queue::new(10, 3);
        let long = Duration::from_secs(600);
        (0..4).for_each(|span| assert!(queue.push(vec![span])));
        assert_eq!(block_on(queue.next_batch(long)), Some(vec![vec![0], vec![1], vec![2]]));
        assert_eq!(block_on(queue.next_batch(Duration::from_millis(5))), Some(vec![vec![3]]));
        assert!(queue.push(vec![5]));
        queue.close(Instant::now());
        assert_eq!(block_on(queue.next_batch(long)), Some(vec![vec![5]]));
        assert_eq!(block_on(queue.next_batch(long)), None);
        assert!(!queue.push(vec![6]), "a closed queue takes nothing");
    }
}
