use std::rc::Rc;

use rookery_test_support::Random;
use rookery_worker_protocol::SharedScoreboard;
use rookery_worker_protocol::rings::RingEnd;

use super::*;
use crate::backend::Backend;
use crate::pool::balancing::worker_load::PoolBackend;
use crate::pool::limits::PoolLimits;
use crate::worker_id::WorkerId;

/// Returns the networks of all reservations, oldest first.
fn networks(reservations: &Reservations) -> Vec<u64> {
    reservations.all.iter().map(|reservation| reservation.network).collect()
}

/// Returns reservations for the requests 0, 1, 2 and so on of these networks.
fn of(networks: &[u64]) -> Reservations {
    let mut reservations = Reservations::default();
    for (request, network) in (0..).zip(networks) {
        reservations.add(request, Peer::new(0, *network));
    }
    reservations
}

#[test]
fn the_oldest_reservation_of_the_largest_network_gives_way_to_a_smaller_one() {
    let mut reservations = of(&[1, 2, 2, 3, 2, 1]);
    let [one, two, four] = [1, 2, 4].map(|network| Peer::new(9, network));
    assert!(!reservations.has_surplus_for(one) && !reservations.has_surplus_for(two));
    assert!(reservations.has_surplus_for(four));
    reservations.displace(four);
    reservations.displace(two);
    assert_eq!(networks(&reservations), [1, 2, 3, 2, 1]);
    reservations.displace(four);
    assert_eq!(networks(&reservations), [1, 3, 2, 1]);
    assert!(!of(&[1, 2, 3]).has_surplus_for(four), "no network has more than one");
}

#[test]
fn a_session_takes_the_reservation_of_its_handshake_or_the_oldest_of_its_network_or_none() {
    let mut reservations = of(&[1, 2, 1, 2]);
    reservations.begin_session(3, Peer::new(9, 2));
    assert_eq!(networks(&reservations), [1, 2, 1]);
    reservations.begin_session(10, Peer::new(9, 1));
    assert_eq!(networks(&reservations), [2, 1]);
    reservations.begin_session(11, Peer::new(9, 3));
    assert_eq!(networks(&reservations), [2, 1]);
}

#[test]
fn a_request_without_a_reservation_releases_none_of_its_network() {
    let mut reservations = of(&[1, 1, 1]);
    reservations.displace(Peer::new(9, 2));
    (0..2).for_each(|_| reservations.release(0));
    assert_eq!(networks(&reservations), [1, 1]);
    reservations.release(2);
    assert_eq!((reservations.all[0].request, reservations.len()), (1, 1));
}

#[test]
fn a_network_without_sessions_gets_one_while_another_has_all() {
    let mut reservations = of(&[1, 1]);
    let [one, two, three] = [1, 2, 3].map(|network| Peer::new(9, network));
    (10..12).for_each(|handshake| reservations.begin_session(handshake, one));
    assert!(!reservations.has_place_beyond(one, 2));
    assert!(reservations.has_place_beyond(two, 2));
    reservations.begin_session(12, two);
    assert!(!reservations.has_place_beyond(two, 2), "it would have half of them");
    assert!(reservations.has_place_beyond(three, 2));
    reservations.begin_session(13, three);
    assert!(!reservations.has_place_beyond(Peer::new(9, 4), 2), "twice the number are taken");
    reservations.end_session(three);
    assert!(reservations.has_place_beyond(three, 2));
}

/// A worker's sessions, and what a test knows about them.
struct Model {
    worker: Rc<PoolBackend>,
    limits: PoolLimits,
    /// The requests and networks of all reservations, oldest first.
    reserved: Vec<(ExchangeId, u64)>,
    /// The networks of all sessions, each with whether the session began without a reservation.
    sessions: Vec<(u64, bool)>,
}

impl Model {
    fn new(max_sessions: usize) -> Model {
        let (end, wakers, _handles) = RingEnd::create().unwrap();
        let (id, scoreboard) = (WorkerId::new().unwrap(), SharedScoreboard::private());
        let entry = Backend::new((0, 1), 4711, id, "".into(), scoreboard, (end, wakers));
        let limits = PoolLimits { max_sessions, ..PoolLimits::default() };
        let worker = PoolBackend::new(entry).unwrap();
        Model { worker, limits, reserved: Vec::new(), sessions: Vec::new() }
    }

    /// Returns the number of sessions and reservations of a network.
    fn used_by(&self, network: u64) -> usize {
        self.count(network) + self.sessions.iter().filter(|session| session.0 == network).count()
    }

    fn count(&self, network: u64) -> usize {
        self.reserved.iter().filter(|reservation| reservation.1 == network).count()
    }

    /// Requests a page, which gets a reservation unless it is rejected.
    fn request_page(&mut self, id: ExchangeId, peer: Peer) {
        let (worker, network) = (&self.worker, peer.network());
        let is_full = worker.is_full_of_sessions(&self.limits);
        let has_place = self.sessions.len() + self.reserved.len() < self.limits.max_sessions;
        assert_eq!(is_full, !has_place);
        if is_full && !worker.has_session_for(peer, &self.limits) {
            return;
        }
        let (own, used) = (self.used_by(network), self.sessions.len() + self.reserved.len());
        let networks = (1..=4).filter(|network| self.used_by(*network) > 0).count();
        worker.reserve_session(id, peer, &self.limits);
        if worker.sessions() > used && is_full {
            assert!(own + used < 2 * self.limits.max_sessions);
            assert!((own + 1) * networks < used);
        } else if is_full {
            assert!(self.sessions.len() < self.limits.max_sessions);
            let most = (1..=4).map(|network| self.count(network)).max().unwrap();
            let now = worker.reservations.borrow();
            let is_left = |it: &(ExchangeId, u64)| now.position_of(it.0).is_some();
            let gone = self.reserved.iter().position(|it| !is_left(it)).unwrap();
            let owner = self.reserved[gone].1;
            assert_eq!(self.count(owner), most);
            assert!(most > self.count(network) + 1);
            let oldest = self.reserved.iter().position(|reservation| reservation.1 == owner);
            assert_eq!(Some(gone), oldest);
            self.reserved.remove(gone);
        }
        self.reserved.push((id, network));
    }

    fn open(&mut self, handshake: ExchangeId, peer: Peer) {
        self.worker.begin_session(handshake, peer);
        let own = self.reserved.iter().position(|reservation| reservation.0 == handshake);
        let oldest = || self.reserved.iter().position(|it| it.1 == peer.network());
        let taken = own.or_else(oldest);
        self.sessions.push((peer.network(), taken.is_none()));
        taken.map(|at| self.reserved.remove(at));
    }

    fn release(&mut self, request: ExchangeId) {
        self.worker.release_reservation(request);
        self.reserved.retain(|reservation| reservation.0 != request);
    }

    fn close(&mut self, at: usize) {
        let (network, _) = self.sessions.swap_remove(at);
        self.worker.end_session(Peer::new(9, network));
    }

    /// Lets the time of the oldest reservations pass.
    fn expire(&mut self, count: usize) {
        let now = Instant::now();
        let count = count.min(self.reserved.len());
        for reservation in self.worker.reservations.borrow_mut().all.range_mut(..count) {
            reservation.until = now;
        }
        self.worker.expire_reservations();
        self.reserved.drain(..count);
    }

    fn check(&self) {
        let reservations = self.worker.reservations.borrow();
        let actual = reservations.all.iter().map(|it| (it.request, it.network));
        assert!(actual.eq(self.reserved.iter().copied()));
        // Beyond twice the limit, only sessions that had no reservation are admitted.
        let beyond = self.sessions.iter().filter(|(_, is_unreserved)| *is_unreserved).count();
        let (sum, max) = (self.worker.sessions(), self.limits.max_sessions);
        assert_eq!(sum, self.sessions.len() + self.reserved.len());
        assert!(sum <= 2 * max + beyond, "{sum} {max} {beyond}");
        let reported = self.worker.entry.load.pending_sessions.get();
        assert_eq!(reported, self.reserved.len() as u64);
    }
}

#[test]
fn in_any_order_a_network_loses_reservations_only_to_its_own_requests_or_to_smaller_networks() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let _entered = runtime.enter();
    let steps = std::env::var("ROOKERY_MODEL_STEPS").map_or(20_000, |it| it.parse().unwrap());
    for max_sessions in [1, 3, 12] {
        let mut random = Random::new(max_sessions as u64);
        let mut model = Model::new(max_sessions);
        for id in 0..steps {
            let peer = Peer::new(id, 1 + random.below(4) as u64);
            // A request of the past, which may have a reservation or may have lost it.
            let earlier = id.saturating_sub(random.below(40) as u64);
            match random.below(32) {
                0..=15 => model.request_page(id, peer),
                16..=18 => model.open(id, peer),
                19..=20 => model.release(earlier),
                21 => model.expire(1 + random.below(3)),
                22 => {
                    // A handshake that has a reservation of its own.
                    let own = model.reserved.get(random.below(max_sessions)).copied();
                    if let Some((handshake, network)) = own {
                        model.open(handshake, Peer::new(0, network));
                    }
                }
                _ if model.sessions.is_empty() => {}
                _ => model.close(random.below(model.sessions.len())),
            }
            model.check();
        }
    }
}
