//! Requests that wait for a worker, the oldest first; and apart from them those that need not be looked at before something changes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rookery_exchange::Exchange;

use super::session_affinity::{self, RequestKind};
use crate::pool_counters::QueueGauge;

/// A request that waits for a worker.
#[derive(Debug)]
pub(super) struct QueuedRequest {
    pub(super) exchange: Box<Exchange>,
    pub(super) came: Instant,
    /// Since when it waits: it has been with a worker before, if it came earlier.
    pub(super) since: Instant,
    /// How often it has come back from a worker that had not begun it.
    pub(super) returns: u32,
    /// How many workers have ended while R had begun it.
    pub(super) deaths: u32,
    /// Whether its client is told which worker it came to.
    pub(super) tells: bool,
    /// Whether this is its head alone: its body is taken once the app has seen that.
    pub(super) is_head: bool,
    /// The kind of the request, once it has been read. Used only with sticky sessions.
    pub(super) asks: Option<RequestKind>,
    /// The start of a worker that did not begin it in time, and is not given it again.
    pub(super) avoids: Option<u64>,
}

impl QueuedRequest {
    pub(super) fn new(exchange: Box<Exchange>, is_head: bool) -> QueuedRequest {
        let now = Instant::now();
        QueuedRequest {
            exchange,
            came: now,
            since: now,
            returns: 0,
            deaths: 0,
            tells: false,
            is_head,
            asks: None,
            avoids: None,
        }
    }

    /// Returns true if a session begins with the request.
    pub(super) fn begins(&self) -> bool {
        self.asks.is_some_and(session_affinity::begins)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct RequestQueue {
    waiting: VecDeque<QueuedRequest>,
    /// Requests that name no worker, by age, where clients come back to their worker: they have been looked
    /// at, and are given to whichever worker is free. A look verifies a signature, so each has one only.
    parked: VecDeque<QueuedRequest>,
}

impl RequestQueue {
    /// Puts a request behind the others, of which there may be `most`; it comes back when there are.
    pub(super) fn push(
        &mut self,
        waiting: QueuedRequest,
        most: usize,
    ) -> Result<(), Box<Exchange>> {
        if self.is_full(most) {
            return Err(waiting.exchange);
        }
        self.waiting.push_back(waiting);
        Ok(())
    }

    /// Puts one where its age says: whose worker has ended may be older than those that are there.
    pub(super) fn insert(&mut self, waiting: QueuedRequest) {
        insert(&mut self.waiting, waiting);
    }

    /// Since when the first waits, and how many do.
    pub(super) fn tell(&self, gauge: &QueueGauge) {
        let firsts = [&self.waiting, &self.parked].into_iter().filter_map(VecDeque::front);
        gauge.set(self.len(), firsts.map(|first| first.since).min());
    }

    fn len(&self) -> usize {
        self.waiting.len() + self.parked.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts one aside until [`unpark`](Self::unpark).
    pub(super) fn park(&mut self, waiting: QueuedRequest) {
        insert(&mut self.parked, waiting);
    }

    pub(super) fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Takes the oldest parked request that `is_wanted`.
    pub(super) fn take_parked(
        &mut self,
        is_wanted: impl Fn(&QueuedRequest) -> bool,
    ) -> Option<QueuedRequest> {
        let at = self.parked.iter().position(is_wanted)?;
        self.parked.remove(at)
    }

    /// Takes all requests that are `wanted` out of those that wait.
    pub(super) fn take_all(
        &mut self,
        wanted: impl Fn(&QueuedRequest) -> bool,
    ) -> Vec<QueuedRequest> {
        if !self.waiting.iter().any(&wanted) {
            return Vec::new();
        }
        let (taken, left) = self.waiting.drain(..).partition::<Vec<_>, _>(wanted);
        self.waiting = left.into();
        taken
    }

    /// Has those be looked at again that were put aside, before the others.
    pub(super) fn unpark(&mut self) {
        self.parked.append(&mut self.waiting);
        std::mem::swap(&mut self.parked, &mut self.waiting);
    }

    /// Takes out those put aside that have waited for so long.
    pub(super) fn take_overdue_parked(&mut self, time: Duration) -> Vec<QueuedRequest> {
        take_overdue(&mut self.parked, time)
    }

    /// Takes out those that have waited for so long, which are in front.
    pub(super) fn take_overdue(&mut self, time: Duration) -> Vec<QueuedRequest> {
        take_overdue(&mut self.waiting, time)
    }

    pub(super) fn is_full(&self, most: usize) -> bool {
        self.len() >= most
    }

    /// Puts back a request that has just been taken from the front.
    pub(super) fn push_front(&mut self, waiting: QueuedRequest) {
        self.waiting.push_front(waiting);
    }

    pub(super) fn pop(&mut self) -> Option<QueuedRequest> {
        self.waiting.pop_front()
    }

    /// Takes out those whose clients have gone.
    pub(super) fn take_departed(&mut self) -> Vec<QueuedRequest> {
        let mut all_gone = Vec::new();
        for waiting in [&mut self.waiting, &mut self.parked] {
            let (gone, left) = waiting
                .drain(..)
                .partition::<Vec<_>, _>(|waiting| waiting.exchange.is_client_disconnected());
            *waiting = left.into();
            all_gone.extend(gone);
        }
        all_gone
    }
}

/// At its place by age, which is nearly always the last.
fn insert(into: &mut VecDeque<QueuedRequest>, waiting: QueuedRequest) {
    let at = into.partition_point(|other| other.since <= waiting.since);
    into.insert(at, waiting);
}

/// Takes the first out while they have waited for so long.
fn take_overdue(from: &mut VecDeque<QueuedRequest>, time: Duration) -> Vec<QueuedRequest> {
    let overdue = from.iter().take_while(|waiting| waiting.since.elapsed() >= time).count();
    from.drain(..overdue).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(id: u64) -> QueuedRequest {
        let mut exchange = Exchange::new();
        exchange.begin(id, 1, 0);
        QueuedRequest::new(exchange, false)
    }

    #[test]
    fn it_is_bounded_and_who_has_gone_has_no_place_in_it() {
        let mut queue = RequestQueue::default();
        let first = waiting(1);
        let fate = first.exchange.shared_status();
        queue.push(first, 2).unwrap();
        queue.push(waiting(2), 2).unwrap();
        assert_eq!(queue.push(waiting(3), 2).unwrap_err().id(), 3);
        fate.set_disconnected();
        let departed = queue.take_departed();
        queue.push(waiting(3), 2).unwrap();
        assert_eq!(departed.iter().map(|gone| gone.exchange.id()).collect::<Vec<_>>(), [1]);
        let second = queue.pop().unwrap();
        assert_eq!((second.exchange.id(), second.returns), (2, 0));
        queue.push_front(second);
        assert_eq!([queue.pop(), queue.pop()].map(|it| it.unwrap().exchange.id()), [2, 3]);
        assert!(queue.pop().is_none());
    }

    #[test]
    fn who_is_put_aside_counts_and_is_the_first_afterwards_by_age() {
        let mut queue = RequestQueue::default();
        let [first, second, third, fourth] = [1, 2, 3, 4].map(waiting);
        let gone = fourth.exchange.shared_status();
        for one in [third, first, fourth] {
            queue.park(one);
        }
        queue.push(second, 4).unwrap();
        assert!(queue.is_full(4) && !queue.is_full(5) && queue.has_parked());
        assert_eq!(queue.pop().unwrap().exchange.id(), 2);
        assert!(queue.pop().is_none() && !queue.is_empty());
        gone.set_disconnected();
        assert_eq!(queue.take_departed().len(), 1);
        assert!(queue.take_overdue_parked(Duration::from_secs(600)).is_empty());
        queue.push(waiting(5), 4).unwrap();
        queue.unpark();
        assert!(!queue.has_parked());
        assert_eq!([(); 3].map(|()| queue.pop().unwrap().exchange.id()), [1, 3, 5]);
        queue.park(waiting(6));
        assert_eq!(queue.take_overdue_parked(Duration::ZERO).len(), 1);
        assert!(queue.is_empty());
    }

    #[test]
    fn one_that_is_older_comes_before_the_others() {
        let mut queue = RequestQueue::default();
        let [first, second, third] = [1, 2, 3].map(waiting);
        for one in [second, third, first] {
            queue.insert(one);
        }
        assert_eq!([(); 3].map(|()| queue.pop().unwrap().exchange.id()), [1, 2, 3]);
    }
}
