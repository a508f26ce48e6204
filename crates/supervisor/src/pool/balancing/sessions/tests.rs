use std::ops::RangeInclusive;
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
fn networks(sessions: &Sessions) -> Vec<u64> {
    sessions.reserved.iter().map(|reservation| reservation.network).collect()
}

/// Returns sessions that are reserved for the requests 0, 1, 2 and so on of these networks.
fn of(networks: &[u64]) -> Sessions {
    let mut sessions = Sessions::default();
    for (request, network) in (0..).zip(networks) {
        sessions.reserve(request, Peer::new(0, *network), usize::MAX);
    }
    sessions
}

#[test]
fn the_oldest_reservation_of_the_largest_network_gives_way_to_a_smaller_one() {
    let mut sessions = of(&[1, 2, 2, 3, 2, 1]);
    let [one, two, four] = [1, 2, 4].map(|network| Peer::new(9, network));
    assert!(!sessions.has_place_beyond(one, 6) && !sessions.has_place_beyond(two, 6));
    assert!(sessions.has_place_beyond(four, 6));
    sessions.reserve(6, four, 6);
    sessions.reserve(7, two, 6);
    assert_eq!(networks(&sessions), [1, 2, 3, 2, 1, 4, 2]);
    sessions.reserve(8, four, 6);
    assert_eq!(networks(&sessions), [1, 3, 2, 1, 4, 2, 4]);
    assert!(!of(&[1, 2, 3]).has_place_beyond(four, 3), "no network has more than one");
}

/// Opens a WebSocket of a network if a worker with `max` sessions accepts it.
fn open_one(sessions: &mut Sessions, network: u64, max: usize) -> bool {
    let (handshake, peer) = (1000, Peer::new(0, network));
    let is_accepted = sessions.len() < max || sessions.has_place_beyond(peer, max);
    if is_accepted {
        sessions.reserve(handshake, peer, max);
        sessions.begin(handshake, peer);
    }
    is_accepted
}

/// Opens as many WebSockets of a network, at most 100, as a worker with `max` sessions accepts.
/// Returns the number of them.
fn open_all(sessions: &mut Sessions, network: u64, max: usize) -> usize {
    (0..100).take_while(|_| open_one(sessions, network, max)).count()
}

#[test]
fn a_network_that_opens_all_sessions_leaves_some_to_each_other_network() {
    for max in [1, 2, 3, 10, 64] {
        let mut sessions = Sessions::default();
        assert_eq!(open_all(&mut sessions, 1, max), max, "alone, it has the limit");
        let others: Vec<_> = (2..=6).map(|it| open_all(&mut sessions, it, max)).collect();
        assert!(others[0] == max / 2 && others.is_sorted_by(|a, b| a >= b), "{max}: {others:?}");
        assert!(sessions.len() <= 2 * max, "{max}: {others:?}");
        assert_eq!(open_all(&mut sessions, 1, max), 0, "{max}");
        (0..max).for_each(|_| sessions.end(Peer::new(0, 1)));
        assert!(open_all(&mut sessions, 7, max) > 0, "{max}");
    }
}

#[test]
fn a_client_with_two_sessions_does_not_lift_the_limit_for_all_others() {
    let mut sessions = Sessions::default();
    assert_eq!((1..100).filter(|network| open_one(&mut sessions, *network, 10)).count(), 10);
    sessions.end(Peer::new(0, 1));
    sessions.begin(0, Peer::new(0, 2));
    let others = (100..200).filter(|network| open_one(&mut sessions, *network, 10)).count();
    assert_eq!(others, 1, "for the second session of that client");
}

#[test]
fn the_websockets_that_name_their_worker_do_not_take_the_places_of_others() {
    let mut sessions = Sessions::default();
    // Accepted without a reservation.
    (0..100).for_each(|id| sessions.begin(id, Peer::new(id, 1)));
    assert_eq!([1, 2].map(|network| open_all(&mut sessions, network, 10)), [0, 5]);
}

#[test]
fn a_session_takes_the_reservation_of_its_handshake_or_the_oldest_of_its_network_or_none() {
    let mut sessions = of(&[1, 2, 1, 2]);
    sessions.begin(3, Peer::new(9, 2));
    assert_eq!(networks(&sessions), [1, 2, 1]);
    sessions.begin(10, Peer::new(9, 1));
    assert_eq!(networks(&sessions), [2, 1]);
    sessions.begin(11, Peer::new(9, 3));
    assert_eq!((networks(&sessions), sessions.len()), (vec![2, 1], 5));
}

#[test]
fn a_request_without_a_reservation_releases_none_of_its_network() {
    let mut sessions = of(&[1, 1, 1]);
    sessions.reserve(3, Peer::new(9, 2), 3);
    (0..2).for_each(|_| sessions.release(0));
    assert_eq!(networks(&sessions), [1, 1, 2]);
    sessions.release(2);
    assert_eq!((sessions.reserved[0].request, sessions.reserved()), (1, 2));
}

/// The networks of the model.
fn all_networks() -> RangeInclusive<u64> {
    1..=4
}

/// How many pages a model has rejected, and how many have a session beyond the limit.
#[derive(Debug, Default)]
struct Counts {
    rejected: usize,
    beyond: usize,
}

/// A worker's sessions, and what a test knows about them.
struct Model {
    worker: Rc<PoolBackend>,
    limits: PoolLimits,
    /// The requests and networks of all reservations, oldest first.
    reserved: Vec<(ExchangeId, u64)>,
    /// The networks of all sessions, each with whether the session began without a reservation.
    sessions: Vec<(u64, bool)>,
    counts: Counts,
}

impl Model {
    fn new(max_sessions: usize) -> Model {
        let (end, wakers, _handles) = RingEnd::create().unwrap();
        let (id, scoreboard) = (WorkerId::new().unwrap(), SharedScoreboard::private());
        let entry = Backend::new((0, 1), 4711, id, "".into(), scoreboard, (end, wakers));
        let limits = PoolLimits { max_sessions, ..PoolLimits::default() };
        let worker = PoolBackend::new(entry).unwrap();
        let (reserved, sessions, counts) = (Vec::new(), Vec::new(), Counts::default());
        Model { worker, limits, reserved, sessions, counts }
    }

    /// Returns the number of a network's reservations.
    fn reserved_by(&self, network: u64) -> usize {
        self.reserved.iter().filter(|reservation| reservation.1 == network).count()
    }

    /// Returns the number of a network's sessions, open and reserved.
    fn held_by(&self, network: u64) -> usize {
        let open = self.sessions.iter().filter(|session| session.0 == network).count();
        open + self.reserved_by(network)
    }

    /// Returns the number of networks that have sessions, with this one.
    fn networks_with(&self, network: u64) -> usize {
        all_networks().filter(|it| *it == network || self.held_by(*it) > 0).count()
    }

    /// Requests a page, which gets a reservation unless it is rejected.
    fn request_page(&mut self, id: ExchangeId, peer: Peer) {
        let (worker, network) = (Rc::clone(&self.worker), peer.network());
        let max = self.limits.max_sessions;
        let is_full = worker.is_full_of_sessions(&self.limits);
        assert_eq!(is_full, self.sessions.len() + self.reserved.len() >= max);
        let held = self.held_by(network);
        let most = all_networks().map(|network| self.reserved_by(network)).max().unwrap();
        let has_surplus = most > self.reserved_by(network) + 1;
        let is_below_part = (held + 1) * self.networks_with(network) <= max;
        if is_full && !worker.has_session_beyond(peer, &self.limits) {
            let used = all_networks().map(|it| self.held_by(it).min(max)).sum::<usize>();
            assert!(!is_below_part || (used + held >= 2 * max && !has_surplus));
            assert!(!has_surplus || self.sessions.len() >= max);
            // Each network leaves a place to one without sessions, unless twice as many are taken.
            let leave_one = |it| it == network || self.held_by(it) != 1;
            assert!(held > 0 || used >= 2 * max || max == 1 || !all_networks().all(leave_one));
            self.counts.rejected += 1;
            return;
        }
        worker.reserve_session(id, peer, &self.limits);
        if is_full && has_surplus {
            let now = worker.sessions.borrow();
            let is_left = |it: &(ExchangeId, u64)| now.position_of(it.0).is_some();
            let gone = self.reserved.iter().position(|it| !is_left(it)).unwrap();
            let owner = self.reserved[gone].1;
            assert_eq!(self.reserved_by(owner), most);
            let oldest = self.reserved.iter().position(|reservation| reservation.1 == owner);
            assert_eq!(Some(gone), oldest);
            self.reserved.remove(gone);
        } else if is_full {
            assert!(is_below_part);
            self.counts.beyond += 1;
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
        self.worker.end_session(Peer::new(0, network));
    }

    /// Lets the time of the oldest reservations pass.
    fn expire(&mut self, count: usize) {
        let now = Instant::now();
        let count = count.min(self.reserved.len());
        for reservation in self.worker.sessions.borrow_mut().reserved.range_mut(..count) {
            reservation.until = now;
        }
        self.worker.expire_reservations();
        self.reserved.drain(..count);
    }

    fn check(&self) {
        let actual = self.worker.sessions.borrow();
        let reserved = actual.reserved.iter().map(|it| (it.request, it.network));
        assert!(reserved.eq(self.reserved.iter().copied()));
        for network in all_networks() {
            let held = actual.networks.iter().find(|(it, _)| *it == network);
            assert_eq!(held.map_or(0, |(_, held)| held), self.held_by(network));
        }
        // Only sessions that had no reservation are admitted beyond twice the limit, and beyond the
        // limit while one network has all sessions.
        let unreserved = self.sessions.iter().filter(|(_, is_unreserved)| *is_unreserved).count();
        let (sum, max) = (self.worker.sessions(), self.limits.max_sessions);
        assert_eq!(sum, self.sessions.len() + self.reserved.len());
        assert!(sum <= 2 * max + unreserved, "{sum} {max} {unreserved}");
        let has_all = |network: u64| self.held_by(network) == sum;
        assert!(
            sum <= max + unreserved || !all_networks().any(has_all),
            "{sum} {max} {unreserved}"
        );
        let (open, load) = (self.sessions.len(), &self.worker.entry);
        assert_eq!(
            (load.load().1, load.load.pending_sessions.get()),
            (open, self.reserved.len() as u64)
        );
    }
}

#[test]
fn in_any_order_a_network_loses_reservations_only_to_its_own_requests_or_to_smaller_networks() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let _entered = runtime.enter();
    let steps = std::env::var("ROOKERY_MODEL_STEPS").map_or(20_000, |it| it.parse().unwrap());
    for max_sessions in [1, 2, 3, 12] {
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
        let Counts { rejected, beyond } = model.counts;
        assert!(
            max_sessions == 1 || rejected.min(beyond) > steps as usize / 1000,
            "{rejected} {beyond}"
        );
    }
}
