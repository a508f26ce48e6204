//! The sessions that are reserved at one worker for pages that have not opened their WebSockets,
//! and the division of all its sessions among networks.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rookery_exchange::{ById, ExchangeId, Peer};

/// The time for which a session is reserved at a worker for a page that has not opened its
/// WebSocket yet. A page may have to load many scripts first.
const RESERVATION_TIME: Duration = Duration::from_secs(45);

/// The reserved sessions of one worker. A session is reserved for each page that has not opened its
/// WebSocket yet.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    /// The reservations, oldest first.
    all: VecDeque<Reservation>,
    /// The number of open sessions of each network.
    open: ById<usize>,
}

#[derive(Debug)]
struct Reservation {
    /// The request for which the session is reserved.
    request: ExchangeId,
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

    pub(super) fn add(&mut self, request: ExchangeId, peer: Peer) {
        let until = Instant::now() + RESERVATION_TIME;
        self.all.push_back(Reservation { request, network: peer.network(), until });
    }

    /// Removes the reservation for a request, if there still is one.
    pub(super) fn release(&mut self, request: ExchangeId) {
        if let Some(at) = self.position_of(request) {
            self.all.remove(at);
        }
    }

    /// Counts a session that has been opened, and removes the reservation that it takes: that for
    /// its own handshake, or otherwise the oldest of its network. Removes none if the network has
    /// none.
    pub(super) fn begin_session(&mut self, handshake: ExchangeId, peer: Peer) {
        *self.open.entry(peer.network()).or_default() += 1;
        let at = self.position_of(handshake).or_else(|| self.oldest_of(peer.network()));
        if let Some(at) = at {
            self.all.remove(at);
        }
    }

    /// Removes a session of this peer that has ended.
    pub(super) fn end_session(&mut self, peer: Peer) {
        if let Some(count) = self.open.get_mut(&peer.network()) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&peer.network());
            }
        }
    }

    /// Removes the reservations that have expired. Returns true if there were any.
    pub(super) fn expire(&mut self) -> bool {
        let expired = self.expired();
        self.all.drain(..expired);
        expired > 0
    }

    /// Returns true if this peer may replace a reservation of another: a network has more
    /// reservations than the peer's network would have with another one.
    pub(super) fn has_surplus_for(&self, peer: Peer) -> bool {
        self.surplus_for(peer).is_some()
    }

    /// Removes the reservation that gives way to one of this peer, if there is one: the oldest of
    /// the network that has the most.
    pub(super) fn displace(&mut self, peer: Peer) {
        let at = self.surplus_for(peer).and_then(|network| self.oldest_of(network));
        if let Some(at) = at {
            self.all.remove(at);
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

    /// Returns true if this peer may have a session although the worker has `max` sessions and
    /// reservations: its network has fewer than the networks have on average, even with this one,
    /// and at most as many as are left of twice `max`. So if one network has taken all sessions,
    /// others get half of as many, a quarter, and so on.
    pub(super) fn has_place_beyond(&self, peer: Peer, max: usize) -> bool {
        let mut counts = self.open.clone();
        for reservation in &self.all {
            *counts.entry(reservation.network).or_default() += 1;
        }
        let used: usize = counts.values().sum();
        let held = counts.get(&peer.network()).copied().unwrap_or(0);
        used + held < max.saturating_mul(2) && (held + 1) * counts.len() < used
    }

    fn position_of(&self, request: ExchangeId) -> Option<usize> {
        self.all.iter().position(|reservation| reservation.request == request)
    }

    fn oldest_of(&self, network: u64) -> Option<usize> {
        self.all.iter().position(|reservation| reservation.network == network)
    }
}

#[cfg(test)]
mod tests;
