//! The sessions of one worker, open and reserved, and the division of the places for them among
//! networks.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rookery_exchange::{ById, ExchangeId, Peer};

use super::shares::Shares;

/// The time for which a session is reserved at a worker for a page that has not opened its
/// WebSocket yet. A page may have to load many scripts first.
const RESERVATION_TIME: Duration = Duration::from_secs(45);

/// The sessions of one worker: the open WebSockets, and the reservations. A session is reserved for
/// each page that has not opened its WebSocket yet.
///
/// An open session is never ended, so a network could keep the others out by opening `max_sessions`
/// of them. While all are taken, a network that has less than an equal part of `max_sessions` gets
/// another one nevertheless: one that is reserved for a page of the network that has the most
/// reserved, or otherwise one beyond `max_sessions`, up to twice as many.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    /// The number of open WebSockets.
    open: usize,
    /// The reservations, oldest first.
    reserved: VecDeque<Reservation>,
    /// The numbers of sessions of the networks, open and reserved.
    networks: Shares,
}

#[derive(Debug)]
struct Reservation {
    /// The request for which the session is reserved.
    request: ExchangeId,
    /// The network of the client that has requested the page.
    network: u64,
    until: Instant,
}

impl Sessions {
    /// Returns the number of open WebSockets.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Returns the number of reservations, including those that have expired.
    pub(super) fn reserved(&self) -> usize {
        self.reserved.len()
    }

    /// Returns the number of open WebSockets and of reservations that have not expired.
    pub(super) fn len(&self) -> usize {
        self.open + self.reserved.len() - self.expired()
    }

    fn expired(&self) -> usize {
        if self.reserved.is_empty() {
            return 0;
        }
        let now = Instant::now();
        self.reserved.partition_point(|reservation| reservation.until <= now)
    }

    /// Reserves a session for a page or a WebSocket that this peer requests. If all `max` are
    /// taken, removes the oldest reservation of the network that has the most, if this network has
    /// more than that of the peer would have.
    pub(super) fn reserve(&mut self, request: ExchangeId, peer: Peer, max: usize) {
        if self.len() >= max {
            let at = self.surplus_for(peer).and_then(|network| self.oldest_of(network));
            self.remove(at);
        }
        let until = Instant::now() + RESERVATION_TIME;
        self.reserved.push_back(Reservation { request, network: peer.network(), until });
        self.networks.add(peer.network());
    }

    /// Removes the reservation for a request, if there still is one.
    pub(super) fn release(&mut self, request: ExchangeId) {
        self.remove(self.position_of(request));
    }

    /// Counts a WebSocket as open. It takes the reservation for its own handshake, or otherwise the
    /// oldest of its network, and none if the network has none.
    pub(super) fn begin(&mut self, handshake: ExchangeId, peer: Peer) {
        self.remove(self.position_of(handshake).or_else(|| self.oldest_of(peer.network())));
        self.open += 1;
        self.networks.add(peer.network());
    }

    /// Counts a WebSocket of a peer as closed.
    pub(super) fn end(&mut self, peer: Peer) {
        self.open -= 1;
        self.networks.remove(peer.network());
    }

    /// Removes the reservations that have expired. Returns true if there were any.
    pub(super) fn expire(&mut self) -> bool {
        let expired = self.expired();
        for reservation in self.reserved.drain(..expired) {
            self.networks.remove(reservation.network);
        }
        expired > 0
    }

    /// Returns true if this peer may have a session although all `max` are taken: one that is
    /// reserved for another peer, or one beyond them.
    pub(super) fn has_place_beyond(&self, peer: Peer, max: usize) -> bool {
        let network = Some(peer.network());
        if !self.networks.is_below_part(network, max) {
            return self.open < max && self.surplus_for(peer).is_some();
        }
        // A WebSocket that names its worker is accepted however many its network has. Those beyond
        // the limit must not take the places of other networks.
        let used = self.networks.iter().map(|(_, held)| held.min(max)).sum();
        self.networks.has_place_beyond(network, used, (max, max.saturating_mul(2)))
            || self.surplus_for(peer).is_some()
    }

    /// Returns the network that has the most reservations, if it has more than the network of this
    /// peer would have with another one.
    fn surplus_for(&self, peer: Peer) -> Option<u64> {
        let mut counts = ById::<usize>::default();
        for reservation in &self.reserved {
            *counts.entry(reservation.network).or_default() += 1;
        }
        let own = counts.get(&peer.network()).copied().unwrap_or(0);
        let (network, most) =
            counts.into_iter().max_by_key(|(network, count)| (*count, *network))?;
        (most > own + 1).then_some(network)
    }

    fn position_of(&self, request: ExchangeId) -> Option<usize> {
        self.reserved.iter().position(|reservation| reservation.request == request)
    }

    fn oldest_of(&self, network: u64) -> Option<usize> {
        self.reserved.iter().position(|reservation| reservation.network == network)
    }

    fn remove(&mut self, at: Option<usize>) {
        if let Some(removed) = at.and_then(|at| self.reserved.remove(at)) {
            self.networks.remove(removed.network);
        }
    }
}

#[cfg(test)]
mod tests;
