//! The queue of requests that wait for a worker. With session affinity, the requests that may be
//! sent to any worker are parked in a separate list.

use std::time::{Duration, Instant};

use rookery_exchange::{Exchange, FairQueue, Load, Peer, Queued};

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

    pub(in crate::pool) fn peer(&self) -> Peer {
        self.exchange.peer()
    }

    /// Returns true if any worker may process the request.
    pub(in crate::pool) fn may_go_anywhere(&self) -> bool {
        self.kind.is_none() || self.sets_cookie
    }

    /// Returns true if the request begins a session.
    pub(super) fn begins_session(&self) -> bool {
        self.kind.is_some_and(session_affinity::begins_session)
    }
}

impl Queued for QueuedRequest {
    fn load(&self) -> Load {
        Load { requests: 1, ..Load::default() }
    }
}

/// A queue of requests that wait for a worker. They are taken round-robin over the networks and
/// their peers, and those of one peer by their age.
#[derive(Debug, Default)]
pub(super) struct RequestQueue {
    waiting: FairQueue<QueuedRequest>,
    /// The parked requests, which name no worker and wait for any free worker. Used only for
    /// session affinity. They are not routed again until the workers change, because verifying a
    /// signed cookie each time would be expensive.
    parked: FairQueue<QueuedRequest>,
}

impl RequestQueue {
    /// Adds a request to the queue. If the queue already has `max` requests, parked ones included,
    /// returns a request that has no place: the newest of the peer that has the most, within the
    /// network that has the most, or this one if no other has more. A network without requests in
    /// the queue may add one until the queue has twice as many.
    pub(super) fn push(&mut self, request: QueuedRequest, max: usize) -> Option<QueuedRequest> {
        let mut displaced = None;
        if self.is_full(max) {
            let queues = &mut [&mut self.waiting, &mut self.parked];
            displaced = FairQueue::displace_from(queues, request.peer());
            if displaced.is_none() && !self.admits_first(request.peer(), max) {
                return Some(request);
            }
        }
        self.insert(request);
        displaced
    }

    /// Returns true if the queue, which is full, may have a first request of this peer's network.
    fn admits_first(&self, peer: Peer, max: usize) -> bool {
        let mut queues = [&self.waiting, &self.parked].into_iter();
        self.len() < max.saturating_mul(2) && queues.all(|it| !it.has_requests_of_network(peer))
    }

    /// Inserts a request among those of its peer, by its age.
    pub(super) fn insert(&mut self, request: QueuedRequest) {
        insert(&mut self.waiting, request);
    }

    /// Updates the gauge that reports the length of the queue and how long its oldest request has
    /// waited.
    pub(super) fn update_gauge(&self, gauge: &QueueGauge) {
        let firsts = self.waiting.heads().chain(self.parked.heads());
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

    /// Removes and returns the next parked request for which `is_wanted` returns true, of a peer
    /// for which `is_of_wanted` does.
    pub(super) fn take_parked(
        &mut self,
        is_of_wanted: impl Fn(Peer) -> bool,
        is_wanted: impl Fn(&QueuedRequest) -> bool,
    ) -> Option<QueuedRequest> {
        self.parked.take_first(is_of_wanted, is_wanted).map(|(_, request)| request)
    }

    /// Puts a parked request back that was just taken, and that no worker can begin.
    pub(super) fn put_back_parked(&mut self, request: QueuedRequest) {
        put_back(&mut self.parked, request);
    }

    /// Removes and returns all queued requests for which `is_wanted` returns true. Parked requests
    /// are not considered.
    pub(super) fn take_all(
        &mut self,
        is_wanted: impl Fn(&QueuedRequest) -> bool,
    ) -> Vec<QueuedRequest> {
        self.waiting.take_all(is_wanted)
    }

    /// Moves all parked requests to the front of the queue, so that they are routed again.
    pub(super) fn unpark_all(&mut self) {
        let parked: Vec<_> = std::iter::from_fn(|| self.parked.pop()).collect();
        for (_, request) in parked.into_iter().rev() {
            self.put_back(request);
        }
    }

    /// Removes and returns the parked requests that have waited for `time` or longer.
    pub(super) fn take_overdue_parked(&mut self, time: Duration) -> Vec<QueuedRequest> {
        take_overdue(&mut self.parked, time)
    }

    /// Removes and returns the queued requests that have waited for `time` or longer. Parked
    /// requests are not considered.
    pub(super) fn take_overdue(&mut self, time: Duration) -> Vec<QueuedRequest> {
        take_overdue(&mut self.waiting, time)
    }

    pub(super) fn is_full(&self, max: usize) -> bool {
        self.len() >= max
    }

    /// Puts a request back that was just taken, so that it is the next to be taken.
    pub(super) fn put_back(&mut self, request: QueuedRequest) {
        put_back(&mut self.waiting, request);
    }

    pub(super) fn pop(&mut self) -> Option<QueuedRequest> {
        self.waiting.pop().map(|(_, request)| request)
    }

    /// Removes and returns the next request of a peer for which `is_wanted` returns true.
    pub(super) fn pop_of(&mut self, is_wanted: impl Fn(Peer) -> bool) -> Option<QueuedRequest> {
        self.waiting.pop_of(is_wanted).map(|(_, request)| request)
    }

    /// Removes and returns the queued requests whose clients have disconnected.
    pub(super) fn take_disconnected(&mut self) -> Vec<QueuedRequest> {
        let is_disconnected = |request: &QueuedRequest| request.exchange.is_client_disconnected();
        let mut all = self.waiting.take_all(is_disconnected);
        all.append(&mut self.parked.take_all(is_disconnected));
        all
    }
}

/// Inserts a request behind those of its peer that have waited for as long or longer.
fn insert(requests: &mut FairQueue<QueuedRequest>, request: QueuedRequest) {
    let since = request.queued_since;
    requests.insert(request.peer(), request, |other| other.queued_since > since);
}

/// Puts a request back before those of its peer that have waited for as long or less, and gives the
/// peer and its network the next turn.
fn put_back(requests: &mut FairQueue<QueuedRequest>, request: QueuedRequest) {
    let since = request.queued_since;
    requests.put_back(request.peer(), request, |other| other.queued_since >= since);
}

/// Removes and returns the requests that have waited for `time` or longer.
fn take_overdue(requests: &mut FairQueue<QueuedRequest>, time: Duration) -> Vec<QueuedRequest> {
    let now = Instant::now();
    let is_overdue =
        |request: &QueuedRequest| now.saturating_duration_since(request.queued_since) >= time;
    // The first request of each peer is its oldest.
    if requests.heads().any(is_overdue) { requests.take_all(is_overdue) } else { Vec::new() }
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
        assert!(queue.push(first, 2).is_none());
        assert!(queue.push(queued(2), 2).is_none());
        assert_eq!(queue.push(queued(3), 2).unwrap().exchange.id(), 3);
        status.set_disconnected();
        let disconnected = queue.take_disconnected();
        assert!(queue.push(queued(3), 2).is_none());
        assert_eq!(
            disconnected.iter().map(|request| request.exchange.id()).collect::<Vec<_>>(),
            [1]
        );
        let second = queue.pop().unwrap();
        assert_eq!((second.exchange.id(), second.returns), (2, 0));
        queue.put_back(second);
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
        assert!(queue.push(second, 4).is_none());
        assert!(queue.is_full(4) && !queue.is_full(5) && queue.has_parked());
        assert_eq!(queue.pop().unwrap().exchange.id(), 2);
        assert!(queue.pop().is_none() && !queue.is_empty());
        status.set_disconnected();
        assert_eq!(queue.take_disconnected().len(), 1);
        assert!(queue.take_overdue_parked(Duration::from_secs(600)).is_empty());
        assert!(queue.push(queued(5), 4).is_none());
        queue.unpark_all();
        assert!(!queue.has_parked());
        assert_eq!([(); 3].map(|()| queue.pop().unwrap().exchange.id()), [1, 3, 5]);
        queue.park(queued(6));
        assert_eq!(queue.take_overdue_parked(Duration::ZERO).len(), 1);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_peer_with_many_requests_makes_place_for_one_with_few_whose_turn_comes_soon() {
        let of = |peer: u64, id: u64| {
            let mut request = queued(id);
            request.exchange.set_peer(Peer::new(peer, peer));
            request
        };
        for parks in [false, true] {
            let mut queue = RequestQueue::default();
            for id in 1..=100 {
                if parks {
                    queue.park(of(1, id));
                } else {
                    assert!(queue.push(of(1, id), 100).is_none());
                }
            }
            assert_eq!(queue.push(of(1, 101), 100).unwrap().exchange.id(), 101);
            assert_eq!(queue.push(of(2, 102), 100).unwrap().exchange.id(), 100);
            queue.unpark_all();
            let order: Vec<_> =
                std::iter::from_fn(|| queue.pop()).map(|request| request.exchange.id()).collect();
            assert!(order[..2].contains(&102) && order.len() == 100, "{order:?}");
        }
    }

    #[test]
    fn a_network_without_a_request_in_a_queue_of_one_place_may_add_one() {
        for parks in [false, true] {
            let mut queue = RequestQueue::default();
            let mut push = |network: u64| {
                let mut request = queued(1);
                request.exchange.set_peer(Peer::new(network, network));
                let is_accepted = queue.push(request, 1).is_none();
                if parks && is_accepted {
                    let request = queue.pop().unwrap();
                    queue.park(request);
                }
                is_accepted
            };
            assert_eq!([1, 1, 2, 2, 3].map(&mut push), [true, false, true, false, false]);
        }
    }

    #[test]
    fn parked_requests_and_others_of_a_peer_are_counted_together() {
        let of = |peer: u64, id: u64| {
            let mut request = queued(id);
            request.exchange.set_peer(Peer::new(peer, peer));
            request
        };
        let mut queue = RequestQueue::default();
        for id in 1..=4 {
            queue.park(of(1, id));
        }
        for id in 5..=8 {
            assert!(queue.push(of(1, id), 11).is_none());
        }
        for id in 9..=11 {
            queue.park(of(2, id));
        }
        assert_eq!(queue.push(of(3, 12), 11).unwrap().exchange.id(), 8);
        assert_eq!(queue.push(of(2, 13), 11).unwrap().exchange.id(), 7);
        assert_eq!(queue.push(of(1, 14), 11).unwrap().exchange.id(), 14);
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
