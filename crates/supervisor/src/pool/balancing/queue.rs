//! The queue of requests that wait for a worker, oldest first. With session affinity, the requests
//! that may be sent to any worker are parked in a separate list.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rookery_exchange::Exchange;

use super::session_affinity::{self, RequestKind};
use rookery_status::QueueGauge;

/// A request that waits for a worker.
#[derive(Debug)]
pub(in crate::pool) struct QueuedRequest {
    pub(in crate::pool) exchange: Box<Exchange>,
    /// The time at which the pool received the request from the server.
    pub(in crate::pool) received_at: Instant,
    /// The time since which the request has been waiting in the queue. When a request is queued
    /// again, this time is adjusted so that the time spent at a worker does not count.
    pub(in crate::pool) queued_since: Instant,
    /// The number of times that the request was queued again because its worker ended before R had
    /// begun the request.
    pub(in crate::pool) returns: u32,
    /// Whether a session cookie that names the worker is added to the response.
    pub(in crate::pool) sets_cookie: bool,
    /// Whether only the head of the request has been received. The server receives the body once
    /// the app has seen the head.
    pub(in crate::pool) is_head_only: bool,
    /// The kind of the request, such as a page or a WebSocket, or `None` if it has not been
    /// determined. Used only for session affinity.
    pub(in crate::pool) kind: Option<RequestKind>,
    /// The epoch (serial number) of a worker that did not begin the request in time. The request is
    /// sent to that worker again only if no other worker is ready.
    pub(in crate::pool) avoided_epoch: Option<u64>,
}

impl QueuedRequest {
    pub(in crate::pool) fn new(exchange: Box<Exchange>, is_head_only: bool) -> QueuedRequest {
        let now = Instant::now();
        QueuedRequest {
            exchange,
            received_at: now,
            queued_since: now,
            returns: 0,
            sets_cookie: false,
            is_head_only,
            kind: None,
            avoided_epoch: None,
        }
    }

    /// Returns true if any worker may process the request.
    pub(in crate::pool) fn may_go_anywhere(&self) -> bool {
        self.kind.is_none() || self.sets_cookie
    }

    /// Returns true if a session was reserved when a worker was chosen for the request.
    pub(in crate::pool) fn has_reservation(&self) -> bool {
        self.begins_session() || (self.kind.is_none() && self.exchange.is_upgrade())
    }

    /// Returns true if the request begins a session.
    pub(super) fn begins_session(&self) -> bool {
        self.kind.is_some_and(session_affinity::begins_session)
    }
}

/// A queue of requests that wait for a worker, oldest first.
#[derive(Debug, Default)]
pub(super) struct RequestQueue {
    waiting: VecDeque<QueuedRequest>,
    /// The parked requests, which name no worker and wait for any free worker. Used only for
    /// session affinity. They are not routed again until the workers change, because verifying a
    /// signed cookie each time would be expensive.
    parked: VecDeque<QueuedRequest>,
}

impl RequestQueue {
    /// Appends a request to the queue. If the queue already has `max` requests, returns the
    /// exchange (the request with its response) as the error.
    pub(super) fn push(&mut self, request: QueuedRequest, max: usize) -> Result<(), Box<Exchange>> {
        if self.is_full(max) {
            return Err(request.exchange);
        }
        self.waiting.push_back(request);
        Ok(())
    }

    /// Inserts a request into the queue by its age, so that the oldest requests stay first.
    pub(super) fn insert(&mut self, request: QueuedRequest) {
        insert(&mut self.waiting, request);
    }

    /// Updates the gauge that reports the length of the queue and how long its oldest request has
    /// waited.
    pub(super) fn update_gauge(&self, gauge: &QueueGauge) {
        let firsts = [&self.waiting, &self.parked].into_iter().filter_map(VecDeque::front);
        gauge.set(self.len(), firsts.map(|first| first.queued_since).min());
    }

    fn len(&self) -> usize {
        self.waiting.len() + self.parked.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Parks a request, so that it is not routed again until [`unpark_all`](Self::unpark_all) or
    /// [`take_parked`](Self::take_parked) is called.
    pub(super) fn park(&mut self, request: QueuedRequest) {
        insert(&mut self.parked, request);
    }

    pub(super) fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Removes and returns the oldest parked request for which `is_wanted` returns true.
    pub(super) fn take_parked(
        &mut self,
        is_wanted: impl Fn(&QueuedRequest) -> bool,
    ) -> Option<QueuedRequest> {
        let at = self.parked.iter().position(is_wanted)?;
        self.parked.remove(at)
    }

    /// Removes and returns all queued requests for which `is_wanted` returns true. Parked requests
    /// are not considered.
    pub(super) fn take_all(
        &mut self,
        is_wanted: impl Fn(&QueuedRequest) -> bool,
    ) -> Vec<QueuedRequest> {
        if !self.waiting.iter().any(&is_wanted) {
            return Vec::new();
        }
        let (taken, left) = self.waiting.drain(..).partition::<Vec<_>, _>(is_wanted);
        self.waiting = left.into();
        taken
    }

    /// Moves all parked requests to the front of the queue, so that they are routed again.
    pub(super) fn unpark_all(&mut self) {
        self.parked.append(&mut self.waiting);
        std::mem::swap(&mut self.parked, &mut self.waiting);
    }

    /// Removes and returns the parked requests that have waited for `time` or longer.
    pub(super) fn take_overdue_parked(&mut self, time: Duration) -> Vec<QueuedRequest> {
        take_overdue(&mut self.parked, time)
    }

    /// Removes and returns the requests at the front of the queue that have waited for `time` or
    /// longer.
    pub(super) fn take_overdue(&mut self, time: Duration) -> Vec<QueuedRequest> {
        take_overdue(&mut self.waiting, time)
    }

    pub(super) fn is_full(&self, max: usize) -> bool {
        self.len() >= max
    }

    /// Puts a request back at the front of the queue.
    pub(super) fn push_front(&mut self, request: QueuedRequest) {
        self.waiting.push_front(request);
    }

    pub(super) fn pop(&mut self) -> Option<QueuedRequest> {
        self.waiting.pop_front()
    }

    /// Removes and returns the queued requests whose clients have disconnected.
    pub(super) fn take_disconnected(&mut self) -> Vec<QueuedRequest> {
        let mut all = Vec::new();
        for requests in [&mut self.waiting, &mut self.parked] {
            let (disconnected, left) = requests
                .drain(..)
                .partition::<Vec<_>, _>(|request| request.exchange.is_client_disconnected());
            *requests = left.into();
            all.extend(disconnected);
        }
        all
    }
}

/// Inserts a request into a queue by its age, so that the oldest requests stay first.
fn insert(requests: &mut VecDeque<QueuedRequest>, request: QueuedRequest) {
    let at = requests.partition_point(|other| other.queued_since <= request.queued_since);
    requests.insert(at, request);
}

/// Removes and returns the requests at the front of a queue that have waited for `time` or longer.
fn take_overdue(requests: &mut VecDeque<QueuedRequest>, time: Duration) -> Vec<QueuedRequest> {
    let overdue =
        requests.iter().take_while(|request| request.queued_since.elapsed() >= time).count();
    requests.drain(..overdue).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(id: u64) -> QueuedRequest {
        let mut exchange = Exchange::new();
        exchange.begin(id, 1, 0);
        QueuedRequest::new(exchange, false)
    }

    #[test]
    fn is_bounded_and_drops_requests_of_disconnected_clients() {
        let mut queue = RequestQueue::default();
        let first = queued(1);
        let status = first.exchange.shared_status();
        queue.push(first, 2).unwrap();
        queue.push(queued(2), 2).unwrap();
        assert_eq!(queue.push(queued(3), 2).unwrap_err().id(), 3);
        status.set_disconnected();
        let disconnected = queue.take_disconnected();
        queue.push(queued(3), 2).unwrap();
        assert_eq!(
            disconnected.iter().map(|request| request.exchange.id()).collect::<Vec<_>>(),
            [1]
        );
        let second = queue.pop().unwrap();
        assert_eq!((second.exchange.id(), second.returns), (2, 0));
        queue.push_front(second);
        assert_eq!([queue.pop(), queue.pop()].map(|it| it.unwrap().exchange.id()), [2, 3]);
        assert!(queue.pop().is_none());
    }

    #[test]
    fn parked_requests_count_and_return_in_the_order_of_their_age() {
        let mut queue = RequestQueue::default();
        let [first, second, third, fourth] = [1, 2, 3, 4].map(queued);
        let status = fourth.exchange.shared_status();
        for one in [third, first, fourth] {
            queue.park(one);
        }
        queue.push(second, 4).unwrap();
        assert!(queue.is_full(4) && !queue.is_full(5) && queue.has_parked());
        assert_eq!(queue.pop().unwrap().exchange.id(), 2);
        assert!(queue.pop().is_none() && !queue.is_empty());
        status.set_disconnected();
        assert_eq!(queue.take_disconnected().len(), 1);
        assert!(queue.take_overdue_parked(Duration::from_secs(600)).is_empty());
        queue.push(queued(5), 4).unwrap();
        queue.unpark_all();
        assert!(!queue.has_parked());
        assert_eq!([(); 3].map(|()| queue.pop().unwrap().exchange.id()), [1, 3, 5]);
        queue.park(queued(6));
        assert_eq!(queue.take_overdue_parked(Duration::ZERO).len(), 1);
        assert!(queue.is_empty());
    }

    #[test]
    fn inserts_an_older_request_before_the_others() {
        let mut queue = RequestQueue::default();
        let [first, second, third] = [1, 2, 3].map(queued);
        for one in [second, third, first] {
            queue.insert(one);
        }
        assert_eq!([(); 3].map(|()| queue.pop().unwrap().exchange.id()), [1, 2, 3]);
    }
}
