//! The requests that were sent to one worker and not answered, whose places are divided among
//! networks and peers.

use std::time::Instant;

use rookery_exchange::Peer;
use rookery_worker_protocol::{MAX_TICKETS, Ticket};

use super::shares::Shares;

/// The maximum number of requests that a worker has at the same time if there is no setting. The
/// remaining tickets are for the requests of smaller networks.
const MAX_PLACES: usize = MAX_TICKETS / 4 * 3;

/// A request that was sent to a worker and has not been responded to.
#[derive(Debug, Clone, Copy)]
pub(super) struct InFlight {
    pub(super) ticket: Ticket,
    pub(super) peer: Peer,
    /// The time since which the request has been waiting, in the queue and then at the worker.
    pub(super) queued_since: Instant,
}

/// The requests that were sent to one worker and not answered.
///
/// An app with promises may take long to answer all of them, so a peer or network could keep the
/// others out by taking all places. While all `max_in_flight` places are taken, a request is
/// therefore begun nevertheless if its network has less than an equal part of them, and at most as
/// many as are left of twice the number of places. The same applies to the peers, with one and a
/// half times the number of places, so that the peers of one network leave some to other networks.
#[derive(Debug, Default)]
pub(super) struct InFlightRequests {
    all: Vec<InFlight>,
    /// The numbers of requests by peer and by network. They are counted from the first time that a
    /// request arrives while all places are taken, until half as many requests are left.
    counts: Option<Counts>,
}

/// The numbers of requests of each peer and of each network.
#[derive(Debug, Default)]
struct Counts {
    /// The number of requests when the counts began.
    begun_with: usize,
    peers: Shares,
    networks: Shares,
}

impl InFlightRequests {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &InFlight> {
        self.all.iter()
    }

    pub(super) fn add(&mut self, request: InFlight) {
        if let Some(counts) = &mut self.counts {
            counts.add(request.peer);
        }
        self.all.push(request);
    }

    /// Removes a request, if it is one of these.
    pub(super) fn remove(&mut self, ticket: Ticket) {
        let Some(at) = self.all.iter().position(|other| other.ticket == ticket) else { return };
        let request = self.all.swap_remove(at);
        if let Some(counts) = &mut self.counts {
            counts.remove(request.peer);
            if self.all.len() <= counts.begun_with / 2 {
                self.counts = None;
            }
        }
    }

    /// Returns true if all places are taken. `max` is the setting `max_in_flight`.
    #[inline]
    pub(super) fn is_full(&self, max: usize) -> bool {
        self.all.len() >= max.min(MAX_PLACES)
    }

    /// Returns true if the worker may be sent another request of this peer.
    #[inline]
    pub(super) fn find_place(&mut self, peer: Peer, max: usize) -> bool {
        !self.is_full(max) || self.find_place_beyond(Some(peer), max)
    }

    /// Returns true if all places are taken, and the worker may nevertheless be sent a request of a
    /// peer or of a network that has none of them.
    pub(super) fn find_place_for_others(&mut self, max: usize) -> bool {
        self.is_full(max) && self.find_place_beyond(None, max)
    }

    /// Returns true if a request of this peer, or of one that has no request here, may be begun
    /// although all places are taken.
    #[cold]
    fn find_place_beyond(&mut self, peer: Option<Peer>, max: usize) -> bool {
        let max = max.min(MAX_PLACES);
        let (used, most) = (self.all.len(), max.saturating_mul(2).min(MAX_TICKETS));
        let counts = self.counts.get_or_insert_with(|| Counts::of(&self.all));
        let Counts { networks, peers, .. } = &*counts;
        let of_peers = usize::midpoint(max, most);
        networks.has_place_beyond(peer.map(Peer::network), used, (max, most))
            || peers.has_place_beyond(peer.map(Peer::id), used, (max, of_peers))
    }
}

impl Counts {
    fn of(requests: &[InFlight]) -> Counts {
        let mut counts = Counts { begun_with: requests.len(), ..Counts::default() };
        for request in requests {
            counts.add(request.peer);
        }
        counts
    }

    fn add(&mut self, peer: Peer) {
        self.peers.add(peer.id());
        self.networks.add(peer.network());
    }

    fn remove(&mut self, peer: Peer) {
        self.peers.remove(peer.id());
        self.networks.remove(peer.network());
    }
}

#[cfg(test)]
mod tests {
    use rookery_worker_protocol::{TicketGuard, Tickets};

    use super::*;

    /// The requests at a worker, and the guards of their tickets.
    #[derive(Default)]
    struct Worker {
        requests: InFlightRequests,
        tickets: Tickets,
        guards: Vec<(Peer, TicketGuard)>,
    }

    impl Worker {
        /// Sends up to `count` requests of the peer `id`, whose network is the hundreds of `id`.
        /// Returns the number of those that the worker accepts.
        fn send(&mut self, id: u64, count: usize, max: usize) -> usize {
            let peer = Peer::new(id, id / 100);
            for sent in 0..count {
                if !self.requests.find_place(peer, max) {
                    return sent;
                }
                let guard = self.tickets.take().expect("there are enough tickets");
                let (ticket, queued_since) = (guard.ticket(), Instant::now());
                self.requests.add(InFlight { ticket, peer, queued_since });
                self.guards.push((peer, guard));
            }
            count
        }

        /// Answers the `at`-th request.
        fn answer(&mut self, at: usize) {
            let (_, guard) = self.guards.swap_remove(at);
            self.requests.remove(guard.ticket());
        }

        fn held(&self, is_counted: impl Fn(Peer) -> bool) -> usize {
            self.guards.iter().filter(|(peer, _)| is_counted(*peer)).count()
        }
    }

    #[test]
    fn a_network_that_takes_all_places_leaves_some_to_each_other_network() {
        let mut worker = Worker::default();
        assert_eq!(worker.send(100, 1000, 64), 64);
        assert!(worker.requests.find_place_for_others(64));
        let sent: Vec<_> = (2..=9).map(|network| worker.send(network * 100, 1000, 64)).collect();
        assert_eq!(sent, [32, 16, 8, 4, 2, 1, 1, 0], "all together have 128");
        assert!(!worker.requests.find_place_for_others(64));
        // A network with fewer than the others gets what is answered.
        (0..8).for_each(|_| worker.answer(0));
        assert_eq!((worker.send(100, 1, 64), worker.send(900, 1000, 64)), (0, 4));
    }

    #[test]
    fn many_peers_of_a_network_leave_places_to_other_networks_and_one_peer_to_other_peers() {
        let mut worker = Worker::default();
        assert_eq!(worker.send(100, 1000, 64), 64);
        assert_eq!((101..=199).map(|peer| worker.send(peer, 1000, 64)).sum::<usize>(), 32);
        assert_eq!(worker.held(|peer| peer.id() == 101), 16);
        assert_eq!(worker.send(200, 1000, 64), 16);
    }

    #[test]
    fn the_limit_holds_while_no_peer_has_more_than_another() {
        let mut worker = Worker::default();
        assert_eq!((1..=99).map(|peer| worker.send(peer, 1, 64)).sum::<usize>(), 64);
        assert_eq!(worker.send(100, 1, 64), 1, "the peers of a network are counted together");
        let mut worker = Worker::default();
        let sent = (1..=99).map(|network| worker.send(network * 100, 1, 64)).sum::<usize>();
        assert_eq!((sent, worker.requests.find_place_for_others(64)), (64, false));
        for max in 1..=5 {
            let mut worker = Worker::default();
            assert_eq!((worker.send(1, 100, max), worker.send(2, 0, max)), (max, 0));
        }
    }

    #[test]
    fn without_a_setting_the_tickets_suffice_and_some_are_left_to_others() {
        let mut worker = Worker::default();
        assert_eq!(worker.send(100, MAX_TICKETS, usize::MAX), MAX_PLACES);
        for network in 2..=20 {
            let sent = worker.send(network * 100, MAX_TICKETS, usize::MAX);
            assert!(sent > 0 || network > 8, "{network}");
        }
        assert_eq!(worker.requests.len(), MAX_TICKETS);
    }

    #[test]
    fn with_arbitrary_peers_the_counts_are_right_and_a_network_with_none_may_send_a_request() {
        let steps = std::env::var("ROOKERY_MODEL_STEPS").map_or(20_000, |it| it.parse().unwrap());
        let mut state = 0x2545_F491_4F6C_DD1D_u64;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        let (mut worker, mut beyond) = (Worker::default(), 0);
        for _ in 0..steps {
            if random(3) == 0 && !worker.guards.is_empty() {
                worker.answer(random(worker.guards.len()));
            } else {
                let peer = 100 * (1 + random(3)) + random(3);
                worker.send(peer as u64, 1 + random(12), 16);
            }
            let (all, of_network) = (worker.requests.len(), |network: u64| {
                worker.held(|peer| peer.network() == network)
            });
            let most = (1..=3).map(of_network).max().unwrap();
            assert!(all <= 32 && worker.guards.len() == all, "{all}");
            if let Some(counts) = &worker.requests.counts {
                for (id, count) in counts.peers.iter() {
                    assert_eq!(worker.held(|peer| peer.id() == id), count);
                }
                assert_eq!(counts.peers.iter().map(|(_, count)| count).sum::<usize>(), all);
                assert_eq!(counts.networks.iter().map(|(_, count)| count).sum::<usize>(), all);
            }
            // Of three networks, each leaves a place to a fourth one.
            let newcomer = Peer::new(900, 9);
            assert!(
                all < 16 || most < 2 || worker.requests.find_place(newcomer, 16),
                "{most} of {all}"
            );
            beyond += usize::from(all > 16);
        }
        assert!(beyond > steps / 10, "{beyond}");
    }
}
