//! The sessions that are reserved at one worker for pages that have not opened their WebSockets.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rookery_exchange::{ById, Peer};

/// The time for which a session is reserved at a worker for a page that has not opened its
/// WebSocket yet. A page may have to load many scripts first.
const RESERVATION_TIME: Duration = Duration::from_secs(45);

/// The reserved sessions of one worker. A session is reserved for each page that has not opened its
/// WebSocket yet.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    /// The reservations, oldest first.
    all: VecDeque<Reservation>,
}

#[derive(Debug)]
struct Reservation {
    /// The network of the client that has requested the page.
    network: u64,
    until: Instant,
}

impl Reservations {
    /// Returns the number of reservations, including those that have expired.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the number of reservations that have not expired.
    pub(super) fn valid(&self) -> usize {
        self.all.len() - self.expired()
    }

    fn expired(&self) -> usize {
        if self.all.is_empty() {
            return 0;
        }
        let now = Instant::now();
        self.all.partition_point(|reservation| reservation.until <= now)
    }

    pub(super) fn add(&mut self, peer: Peer) {
        let until = Instant::now() + RESERVATION_TIME;
        self.all.push_back(Reservation { network: peer.network(), until });
    }

    /// Removes the oldest reservation of a peer's network, or the oldest of all if the network has
    /// none.
    pub(super) fn release(&mut self, peer: Peer) {
        self.all.remove(self.oldest_of(peer.network()).unwrap_or(0));
    }

    /// Removes the reservations that have expired. Returns true if there were any.
    pub(super) fn expire(&mut self) -> bool {
        let expired = self.expired();
        self.all.drain(..expired);
        expired > 0
    }

    /// Returns true if a reservation gives way to one of this peer: a network has more reservations
    /// than the peer's network would have with another one.
    pub(super) fn has_surplus_for(&self, peer: Peer) -> bool {
        self.surplus_for(peer).is_some()
    }

    /// Removes the reservation that gives way to one of this peer, if there is one: the oldest of
    /// the network that has the most.
    pub(super) fn displace(&mut self, peer: Peer) {
        if let Some(network) = self.surplus_for(peer) {
            self.all.remove(self.oldest_of(network).unwrap_or(0));
        }
    }

    /// Returns the network that has the most reservations, if it has more than the network of this
    /// peer would have with another one.
    fn surplus_for(&self, peer: Peer) -> Option<u64> {
        let mut counts = ById::<usize>::default();
        for reservation in &self.all {
            *counts.entry(reservation.network).or_default() += 1;
        }
        let own = counts.get(&peer.network()).copied().unwrap_or(0);
        let (network, most) =
            counts.into_iter().max_by_key(|(network, count)| (*count, *network))?;
        (most > own + 1).then_some(network)
    }

    fn oldest_of(&self, network: u64) -> Option<usize> {
        self.all.iter().position(|reservation| reservation.network == network)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the networks of all reservations, oldest first.
    fn networks(reservations: &Reservations) -> Vec<u64> {
        reservations.all.iter().map(|reservation| reservation.network).collect()
    }

    fn of(networks: &[u64]) -> Reservations {
        let mut reservations = Reservations::default();
        for network in networks {
            reservations.add(Peer::new(0, *network));
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
    fn a_websocket_releases_the_reservation_of_its_network_or_else_the_oldest() {
        let mut reservations = of(&[1, 2, 1, 2]);
        reservations.release(Peer::new(9, 2));
        assert_eq!(networks(&reservations), [1, 1, 2]);
        reservations.release(Peer::new(9, 3));
        assert_eq!(networks(&reservations), [1, 2]);
        (0..3).for_each(|_| reservations.release(Peer::new(9, 3)));
        assert_eq!(
            (reservations.len(), reservations.valid(), reservations.expire()),
            (0, 0, false)
        );
    }
}
